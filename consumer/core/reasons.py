"""Every reason that the worker gives, each kind in one enumeration with its meaning in words.

Owns why a record ends in the dead-letter topic, why it is tried again, why a sizing is published,
why a process is killed and why fetching is paused. A code is a short constant word: a metric's
label, a header's value or a log field; what varies goes into the text beside it. The
documentation's tables and the tests are made from here, so a reason is one entry.

Handlers may add codes of their own to the first kind (``batch.fail``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class _Explained(StrEnum):
    """A code with its meaning."""

    meaning: str
    #: the same for somebody who has not read the documentation
    headline: str

    def __new__(cls, code: str, meaning: str, headline: str = "") -> Self:
        """Make a member of a code and its words."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.headline = headline or meaning
        return member

    @classmethod
    def of(cls, code: str) -> Self:
        """Return the member with a code."""
        return next(member for member in cls if member.value == code)


class Reason(_Explained):
    """Why a record was not done and went to the dead-letter topic."""

    MALFORMED_JSON = (
        "malformed-json",
        "not JSON: cut off, NaN, a second document behind the first, not UTF-8",
    )
    NOT_GEOJSON = "not-geojson", "JSON, but not GeoJSON: no type, or a member of the wrong type"
    UNSUPPORTED_FORMAT = (
        "unsupported-format",
        "known, and not decoded: FeatureCollection, WKB, WKT, a change event, a compressed value",
    )
    UNSUPPORTED_TYPE = "unsupported-type", "a geometry type that GeoJSON does not have"
    BAD_COORDINATES = (
        "bad-coordinates",
        "of the wrong shape, not finite, 2 and 3 ordinates mixed, too few positions",
    )
    OPEN_RING = "open-ring", "a ring whose last position is not its first"
    TOO_DEEP = "too-deep", "collections inside collections, or JSON deeper than 1,024"
    HANDLER_ERROR = (
        "handler-error",
        "the handler raised on this record alone, or broke its contract",
    )
    HANDLER_REFUSED = "handler-refused", "`batch.fail` with words that are no code"
    RETRIES_EXHAUSTED = "retries-exhausted", "asked for a retry too often"
    OUT_OF_MEMORY = "out-of-memory", "ran out of memory at every attempt, the later ones alone"
    KILLED_PROCESS = "killed-process", "killed its process alone, twice"
    TIMED_OUT = "timed-out", "was alone in a process for longer than the time limit"
    OUTPUT_TOO_LARGE = "output-too-large", "its output is larger than any topic takes"


class RetryReason(_Explained):
    """Why a record is tried again."""

    SUSPECT_MEMORY = "suspect-memory", "memory ran out, or so it looks"
    REQUESTED = "retry-requested", "the handler asked for another attempt"
    FOLLOWS = "follows-a-retry", "a record of its key before it goes again"


class SizingReason(_Explained):
    """Why a sizing was published."""

    WARM_UP = (
        "warm-up",
        "the first measuring window was enough",
        "first measurement of the live traffic",
    )
    INTERVAL = "interval", "time has passed", "measured again, as it does at regular times"
    MIX_DRIFT = (
        "mix-drift",
        "a bound of the recent mix is a fifth away from the published one, beyond its error",
        "the traffic has another mix",
    )
    NEW_CLASS = (
        "new-class",
        "a size class that was not in the last sample has a twentieth of the work or of the bytes",
        "records of a size not seen before",
    )
    PREDICTION_FAILED = (
        "prediction-failed",
        "of the last four chunks three took less than half or more than 1.5 times what was predicted",
        "work took another time than predicted",
    )
    MEMORY_LIMIT = (
        "memory-limit",
        "the available memory moved by a tenth",
        "the memory that is free for work changed",
    )


class KillReason(_Explained):
    """Why the worker kills a handler process of its own."""

    TIMED_OUT = "timed-out", "a chunk was inside it for longer than the time limit"
    STOP = "stop", "the drain deadline is over"


class PauseReason(_Explained):
    """Why one partition alone is paused; everything is paused for a limit (``core.limits``)."""

    ORDERING = "ordering", "one chain holds as much work as one chain may while others wait"
    RETRY = "retry", "a chain that waits for a retry holds all that such a chain may"
    UNCOMMITTED = "uncommitted", "too much is finished above a record that is not"
