"""The sizing report: every number of one sizing, and the sample that it came from.

Owns the report's fields and its one-line rendering; computes nothing. Anyone can read the very
same window of traffic again from ``sample``.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Partitions that the one-line rendering names.
WINDOWS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """The part of the sample that came from one partition."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.first_offset}-{self.last_offset}"


@dataclass(frozen=True, slots=True)
class ClassFigure:
    """What the sample and the measurement say of one size class."""

    #: least size of the class, in units (larger of vertices and payload bytes / 64)
    from_units: int
    #: records of this class in the sample, and their size
    messages: int
    units: int
    seconds_per_unit: float
    #: spread of the observations: (90th - 10th percentile) / median, 0 when unknown
    seconds_spread_ratio: float
    working_bytes_per_unit: float
    #: chunks behind the rate (parts add up); below 4 the rate is the prior
    observations: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The window of traffic that a sizing speaks of."""

    messages: int
    #: counted vertices: an upper count over the raw bytes
    vertices: int
    payload_bytes: int
    #: exact vertices of what was decoded / counted vertices
    exact_ratio: float
    #: seconds of handler time in the window
    handler_seconds: float
    #: processor seconds / wall seconds of the handler: well below 1 means that it waits
    cpu_ratio: float
    #: wall clock, seconds since 1970
    first_at: float
    last_at: float
    windows: tuple[SampleWindow, ...]
    classes: tuple[ClassFigure, ...]


@dataclass(frozen=True, slots=True)
class SizingReport:
    """One sizing: both bounds, the budget, what binds, and why."""

    #: why now: "warm-up", "interval", "mix-drift", "new-class", "prediction-failed",
    #: "memory-limit", "processes"
    reason: str
    at: float
    #: the budget in force (0 and "initial" until there is a size)
    vertex_budget: int
    message_budget: int
    memory_bound_vertices: int
    deadline_bound_vertices: int
    memory_bound_messages: int
    deadline_bound_messages: int
    #: "memory" or "deadline": the smaller bound
    binding: str
    bytes_per_vertex: float
    bytes_per_message: float
    seconds_per_vertex: float
    seconds_per_message: float
    vertices_per_second: float
    parent_seconds_per_message: float
    memory_available_bytes: int
    drain_deadline_seconds: float
    #: "max.poll.interval" or "shutdown-grace"
    deadline_source: str
    processes: int
    effective_processes: float
    #: share of the sample's seconds in its largest chain
    largest_chain_ratio: float
    #: the article's stricter figure: everything in flight decoded at once
    all_decoded_bound_vertices: int
    sample: Sample
    #: in words: what the sample could not tell, what holds the budget down
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the sizing in one line for the log.

        Partitions beyond the first four are counted; all are in ``sample``.
        """
        binds = "memory binds" if self.binding == "memory" else "the deadline binds"
        shown = [str(window) for window in self.sample.windows[:WINDOWS_SHOWN]]
        more = len(self.sample.windows) - len(shown)
        where = ", ".join(shown) + (f" and {more} more" if more else "")
        return (
            f"sized ({self.reason}): budget {self.vertex_budget:,} vertices"
            f" / {self.message_budget:,} messages, {binds}"
            f" (memory {self.memory_bound_vertices:,}, deadline {self.deadline_bound_vertices:,})"
            f"; sample {self.sample.messages:,} messages, {self.sample.vertices:,} vertices"
            + (f" of {where}" if where else "")
        )
