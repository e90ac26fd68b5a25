"""Status: the worker's state with its cause in words, what limits it now, and its picture.

Owns the state names' meaning and the invariants of the whole core. Reads everything, changes
nothing but its own clocks. A stall is not backpressure: backpressure finishes work.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from consumer.core.commands import Command, Say
from consumer.core.config import Mode
from consumer.core.ledger import ProcessSlots
from consumer.core.snapshot import BOUNDS, OUTCOMES, STATES, Snapshot
from consumer.core.work import Piece, PieceState
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES

if TYPE_CHECKING:
    from consumer.core.flow import Flow

#: Nothing to do for this long is idle.
IDLE_AFTER_SECONDS = 1.0
#: Nothing finished for longer than the heaviest predicted record, this many times, and this.
STALL_FACTOR = 4.0
STALL_MARGIN_SECONDS = 5.0


class Status:
    """State, cause and picture of a ``Flow``."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.state = "idle"
        self.cause = "no record has arrived"
        self.limited_by = "none"
        self._seconds: Counter[str] = Counter(dict.fromkeys(STATES, 0.0))
        self._now: float | None = None
        self._said: tuple[str, str] | None = None
        self._looked_at = -np.inf
        self.waiting_for_instance_id = False

    def observe(self, now: float) -> None:
        """Account the time since the last step and look at the state again (20 times a second)."""
        if self._now is not None:
            self._seconds[self.state] += max(0.0, now - self._now)  # type: ignore[assignment]
        self._now = now
        if now - self._looked_at >= 0.05 or self._flow.stopping:
            self._looked_at = now
            self.state, self.cause = self._find_state(now)
            self.limited_by = self._find_limit()

    def say(self) -> list[Command]:
        """Return one log line when the state has changed."""
        if self._said is not None and self._said[0] == self.state:
            return []
        self._said = (self.state, self.cause)
        return [Say("info", f"{self.state}: {self.cause}", {"state": self.state})]

    # -- the state ---------------------------------------------------------------------------

    def _find_state(self, now: float) -> tuple[str, str]:
        flow = self._flow
        ledger = flow.ledger
        held = int(ledger.in_flight[RECORDS])
        if flow.stopping:
            return "draining", f"finishing {held:,} records before leaving"
        if self.waiting_for_instance_id:
            return "waiting-for-instance-id", "the broker still holds this member's old instance"
        if ledger.empty and not ledger.pending_bytes:
            if flow.last_fetched_at is None:
                return "idle", "no record has arrived"
            last = max(flow.last_fetched_at, flow.settlement.last_finished_at)
            if now - last >= IDLE_AFTER_SECONDS:
                return "idle", f"nothing to do since {now - last:.0f} s"
        stalled = self._find_stall(now)
        if stalled:
            return "stalled", stalled
        retrying = int(ledger.totals[PieceState.RETRYING][RECORDS])
        if held and retrying == held:
            return "waiting-on-retries", f"all {held:,} records in flight wait for a retry"
        if not flow.measuring.sized and flow.config.fixed_vertices is None:
            return "warming-up", f"measuring live traffic, {held:,} records in flight"
        if self._refuser():
            return "backpressured", self._why_full()
        return "running", f"{held:,} records in flight"

    def _find_stall(self, now: float) -> str:
        flow = self._flow
        ledger = flow.ledger
        working = [p for p in ledger.processes if p.chunks]
        if not working:
            waiting = int(ledger.waiting[RECORDS])
            ready = sum(p.ready for p in ledger.processes)
            since = max(flow.settlement.last_finished_at, flow.last_fetched_at or now)
            if waiting and not ready and now - since > STALL_MARGIN_SECONDS:
                return f"no handler process is ready and {waiting:,} records wait"
            return ""
        began = max(p.chunks[0].started_at for p in working)
        since = max(flow.settlement.last_finished_at, began)
        longest = max(p.chunks[0].predicted_seconds for p in working)
        if now - since <= STALL_FACTOR * longest + STALL_MARGIN_SECONDS:
            return ""
        return f"nothing has finished for {now - since:.0f} s: {_inside(ledger.processes)}"

    def _refuser(self) -> str:
        """Return what keeps the next record out, or did until the way down is gone."""
        pauses = self._flow.pauses
        return pauses.refuser or self._flow.admission.refused_by or pauses.full_by

    def _why_full(self) -> str:
        flow = self._flow
        refuser = self._refuser()
        if refuser == "delivery":
            return "the broker refuses what has to be produced"
        inside = _inside(flow.ledger.processes)
        words = {
            "memory": "the memory bound is reached",
            "deadline": "the deadline bound is reached",
            "fixed": "the fixed budget is reached",
            "cap": "the cap is reached",
            "initial": "the small budget before the first sizing is reached",
        }
        return f"{words.get(refuser, 'no room')}; {inside}"

    def _find_limit(self) -> str:
        flow = self._flow
        if flow.config.mode is Mode.SHADOW and not flow.admission.refused_by:
            return "none"
        refuser = self._refuser()
        if refuser in {"memory", "deadline"} and flow.measuring.ramp_holds:
            return "ramp"
        if refuser in {"memory", "deadline", "cap", "fixed", "initial"}:
            return refuser
        ledger = flow.ledger
        idle = any(p.ready and not p.chunks for p in ledger.processes)
        busy = any(p.chunks for p in ledger.processes)
        if flow.admission.held_back or (
            idle and busy and int(ledger.waiting[RECORDS]) and not flow.dispatcher.ready_chains
        ):
            return "ordering"
        return "none"

    # -- the picture -------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return one frozen picture."""
        flow = self._flow
        ledger = flow.ledger
        charge = ledger.value()
        in_flight = ledger.in_flight
        verdict = flow.admission.judge(flow.gate())
        now = self._now or 0.0
        report = flow.measuring.report
        deadline = flow.limits.drain_deadline_seconds
        ratios = {
            "memory": verdict.ratio("memory"),
            "deadline": charge.drain_bound_seconds / deadline if deadline else 0.0,
        }
        bound_vertices = dict.fromkeys(BOUNDS, 0)
        bound_messages = dict.fromkeys(BOUNDS, 0)
        if report is not None:
            bound_vertices = {
                "memory": report.memory_bound_vertices,
                "deadline": report.deadline_bound_vertices,
            }
            bound_messages = {
                "memory": report.memory_bound_messages,
                "deadline": report.deadline_bound_messages,
            }
        budget_vertices = report.vertex_budget if report else 0
        budget_messages = report.message_budget if report else 0
        if flow.config.fixed_vertices is not None:
            if budget_vertices:
                budget_messages = max(
                    1, budget_messages * flow.config.fixed_vertices // budget_vertices
                )
            budget_vertices = flow.config.fixed_vertices
        return Snapshot(
            at=now,
            state=self.state,
            state_cause=self.cause,
            state_seconds={state: float(self._seconds[state]) for state in STATES},
            limited_by=self.limited_by,
            sizing=report,
            budget_vertices=budget_vertices,
            budget_messages=budget_messages,
            bound_vertices=bound_vertices,
            bound_messages=bound_messages,
            binding=report.binding if report else "",
            in_flight_messages=int(in_flight[RECORDS]),
            in_flight_vertices=int(in_flight[VERTICES]),
            in_flight_bytes=int(in_flight[PAYLOAD_BYTES]),
            used_ratio=ratios,
            most_admitted_ratio=flow.most_admitted_ratio,
            charged_vertices={b: ratios[b] * bound_vertices[b] for b in BOUNDS},
            memory_available_bytes=flow.limits.memory_available_bytes,
            drain_deadline_seconds=deadline,
            deadline_source=flow.limits.deadline_source,
            drain_bound_seconds=charge.drain_bound_seconds,
            predicted_drain_seconds=charge.predicted_drain_seconds,
            assigned=tuple(flow.ownership.states),
            paused=tuple(flow.pauses.paused),
            pauses_total=flow.pauses.pauses_total,
            resumes_total=flow.pauses.resumes_total,
            paused_seconds_total=flow.pauses.paused_seconds(now),
            messages_total={o: flow.settlement.outcomes[o] for o in OUTCOMES},
            vertices_total=flow.settlement.vertices_total,
            dead_letters_total=dict(flow.settlement.dead_letters),
            sizings_total=dict(flow.measuring.sizings),
            last_sizing_at=report.at if report else 0.0,
            committed_end={
                p: end
                for p, s in flow.ownership.states.items()
                if (end := s.committed_end()) is not None
            },
            processes_ready=sum(p.ready for p in ledger.processes),
            processes=len(ledger.processes),
            mode=str(flow.config.mode),
        )

    # -- invariants --------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``AssertionError`` where the sums do not agree with the pieces that are held."""
        flow = self._flow
        totals = np.zeros_like(flow.ledger.totals)
        pieces: set[Piece] = set()
        for state in flow.ownership.states.values():
            for run in state.runs:
                pieces |= run.unfinished.keys()
        for process in flow.ledger.processes:
            for chunk in process.chunks:
                pieces |= set(chunk.pieces)
        for piece in pieces:
            totals[piece.state] += piece.load
        assert np.array_equal(totals, flow.ledger.totals), "the ledger differs from what is held"
        pending = sum(
            int(flow.ledger.model.held_bytes(run.load))
            for state in flow.ownership.states.values()
            for run in state.pending
        )
        assert pending == flow.ledger.pending_bytes, "pending bytes differ from what is fetched"


def _inside(processes: list[ProcessSlots]) -> str:
    """Say what the processes work on."""
    working = [p for p in processes if p.chunks]
    heavy = [p.chunks[0] for p in working if p.chunks[0].heavy]
    if heavy:
        most = max(int(chunk.load[VERTICES]) for chunk in heavy)
        return (
            f"{len(heavy)} of {len(processes)} processes are inside one record of up to"
            f" {most:,} vertices"
        )
    records = sum(int(c.load[RECORDS]) for p in working for c in p.chunks)
    return f"{len(working)} of {len(processes)} processes work on {records:,} records"
