"""Reason codes: why a record went to the dead-letter topic, or is tried again.

Owns the list. A code is a short constant word, used as a metric label and a header value; what
varies goes into the text beside it. Handlers may add codes of their own (``batch.fail``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Why a record was not done. The comment of each code is its documentation."""

    #: the value is not JSON: cut off, NaN, a second document behind the first, not UTF-8
    MALFORMED_JSON = "malformed-json"
    #: JSON, but not GeoJSON: no type, or a member that has the wrong type
    NOT_GEOJSON = "not-geojson"
    #: a known format that is not decoded: FeatureCollection, WKB, WKT, a change event, compressed
    UNSUPPORTED_FORMAT = "unsupported-format"
    #: a geometry type that GeoJSON does not have
    UNSUPPORTED_TYPE = "unsupported-type"
    #: coordinates of the wrong shape, with ordinates that are no finite numbers, with 2 and 3
    #: ordinates mixed, or with too few positions for a line or ring
    BAD_COORDINATES = "bad-coordinates"
    #: a ring whose last position is not its first
    OPEN_RING = "open-ring"
    #: collections inside collections deeper than is safe, or JSON deeper than 1,024
    TOO_DEEP = "too-deep"
    #: the handler raised on this record alone
    HANDLER_ERROR = "handler-error"
    #: the handler refused this record with words that are no code
    HANDLER_REFUSED = "handler-refused"
    #: memory ran out, or so it looks: the record is tried again
    SUSPECT_MEMORY = "suspect-memory"
    #: the handler asked for another attempt
    RETRY_REQUESTED = "retry-requested"


class Fault(NamedTuple):
    """Why one record could not be decoded."""

    reason: str
    #: in words, without any part of the payload's data
    text: str
