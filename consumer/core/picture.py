"""The picture: one frozen snapshot of the worker, put together from the parts of the core.

Owns which part each figure is read from. Decides nothing and changes nothing.
"""

from __future__ import annotations

from consumer.core.admission.pausing import PauseControl
from consumer.core.completion.ownership import Ownership
from consumer.core.completion.settlement import Settlement
from consumer.core.config import FlowConfig
from consumer.core.ledger.ledger import Ledger
from consumer.core.limits import Limits, Standing
from consumer.core.measuring.schedule import Measuring
from consumer.core.snapshot import OUTCOMES, Snapshot
from consumer.core.status import Status
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES
from sizing.report import SizingReport


def take_picture(
    *,
    ledger: Ledger,
    limits: Limits,
    standing: Standing,
    measuring: Measuring,
    most_admitted_ratio: float,
    joined: bool,
    ownership: Ownership,
    pauses: PauseControl,
    settlement: Settlement,
    status: Status,
) -> Snapshot:
    """Return one frozen picture."""
    charge, in_flight = ledger.value(), ledger.in_flight
    used_ratio = limits.bound_ratios(charge, standing)
    report, config = measuring.report, standing.config
    budget_vertices, budget_messages = _budget(report, config)
    bound_vertices = report.bound_vertices if report else {}
    now = status.now or 0.0
    ends = {partition: state.committed_end() for partition, state in ownership.states.items()}
    return Snapshot(
        at=now,
        state=status.state,
        state_cause=status.cause,
        state_seconds=dict(status.seconds),
        limits=limits,
        limits_shown={name: limits[name].shown(standing) for name in used_ratio},
        limited_by=status.limited_by,
        sizing=report,
        budget_vertices=budget_vertices,
        budget_messages=budget_messages,
        bound_vertices=bound_vertices,
        bound_messages=report.bound_messages if report else {},
        binding=report.binding if report else "",
        in_flight_messages=int(in_flight[RECORDS]),
        in_flight_vertices=int(in_flight[VERTICES]),
        in_flight_bytes=int(in_flight[PAYLOAD_BYTES]),
        held_bytes=charge.held_bytes,
        used_ratio=used_ratio,
        most_admitted_ratio=most_admitted_ratio,
        charged_vertices={
            name: used_ratio[name] * vertices
            for name, vertices in bound_vertices.items()
            if name in used_ratio
        },
        memory_available_bytes=standing.memory_available_bytes,
        drain_deadline_seconds=standing.drain_deadline_seconds,
        deadline_source=standing.deadline_source,
        drain_bound_seconds=charge.drain_bound_seconds,
        predicted_drain_seconds=charge.predicted_drain_seconds,
        assigned=tuple(ownership.states),
        paused=tuple(pauses.paused),
        pauses_total=pauses.pauses_total,
        resumes_total=pauses.resumes_total,
        paused_seconds_total=pauses.paused_seconds(now),
        messages_total={outcome: settlement.outcomes[outcome] for outcome in OUTCOMES},
        vertices_total=settlement.vertices_total,
        dead_letters_total=dict(settlement.dead_letters),
        sizings_total=dict(measuring.sizings),
        last_sizing_at=report.at if report else 0.0,
        committed_end={partition: end for partition, end in ends.items() if end is not None},
        processes_ready=sum(process.ready for process in ledger.processes),
        processes=len(ledger.processes),
        mode=str(config.mode),
        joined=joined,
    )


def _budget(report: SizingReport | None, config: FlowConfig) -> tuple[int, int]:
    """Return the budget in force in vertices and in messages; 0 where it is not known."""
    vertices = report.vertex_budget if report else 0
    messages = report.message_budget if report else 0
    fixed = config.fixed_vertices
    if fixed is None:
        return vertices, messages
    return fixed, max(1, messages * fixed // vertices) if vertices else messages
