"""What to do: the core's only output. The driver carries commands out in order.

Owns the vocabulary between the core and the driver. Nothing here acts or decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from consumer.core.ledger.columns import Columns, Headers, Partition
from sizing.load import Load
from sizing.report import SizingReport


class Destination(StrEnum):
    """Where a produced record goes."""

    DEAD_LETTER = "dead-letter"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPart:
    """The records of one piece inside a chunk, in order."""

    partition: Partition
    columns: Columns


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Records handed to one handler process at once. A record's index counts across parts."""

    chunk_id: int
    parts: tuple[ChunkPart, ...]
    load: Load
    predicted_seconds: float
    predicted_bytes: int
    #: measure working bytes after a trim
    sample_bytes: bool = False
    #: measure Python's allocation peak as well; the chunk gives no seconds
    trace_allocations: bool = False
    #: memory ran short for it before: raise the process's limit while it runs
    raise_memory_limit: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Call ``consume`` for up to ``max_records``, waiting at most ``wait_seconds``."""

    max_records: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """From now on wait so long for results of processes in each turn. Only changes are sent."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop fetching these partitions. Only transitions are sent."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Fetch these partitions again. Only transitions are sent."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """Hand a chunk to a handler process (it has a free slot)."""

    process: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these offsets (next to read). One commit is in flight at a time."""

    offsets: Mapping[Partition, int]
    #: wait for the answer: nothing of these partitions follows (stop, revoke)
    wait: bool = False
    #: the last one before leaving the group
    last: bool = False


@dataclass(slots=True, eq=False)
class Produce:
    """Send one record and report its acknowledgement as ``Delivered``.

    Not frozen, for its speed alone: an output is made for every record.
    """

    delivery_id: int
    destination: Destination
    source: Partition
    source_offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    #: of a dead letter
    reason: str = ""
    error_class: str = ""
    error_text: str = ""
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Start (or replace) a handler process."""

    process: int


@dataclass(frozen=True, slots=True)
class KillProcess:
    """Kill a handler process; ``ProcessDied`` follows."""

    process: int
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Revoked partitions are drained (or their time is up): give them back."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Everything is settled: leave the group and exit."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A new sizing is in force."""

    report: SizingReport


@dataclass(frozen=True, slots=True)
class Say:
    """One log line for people."""

    #: "info", "warning", "error"
    level: str
    text: str
    #: machine-readable fields beside the text
    fields: Mapping[str, object] = field(default_factory=dict)


Command: TypeAlias = (
    Fetch
    | Wait
    | Pause
    | Resume
    | Submit
    | Commit
    | Produce
    | StartProcess
    | KillProcess
    | Release
    | Close
    | Publish
    | Say
)
