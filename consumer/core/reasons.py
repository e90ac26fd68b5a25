"""Every reason that the worker gives, each kind in one enumeration with its meaning in words.

Owns why a record ends in the dead-letter topic, why it is tried again, why a sizing is published,
why a process is killed and why fetching is paused. A code is a short constant word: a metric's
label, a header's value or a log field; what varies goes into the text beside it. The
documentation's tables and the tests are made from here, so a reason is one entry. A meaning is a
cell of a table: no full stop, and no bar.

Handlers may add codes of their own to the first kind (``batch.fail``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Self, TypeAlias


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
        "a format that is known and not decoded, such as WKB, WKT or a compressed value",
    )
    UNSUPPORTED_TYPE = "unsupported-type", "a geometry type that GeoJSON does not have"
    BAD_COORDINATES = (
        "bad-coordinates",
        "coordinates of the wrong shape, ordinates that are no finite numbers, 2 and 3 ordinates"
        " mixed, too few positions for a line or ring",
    )
    OPEN_RING = "open-ring", "a ring whose last position is not its first"
    TOO_DEEP = "too-deep", "more than 32 collections inside each other, or JSON deeper than 1,024"
    DECODER_ERROR = "decoder-error", "its decoder raised: our fault, please report"
    HANDLER_ERROR = (
        "handler-error",
        "the handler raised on this record alone, or broke its contract",
    )
    HANDLER_REFUSED = "handler-refused", "`batch.fail` with words that are no code"
    RETRIES_EXHAUSTED = (
        "retries-exhausted",
        "another attempt was asked for once more than `VERTEX_BUDGET_MAX_ATTEMPTS` allow",
    )
    OUT_OF_MEMORY = (
        "out-of-memory",
        "memory ran out at every attempt, the later ones alone",
    )
    KILLED_PROCESS = "killed-process", "its process died over it twice, the last time over it alone"
    TIMED_OUT = (
        "timed-out",
        "alone in a process for longer than `VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS`",
    )
    OUTPUT_TOO_LARGE = (
        "output-too-large",
        "the output topic, or the client, refuses its output as too large",
    )


class RetryReason(_Explained):
    """Why a record is tried again."""

    SUSPECT_MEMORY = "suspect-memory", "memory ran out, or so it looks"
    REQUESTED = "retry-requested", "the handler asked for another attempt"
    FOLLOWS = "follows-a-retry", "one of its key or partition before it is tried again"


class SizingReason(_Explained):
    """Why a sizing was published."""

    WARM_UP = (
        "warm-up",
        "the first measuring window is over: the first sizing",
        "first measurement of the live traffic",
    )
    INTERVAL = (
        "interval",
        "`VERTEX_BUDGET_REMEASURE_INTERVAL_SECONDS` have passed",
        "measured again, as it does at regular times",
    )
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
        "of the last four chunks three took less than half or more than 1.5 times the seconds or"
        " bytes predicted",
        "work took another time than predicted",
    )
    MEMORY_LIMIT = (
        "memory-limit",
        "the available memory is more than a tenth away from that of the last sizing",
        "the memory that is free for work changed",
    )


class KillReason(_Explained):
    """Why the worker kills a handler process."""

    TIMED_OUT = (
        "timed-out",
        "a chunk is inside it for longer than `VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS`",
    )
    STOP = "stop", "it still works when the drain deadline of a stop is over"


class PauseReason(_Explained):
    """Why one partition alone is paused; everything is paused for a limit (``core.limits``)."""

    ORDERING = (
        "ordering",
        "one chain holds as many seconds of work as one chain may while others wait",
    )
    RETRY = (
        "retry",
        "a chain that waits for a retry holds as many bytes or records as such a chain may",
    )
    UNCOMMITTED = (
        "uncommitted",
        "`VERTEX_BUDGET_MAX_UNCOMMITTED_MESSAGES` are finished above a record that is not",
    )


Kind: TypeAlias = type[_Explained]

#: every kind of reasons, by the name of its table in the documentation
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "dead-letter-reasons": Reason,
        "retry-reasons": RetryReason,
        "sizing-reasons": SizingReason,
        "kill-reasons": KillReason,
        "pause-reasons": PauseReason,
    }
)
