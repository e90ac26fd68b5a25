"""Errors of ``sizing``: each says what happened, with its values, and ends with what to check.

Owns the tree under ``SizingError``. Every class is a dataclass of plain values, so that it
survives pickling in both directions between processes; its text is made from those values.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


def _mebibytes(amount_bytes: int) -> str:
    return f"{amount_bytes / (1 << 20):,.1f} MiB"


@dataclass(eq=False)
class SizingError(Exception):
    """Base of every error that ``sizing`` raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default rebuilds an exception from the positional arguments of its constructor,
        # which are not there when it was made with keywords.
        values = tuple(getattr(self, field.name) for field in fields(self))
        return type(self), values, dict(self.__dict__)


@dataclass(eq=False)
class UnitError(SizingError, ValueError):
    """A text is not an amount of bytes or seconds: the fault of a setting."""

    #: the text as given
    text: str
    #: "bytes" or "seconds"
    quantity: str
    #: how to write it instead
    hint: str

    def __str__(self) -> str:
        return f"{self.text!r} is not an amount of {self.quantity}: {self.hint}"


@dataclass(eq=False)
class HostProbeError(SizingError):
    """The host does not say what was asked of it."""

    #: what was looked for, in words
    wanted: str
    #: the last place that was tried
    path: str

    def __str__(self) -> str:
        return (
            f"cannot tell the {self.wanted}: nothing usable down to {self.path};"
            " is /proc mounted? Otherwise set it by hand"
        )


@dataclass(eq=False)
class PoolDoesNotFitError(SizingError):
    """Not even one handler process fits into the memory: the container is too small."""

    limit_bytes: int
    #: share of the limit that may be planned for
    headroom_ratio: float
    parent_bytes: int
    #: the prefetch, already shrunk to its floor
    prefetch_bytes: int
    least_in_flight_bytes: int
    #: one handler process, its slots included
    footprint_bytes: int
    #: the least limit at which one process fits, with the prefetch at its floor
    least_limit_bytes: int

    def __str__(self) -> str:
        planned = int(self.limit_bytes * self.headroom_ratio)
        return (
            f"not even one handler process fits: of the memory limit of"
            f" {_mebibytes(self.limit_bytes)}, {_mebibytes(planned)} may be planned for,"
            f" but the parent takes {_mebibytes(self.parent_bytes)},"
            f" the prefetch {_mebibytes(self.prefetch_bytes)},"
            f" the least in flight {_mebibytes(self.least_in_flight_bytes)}"
            f" and one process {_mebibytes(self.footprint_bytes)};"
            f" give the container at least {_mebibytes(self.least_limit_bytes)},"
            " or check what the handler loads when it opens"
        )
