"""What the worker's numbers are and where they come from, for ``/budget``.

Owns the words: unit and formula of each number beside its value. Reads one snapshot, returns plain
data. How it is served is the HTTP server's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consumer.core.limits import Kind
from consumer.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Figure:
    """One number (or one by bound) with its unit and formula."""

    name: str
    unit: str
    formula: str
    read: Callable[[Snapshot], Any]


FIGURES: tuple[Figure, ...] = (
    Figure(
        "vertex_budget",
        "vertices of the sample's mix",
        "the smallest bound, under a cap if one is set;"
        " a fixed budget replaces it; a small initial budget holds until there is a sizing",
        lambda s: s.budget_vertices,
    ),
    Figure(
        "message_budget",
        "messages of the sample's mix",
        "the same limit in another unit: vertex_budget / vertices per message of the sample",
        lambda s: s.budget_messages,
    ),
    Figure(
        "bound_vertices",
        "vertices of the sample's mix",
        "messages of the sample's mix whose used_ratio is at most 1, times its vertices a message",
        lambda s: dict(s.bound_vertices),
    ),
    Figure(
        "bound_messages",
        "messages of the sample's mix",
        "bound_vertices / vertices per message of the sample",
        lambda s: dict(s.bound_messages),
    ),
    Figure(
        "used_ratio",
        "1",
        "what is used of each bound's own limit: the formula is with the bound, under limits",
        lambda s: dict(s.used_ratio),
    ),
    Figure(
        "most_admitted_ratio",
        "1",
        "the largest used_ratio that there was when records had just been let in, since the start;"
        " a record that runs alone is left out",
        lambda s: s.most_admitted_ratio,
    ),
    Figure(
        "charged_vertices",
        "vertices of the sample's mix",
        "used_ratio * bound_vertices, by bound",
        lambda s: dict(s.charged_vertices),
    ),
    Figure(
        "in_flight_vertices",
        "counted vertices",
        "a plain count over the raw bytes of what is in flight, never too low",
        lambda s: s.in_flight_vertices,
    ),
    Figure(
        "in_flight_messages",
        "messages",
        "a plain count of what is admitted and not released",
        lambda s: s.in_flight_messages,
    ),
    Figure(
        "in_flight_bytes",
        "bytes",
        "value, key and headers of what is in flight",
        lambda s: s.in_flight_bytes,
    ),
    Figure(
        "memory_available_bytes",
        "bytes",
        "memory limit * memory_headroom - baseline of the parent and the processes"
        " - what the Kafka client may prefetch",
        lambda s: s.memory_available_bytes,
    ),
    Figure(
        "drain_deadline_seconds",
        "seconds",
        "deadline_headroom * the smaller of max.poll.interval.ms and shutdown_grace_seconds",
        lambda s: s.drain_deadline_seconds,
    ),
    Figure(
        "drain_bound_seconds",
        "seconds",
        "used_seconds: messages * parent seconds per message + sum of seconds / P_eff"
        " + (1 - 1 / P_eff) * longest chain + two chunk times (Graham's bound)",
        lambda s: s.drain_bound_seconds,
    ),
    Figure(
        "predicted_drain_seconds",
        "seconds",
        "the largest of messages * parent seconds per message, sum of seconds / P_eff,"
        " and the longest chain",
        lambda s: s.predicted_drain_seconds,
    ),
    Figure(
        "lag_messages",
        "messages",
        "end of the log - committed end, summed over the assigned partitions",
        lambda s: sum(s.lag_messages.get(partition, 0) for partition in s.assigned),
    ),
    Figure(
        "lag_seconds",
        "seconds",
        "estimated time to work off the lag at the rate of now",
        lambda s: s.lag_seconds,
    ),
    Figure(
        "pool_peak_ratio",
        "1",
        "peak memory of the worker and its processes / memory limit, in the last period",
        lambda s: s.pool_peak_ratio,
    ),
)


def explained(snapshot: Snapshot) -> dict[str, Any]:
    """Return everything that ``/budget`` says, as plain data.

    ``figures`` holds each number with its unit and formula; ``sizing`` the whole report of the
    last sizing with its sample (None before the first).
    """
    return {
        "state": snapshot.state,
        "state_cause": snapshot.state_cause,
        "state_seconds": dict(snapshot.state_seconds),
        "mode": snapshot.mode,
        "limited_by": snapshot.limited_by,
        "binding": snapshot.binding or None,
        "limits": [
            {
                "name": row.name,
                "kind": row.kind,
                "limit": snapshot.limits_shown.get(row.name) or None,
                "formula": row.formula or None,
                "when_binding": row.binds,
                "meaning": row.meaning,
                "what_to_do": row.advice,
            }
            for row in snapshot.limits
            if row.kind is not Kind.BOUND or row.name in snapshot.used_ratio
        ],
        "deadline_source": snapshot.deadline_source,
        "figures": {
            figure.name: {
                "value": figure.read(snapshot),
                "unit": figure.unit,
                "formula": figure.formula,
            }
            for figure in FIGURES
        },
        "sizing": None if snapshot.sizing is None else snapshot.sizing.as_data(),
        "last_sizing_at": snapshot.last_sizing_at,
        "processes": {"wanted": snapshot.processes, "ready": snapshot.processes_ready},
        "partitions": [
            {
                "topic": partition[0],
                "partition": partition[1],
                "paused": partition in snapshot.paused,
                "committed_end": snapshot.committed_end.get(partition),
                "lag_messages": snapshot.lag_messages.get(partition),
            }
            for partition in sorted(snapshot.assigned)
        ],
        "totals": {
            "messages": dict(snapshot.messages_total),
            "vertices": snapshot.vertices_total,
            "dead_letters": dict(snapshot.dead_letters_total),
            "sizings": dict(snapshot.sizings_total),
            "pauses": snapshot.pauses_total,
            "resumes": snapshot.resumes_total,
            "paused_seconds": snapshot.paused_seconds_total,
        },
    }
