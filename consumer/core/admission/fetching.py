"""Fetching: how many records to ask for next, and how full the window is.

Owns the size of a fetch. A call for records returns what the client's queue has, whatever its
bytes, so the number is small where the room is.

Rules: no call while something fetched waits for room; at least 1 where there is any; with nothing
held but retries one record is fetched regardless. While everything is paused the call only serves
the client's callbacks. A waiting call gathers one record, and is made only when the one before
brought nothing and nothing is held.
"""

from __future__ import annotations

from consumer.core.admission.admission import ADMISSION_QUANTUM_RATIO, Admission
from consumer.core.commands import Fetch
from consumer.core.config import FlowConfig
from consumer.core.ledger.columns import FetchedRun
from consumer.core.ledger.in_flight import PieceState
from consumer.core.ledger.ledger import Ledger
from consumer.core.limits import Verdict
from sizing.charge import Charge
from sizing.load import RECORDS
from sizing.report import SizingReport

#: Waiting for the first of new records; a chunk's results are waited for elsewhere.
IDLE_WAIT_SECONDS = 0.1
#: The same while everything is paused and nothing is held.
PAUSED_WAIT_SECONDS = 0.02
#: Longest wait for a result before the client is asked for records again.
RESULT_WAIT_SECONDS = 0.005
#: The same while there is no room for records: only callbacks and time are waited for.
FULL_RESULT_WAIT_SECONDS = 0.02
#: What is fetched and waits for room may hold, of the memory.
PENDING_MEMORY_RATIO = 0.1
#: The largest record of the recent past is forgotten after this.
RECENT_RECORD_SECONDS = 30.0
#: A fetch asks for a little more than is predicted to fit; the rest waits, raw.
OVER_ASK_FACTOR = 1.2
#: Records of a window before anything is known.
FIRST_WINDOW_MESSAGES = 100.0


class FetchPlan:
    """Finds the next fetch."""

    def __init__(self, ledger: Ledger, admission: Admission, config: FlowConfig) -> None:
        self._ledger = ledger
        self._admission = admission
        self._config = config
        self._largest_bytes = 0
        self._largest_at = 0.0
        #: the last fetch has brought nothing (yet)
        self._unanswered = True

    def note(self, fetched: FetchedRun, now: float) -> None:
        """Remember what a fetch has brought."""
        self._unanswered = False
        largest = int(fetched.columns.payload_bytes.max())
        if largest >= self._largest_bytes or now - self._largest_at > RECENT_RECORD_SECONDS:
            self._largest_bytes = largest
            self._largest_at = now

    def fullest(self, verdict: Verdict) -> tuple[str, float]:
        """Return what makes the window full, and how full; empty when it is not."""
        refuser = self._admission.refused_by
        if refuser:
            return refuser, min(verdict.ratio(refuser), 1.0)
        cause, ratio = max(verdict.ratios.items(), key=lambda item: item[1])
        if ratio > ADMISSION_QUANTUM_RATIO and not self._ledger.empty:
            return cause, min(ratio, 1.0)
        return "", ratio

    def next(
        self,
        verdict: Verdict,
        charge: Charge,
        report: SizingReport | None,
        *,
        serve_only: bool,
    ) -> Fetch | None:
        """Return the next call for records; None while there is no room for a moment.

        Parameters
        ----------
        verdict, charge : Verdict, Charge
            Of what is in flight.
        report : SizingReport or None
            The last sizing.
        serve_only : bool
            Records are not wanted (paused, or stopping).
        """
        ledger = self._ledger
        empty = ledger.empty and not ledger.pending_bytes
        came_back_empty, self._unanswered = self._unanswered, True
        if serve_only:
            return Fetch(1, PAUSED_WAIT_SECONDS if empty else 0.0)
        if empty and (came_back_empty or not ledger.available_bytes):
            return Fetch(1, IDLE_WAIT_SECONDS)
        if self.fullest(verdict)[0] or self._admission.waits_for_room:
            return None
        room = ledger.available_bytes - charge.room_bytes - charge.held_bytes
        pending_room = PENDING_MEMORY_RATIO * ledger.available_bytes - ledger.pending_bytes
        largest = max(1, self._largest_bytes)
        if largest > max(room, pending_room) and not self._nothing_but_retries():
            return None
        # What one fetch costs the parent is time in which no process gets a chunk.
        parent_seconds = ledger.model.parent_seconds_per_message
        most = min(self._config.fetch_messages, int(ledger.chunk_seconds / parent_seconds))
        if room < self._config.client_queue_bytes:
            most = min(most, int(max(room, 0.0) / largest))
        return Fetch(max(1, min(most, self._messages_left(verdict, report))), 0.0)

    def result_wait_seconds(self, *, has_room: bool) -> float:
        """Return how long each turn may wait for results: not at all where none can come."""
        if self._ledger.empty:
            return 0.0
        return RESULT_WAIT_SECONDS if has_room else FULL_RESULT_WAIT_SECONDS

    def _nothing_but_retries(self) -> bool:
        totals = self._ledger.totals
        return not (totals[PieceState.WAITING][RECORDS] or totals[PieceState.INSIDE][RECORDS])

    def _messages_left(self, verdict: Verdict, report: SizingReport | None) -> int:
        """Estimate how many records of the recent mix fill what is free."""
        ratio = max(verdict.ratios.values())
        messages = int(self._ledger.in_flight[RECORDS])
        whole = FIRST_WINDOW_MESSAGES
        if report is not None:
            whole = float(max(report.message_budget, messages))
        elif messages and ratio > 0:
            whole = messages / ratio
        return max(1, int(OVER_ASK_FACTOR * whole * max(0.0, 1.0 - ratio)))
