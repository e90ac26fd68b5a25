"""What happened: the core's only input. Every event carries ``now`` (monotonic seconds).

Owns the vocabulary between the driver and the core. Nothing here acts or decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from consumer.core.ledger.columns import FetchedRun, Headers, Partition


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions were given to this member; each begins a new epoch."""

    now: float
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions must be given back: drain them, then answer with ``Release``."""

    now: float
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Partitions are no longer ours; nothing of them may be committed."""

    now: float
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """The group has accepted this member, with partitions or without."""

    now: float


@dataclass(frozen=True, slots=True)
class ClientLost:
    """The Kafka client gave up and is made again.

    Nothing that it had is ours any more, and an answer that it owed will not come.
    """

    now: float
    #: the broker still holds this static member's old instance
    waits_for_instance_id: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """One fetch returned these runs, oldest first."""

    now: float
    runs: tuple[FetchedRun, ...]


@dataclass(frozen=True, slots=True)
class EndReached:
    """The client's position in a partition; every record below it was returned by a fetch."""

    now: float
    partition: Partition
    next_offset: int


@dataclass(frozen=True, slots=True)
class ProcessReady:
    """A handler process has opened its handler."""

    now: float
    process: int
    #: resident bytes after opening the handler
    baseline_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """A handler process is gone; what it held is not done."""

    now: float
    process: int
    #: "exit code 1", "signal 9 (SIGKILL)"
    cause: str


@dataclass(frozen=True, slots=True)
class RecordFault:
    """One record that the handler process could not finish."""

    #: index in the chunk
    index: int
    #: reason code ("malformed-json", "handler-error", "retries-exhausted", ...)
    reason: str
    error_class: str = ""
    error_text: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """One record that the handler returned for the output topic."""

    #: index of the input record in the chunk
    index: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """What a handler process says of one chunk. Records that it does not name are done."""

    #: wall seconds of decode + handle; None when the chunk gives no seconds (tracemalloc ran)
    seconds: float | None
    cpu_seconds: float
    #: peak working bytes of the chunk; None when it was not sampled
    working_bytes: int | None
    #: resident bytes after the chunk
    resident_bytes: int
    #: exact vertices of the geometries that were decoded
    exact_vertices: int
    #: growth of the resident peak over the resident bytes before the chunk, of every chunk:
    #: a lower bound of its working bytes (0 where the allocator had kept enough free pages)
    growth_bytes: int = 0
    #: dead-letter these
    failed: tuple[RecordFault, ...] = ()
    #: try these again later
    retry: tuple[RecordFault, ...] = ()
    #: deliberately skipped (tombstones)
    skipped: tuple[int, ...] = ()
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True)
class ChunkFinished:
    """A handler process finished a chunk."""

    now: float
    process: int
    chunk_id: int
    outcome: ChunkOutcome


@dataclass(frozen=True, slots=True)
class Delivered:
    """The broker acknowledged (or refused) what one ``Produce`` sent."""

    now: float
    delivery_id: int
    #: None when acknowledged
    error: str | None = None
    #: its size is refused whatever is left out of it: sending it again is no use
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit was answered."""

    now: float
    offsets: Mapping[Partition, int]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySampled:
    """The host side of the memory bound, measured."""

    now: float
    limit_bytes: int
    #: parent and processes at rest, slots included
    baseline_bytes: int
    #: what the Kafka client may prefetch
    prefetch_bytes: int
    #: what everything together holds now
    used_bytes: int


@dataclass(frozen=True, slots=True)
class ParentMeasured:
    """Seconds of the parent's own processor time spent on ``messages`` records."""

    now: float
    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; the only event that is answered with ``Fetch``."""

    now: float


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Drain and close. ``at_once`` lets go of everything."""

    now: float
    at_once: bool = False


Event: TypeAlias = (
    Assigned
    | Revoked
    | Lost
    | Joined
    | ClientLost
    | Fetched
    | EndReached
    | ProcessReady
    | ProcessDied
    | ChunkFinished
    | Delivered
    | Committed
    | MemorySampled
    | ParentMeasured
    | Tick
    | StopRequested
)
