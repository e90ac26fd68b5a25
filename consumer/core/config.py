"""What the core is told at its start. Numbers only; reading settings is not its business."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ordering(StrEnum):
    """Which records must be handled one after another."""

    KEY = "key"
    PARTITION = "partition"
    UNORDERED = "unordered"


class Mode(StrEnum):
    """Whether the budget is enforced or only computed and shown."""

    ENFORCE = "enforce"
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Settings of the core; defaults are those of the command."""

    #: handler processes, >= 1
    processes: int
    ordering: Ordering = Ordering.KEY
    mode: Mode = Mode.ENFORCE
    #: share of the container's limit that may be planned for
    memory_headroom_ratio: float = 0.8
    #: share of the shorter of poll interval and shutdown grace that in-flight work may take
    deadline_headroom_ratio: float = 0.5
    max_poll_interval_seconds: float = 300.0
    shutdown_grace_seconds: float = 30.0
    #: a warm-up window is enough with this many records and this much handler time,
    #: or when ten times the seconds have passed by the clock
    warmup_messages: int = 2000
    warmup_seconds: float = 2.0
    remeasure_interval_seconds: float = 60.0
    commit_interval_seconds: float = 1.0
    #: time limit of one chunk, and of a record alone; None: half the poll interval
    handler_timeout_seconds: float | None = None
    #: a fixed budget in counted vertices
    fixed_vertices: int | None = None
    #: most vertices that a sizing may give
    cap_vertices: int | None = None
    #: most records finished above the committed end of one partition
    max_uncommitted_messages: int = 100_000
    #: attempts of a record that asks for a retry, the first included
    max_attempts: int = 5
    retry_backoff_seconds: float = 0.5
    retry_backoff_limit_seconds: float = 30.0
    #: predicted work and raw bytes of one chunk
    chunk_seconds: float = 0.06
    chunk_bytes: int = 2 * 1024 * 1024
    #: most records that one fetch asks for
    fetch_messages: int = 5000
    #: what the client's queue may hold (queued.max.messages.kbytes)
    client_queue_bytes: int = 8 * 1024 * 1024
    #: whether handler outputs are produced to a topic
    outputs: bool = False
