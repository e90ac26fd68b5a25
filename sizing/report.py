"""The sizing report: every number of one sizing, and the sample that it came from.

Owns the report's fields and its one-line rendering; computes nothing. Anyone can read the very
same window of traffic again from ``sample``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

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
class BoundFigure:
    """What one bound lets in of the sample's mix."""

    name: str
    vertices: int
    messages: int
    #: in words, for when it is the smallest: "memory binds"
    binds: str


@dataclass(frozen=True, slots=True)
class SizingReport:
    """One sizing: every bound, the budget, what binds, and why."""

    #: why now, as a code
    reason: str
    #: wall clock, seconds since 1970
    at: float
    #: the smallest bound, under a cap if there is one
    vertex_budget: int
    message_budget: int
    #: every bound that is set
    bounds: tuple[BoundFigure, ...]
    #: name of the smallest bound
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

    @property
    def bound_vertices(self) -> dict[str, int]:
        """Most vertices of the sample's mix that each bound lets in."""
        return {bound.name: bound.vertices for bound in self.bounds}

    @property
    def bound_messages(self) -> dict[str, int]:
        """Most messages of the sample's mix that each bound lets in."""
        return {bound.name: bound.messages for bound in self.bounds}

    def line(self) -> str:
        """Return the sizing in one line for the log.

        Partitions beyond the first four are counted; all are in ``sample``.
        """
        binds = next(bound.binds for bound in self.bounds if bound.name == self.binding)
        bounds = ", ".join(f"{bound.name} {bound.vertices:,}" for bound in self.bounds)
        shown = [str(window) for window in self.sample.windows[:WINDOWS_SHOWN]]
        more = len(self.sample.windows) - len(shown)
        where = ", ".join(shown) + (f" and {more} more" if more else "")
        return (
            f"sized ({self.reason}): budget {self.vertex_budget:,} vertices"
            f" / {self.message_budget:,} messages, {binds} ({bounds})"
            f"; sample {self.sample.messages:,} messages, {self.sample.vertices:,} vertices"
            + (f" of {where}" if where else "")
        )

    def as_data(self) -> dict[str, Any]:
        """Return every number by its name, as plain data; each bound has names of its own."""
        data = asdict(self)
        del data["bounds"]
        for bound in self.bounds:
            data[f"{bound.name}_bound_vertices"] = bound.vertices
            data[f"{bound.name}_bound_messages"] = bound.messages
        return data
