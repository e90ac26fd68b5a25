"""The table of metrics: name, kind, labels, help, and how to read each from a snapshot.

Feeds the collector, the documentation and the tests. Names never change their meaning; no label
takes a value that traffic could multiply. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from consumer.core.limits import NONE
from consumer.core.snapshot import OUTCOMES, Snapshot
from consumer.core.status import STATE_NAMES
from consumer.version import worker_version
from sizing.report import SizingReport

PREFIX = "vertex_budget_"
DEADLINE_SOURCES = ("max.poll.interval", "shutdown-grace")
#: Label values, in the order of the label names, and the value.
Sample: TypeAlias = tuple[tuple[str, ...], float]
Read: TypeAlias = Callable[[Snapshot], Iterable[Sample]]


class Kind(StrEnum):
    """How Prometheus treats a value."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row of the table."""

    #: without the prefix; a counter's ends in ``_total``
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    read: Read

    @property
    def full_name(self) -> str:
        """The name that is scraped."""
        return PREFIX + self.name


class _Value(Protocol):
    def __call__(self, snapshot: Snapshot, /) -> float: ...


def _one(value: _Value) -> Read:
    return lambda snapshot: [((), value(snapshot))]


def _sized(value: Callable[[SizingReport], float]) -> Read:
    """Absent until there is a sizing: a zero would be a measurement."""
    return lambda s: [] if s.sizing is None else [((), value(s.sizing))]


def _by(
    mapping: Callable[[Snapshot], Mapping[str, float]], labels: tuple[str, ...] | None = None
) -> Read:
    """One sample a label value: those named, present or not, or those that there are."""

    def read(snapshot: Snapshot) -> Iterable[Sample]:
        values = mapping(snapshot)
        return [((label,), values.get(label, 0)) for label in labels or sorted(values)]

    return read


def _one_hot(
    chosen: Callable[[Snapshot], str], labels: Callable[[Snapshot], Iterable[str]]
) -> Read:
    return lambda s: [((label,), float(label == chosen(s))) for label in labels(s)]


def _causes(snapshot: Snapshot) -> list[str]:
    """Every limit, but for bounds that are not set."""
    unset = {row.name for row in snapshot.limits.bounds} - snapshot.used_ratio.keys()
    return [NONE, *(name for name in snapshot.limits.names if name not in unset)]


def _lag(snapshot: Snapshot) -> Iterable[Sample]:
    """Of what is assigned now alone: a partition that went has another owner to speak for it."""
    lag = snapshot.lag_messages
    return [((p[0], str(p[1])), lag[p]) for p in sorted(snapshot.assigned) if p in lag]


def _gauge(name: str, help_text: str, read: Read, *labels: str) -> MetricRow:
    return MetricRow(name, Kind.GAUGE, help_text, labels, read)


def _counter(name: str, help_text: str, read: Read, *labels: str) -> MetricRow:
    return MetricRow(name, Kind.COUNTER, help_text, labels, read)


METRICS: tuple[MetricRow, ...] = (
    _gauge(
        "vertices",
        "The budget in force, in vertices of the sample's mix.",
        _one(lambda s: s.budget_vertices),
    ),
    _gauge(
        "messages",
        "The budget in force, in messages of the sample's mix: the same limit in another unit.",
        _one(lambda s: s.budget_messages),
    ),
    _gauge(
        "bound_vertices",
        "Most vertices of the sample's mix that each bound lets in.",
        _by(lambda s: s.bound_vertices),
        "bound",
    ),
    _gauge(
        "bound_messages",
        "Most messages of the sample's mix that each bound lets in.",
        _by(lambda s: s.bound_messages),
        "bound",
    ),
    _gauge(
        "binding",
        "1 for the smallest bound, 0 for every other.",
        _one_hot(lambda s: s.binding, lambda s: s.used_ratio),
        "bound",
    ),
    _gauge(
        "limited_by",
        "1 for what limits the work in flight now, 0 for every other cause.",
        _one_hot(lambda s: s.limited_by, _causes),
        "cause",
    ),
    _gauge(
        "in_flight_vertices",
        "Counted vertices in flight.",
        _one(lambda s: s.in_flight_vertices),
    ),
    _gauge("in_flight_messages", "Messages in flight.", _one(lambda s: s.in_flight_messages)),
    _gauge(
        "in_flight_bytes",
        "Bytes of value, key and headers in flight.",
        _one(lambda s: s.in_flight_bytes),
    ),
    _gauge(
        "charged_vertices",
        "Used ratio of each bound times the bound: compare with vertices.",
        _by(lambda s: s.charged_vertices),
        "bound",
    ),
    _gauge(
        "used_ratio",
        "What is used of each bound's own limit, 1 when full.",
        _by(lambda s: s.used_ratio),
        "bound",
    ),
    _gauge(
        "most_admitted_ratio",
        "Largest used ratio right after messages were let in, since the start; at most 1.",
        _one(lambda s: s.most_admitted_ratio),
    ),
    _gauge(
        "bytes_per_vertex",
        "Working bytes of one more vertex, fitted across size classes at the last sizing.",
        _sized(lambda r: r.bytes_per_vertex),
    ),
    _gauge(
        "bytes_per_message",
        "Working bytes of one more message, fitted across size classes at the last sizing.",
        _sized(lambda r: r.bytes_per_message),
    ),
    _gauge(
        "seconds_per_vertex",
        "Handler seconds of one more vertex, fitted across size classes at the last sizing.",
        _sized(lambda r: r.seconds_per_vertex),
    ),
    _gauge(
        "seconds_per_message",
        "Handler seconds of one more message, fitted across size classes at the last sizing.",
        _sized(lambda r: r.seconds_per_message),
    ),
    _gauge(
        "vertices_per_second",
        "Vertices that all processes together handle in a second, at the last sizing.",
        _sized(lambda r: r.vertices_per_second),
    ),
    _gauge(
        "memory_available_bytes",
        "Memory that work in flight may use: limit times headroom, less baseline and prefetch.",
        _one(lambda s: s.memory_available_bytes),
    ),
    _gauge(
        "drain_deadline_seconds",
        "Time in which everything in flight must be finished.",
        _one(lambda s: s.drain_deadline_seconds),
    ),
    _gauge(
        "deadline_source",
        "1 for what the drain deadline comes from, 0 for the other.",
        _one_hot(lambda s: s.deadline_source, lambda _: DEADLINE_SOURCES),
        "source",
    ),
    _gauge(
        "drain_bound_seconds",
        "Most seconds that everything in flight can take, given its predicted costs.",
        _one(lambda s: s.drain_bound_seconds),
    ),
    _gauge(
        "predicted_drain_seconds",
        "Seconds that everything in flight is predicted to take.",
        _one(lambda s: s.predicted_drain_seconds),
    ),
    _gauge(
        "partitions",
        "Partitions that are assigned, and those of them that are paused.",
        lambda s: [(("assigned",), len(s.assigned)), (("paused",), len(s.paused))],
        "condition",
    ),
    _counter("pauses_total", "Times that fetching was paused.", _one(lambda s: s.pauses_total)),
    _counter("resumes_total", "Times that fetching was resumed.", _one(lambda s: s.resumes_total)),
    _counter(
        "paused_seconds_total",
        "Seconds in which fetching was paused.",
        _one(lambda s: s.paused_seconds_total),
    ),
    _gauge(
        "state",
        "1 for the worker's state, 0 for every other.",
        _one_hot(lambda s: s.state, lambda _: STATE_NAMES),
        "state",
    ),
    _counter(
        "state_seconds_total",
        "Seconds spent in each state.",
        _by(lambda s: s.state_seconds, STATE_NAMES),
        "state",
    ),
    _counter(
        "messages_total",
        "Messages settled, and attempts that failed, by outcome.",
        _by(lambda s: s.messages_total, OUTCOMES),
        "outcome",
    ),
    _counter(
        "vertices_total", "Counted vertices of settled messages.", _one(lambda s: s.vertices_total)
    ),
    _counter(
        "dead_letters_total",
        "Dead letters that the broker has acknowledged, by reason.",
        _by(lambda s: s.dead_letters_total),
        "reason",
    ),
    _counter(
        "sizings_total",
        "Sizings published, by what asked for them.",
        _by(lambda s: s.sizings_total),
        "reason",
    ),
    _gauge(
        "last_sizing_timestamp_seconds",
        "When the last sizing was published, in seconds since 1970; 0 before the first.",
        _one(lambda s: s.last_sizing_at),
    ),
    _gauge(
        "sample_messages",
        "Messages in the sample of the last sizing.",
        _sized(lambda r: r.sample.messages),
    ),
    _gauge(
        "sample_vertices",
        "Counted vertices in the sample of the last sizing.",
        _sized(lambda r: r.sample.vertices),
    ),
    _gauge(
        "lag_messages",
        "Messages between what is done and the end of the partition; true while paused.",
        _lag,
        "topic",
        "partition",
    ),
    _gauge(
        "lag_seconds",
        "Estimated seconds to work off the lag of all assigned partitions.",
        _one(lambda s: s.lag_seconds),
    ),
    _gauge(
        "handler_processes",
        "Handler processes that have opened their handler.",
        _one(lambda s: s.processes_ready),
    ),
    _gauge(
        "pool_peak_ratio",
        "Peak memory of the worker and its processes over the limit, in the last period.",
        _one(lambda s: s.pool_peak_ratio),
    ),
    _gauge(
        "build_info",
        "Always 1; the label says which version runs.",
        lambda _: [((worker_version(),), 1)],
        "version",
    ),
)


def metrics_table_markdown() -> str:
    """Return the table as Markdown, for the documentation."""
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for row in METRICS:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.full_name}` | {row.kind} | {labels} | {row.help} |")
    return "\n".join(lines) + "\n"
