"""Admission: which fetched records may be charged, and why the next one may not.

Owns which partitions have fetched runs and the two inequalities at the door. A run that does not
fit is cut: the longest prefix that fits is admitted, the rest waits as fetched-not-admitted. Every
admission is checked exactly, on the very charge that follows it. What admitting does to the
records is ``pieces``'.

Rules: with nothing held that is not waiting for a retry, one record is admitted whatever it
costs. A head refused for want of room for a second closes admission for everyone until it fits,
or until its partition is paused for a reason of its own. Those are ``own_pauses``'.
"""

from __future__ import annotations

from consumer.core.admission.costs import RunCosts
from consumer.core.admission.own_pauses import find_own_reasons
from consumer.core.config import Ordering
from consumer.core.ledger.columns import FetchedRun, Partition
from consumer.core.ledger.counts import heaviest_costs, heaviest_units
from consumer.core.ledger.in_flight import PartitionState, PendingRun, PieceState, Run
from consumer.core.ledger.ledger import Candidate, Ledger
from consumer.core.ledger.pieces import Pieces, pending_run
from consumer.core.limits import Limits, Standing, Verdict
from sizing.load import RECORDS, sum_loads

#: A head refused for this long closes admission for everyone.
CLOSES_AFTER_SECONDS = 1.0
#: A refused head is tried again when the limit that refused it is at most this full.
ADMISSION_QUANTUM_RATIO = 0.95


class Admission:
    """The queue of fetched runs and the door to the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        limits: Limits,
        standing: Standing,
        *,
        ordering: Ordering,
        shard_count: int,
        max_uncommitted_messages: int,
    ) -> None:
        self._ledger = ledger
        self._pieces = Pieces(ledger)
        self._limits = limits
        self._standing = standing
        self._max_uncommitted_messages = max_uncommitted_messages
        self._with_pending: dict[Partition, PartitionState] = {}
        #: partitions that are paused for a reason of their own
        self.held_back: dict[Partition, PartitionState] = {}
        self._ordering = ordering
        self._shard_count = shard_count
        self._sequence = 0
        #: what refused the head last; empty when nothing is refused
        self.refused_by = ""
        self.refused_since: float | None = None
        #: when records were admitted last
        self.admitted_at = 0.0
        #: partition whose head closed admission for the others
        self.closed_for: PartitionState | None = None

    # -- what was fetched --------------------------------------------------------------------

    def queue(self, state: PartitionState, fetched: FetchedRun) -> None:
        """Count a fetched run and put it behind what waits already."""
        self._sequence += 1
        run = pending_run(
            fetched,
            sequence=self._sequence,
            shard_count=self._shard_count,
            ordering=self._ordering,
        )
        self._pieces.queue(state, run)
        self._with_pending[state.partition] = state

    def drop_pending(self, state: PartitionState) -> None:
        """Forget what a partition has fetched and not admitted."""
        self._pieces.drop_pending(state)
        self._with_pending.pop(state.partition, None)
        self.held_back.pop(state.partition, None)
        if self.closed_for is state:
            self.closed_for = None

    # -- the door ----------------------------------------------------------------------------

    def admit(self, now: float) -> list[Run]:
        """Admit what fits, oldest fetch first.

        What was refused is tried again only when a twentieth of the limit is free: otherwise
        every finished chunk admits a sliver, and the parent's cost per record triples.
        """
        for state in list(self.held_back.values()):
            self._hold_back(state)
        if not self._with_pending:
            self.refused_by, self.refused_since, self.closed_for = "", None, None
            return []
        if (
            self.refused_by
            and not self._nothing_held()
            and self.judge().ratio(self.refused_by) > ADMISSION_QUANTUM_RATIO
        ):
            return []
        self.refused_by = ""
        admitted = self._admit_pending(now)
        if admitted:
            self.admitted_at = now
        if not self.refused_by:
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = now
        return admitted

    def _admit_pending(self, now: float) -> list[Run]:
        admitted: list[Run] = []
        waiting = sorted(self._with_pending.values(), key=lambda p: p.pending[0].sequence)
        if self.closed_for is not None and self._hold_back(self.closed_for):
            self.closed_for = None
        if self.closed_for is not None:
            waiting = [self.closed_for]
        elif self._fit_together(waiting):
            for state in waiting:
                while state.pending:
                    admitted.append(self._pieces.admit(state, len(state.pending[0].units)))
        for state in waiting:
            admitted.extend(self._admit_partition(state, now))
            if not state.pending:
                del self._with_pending[state.partition]
            elif self.closed_for is state:
                break
        return admitted

    def _fit_together(self, waiting: list[PartitionState]) -> bool:
        """Whether everything that waits fits, by one judgement that is never too low.

        Far from the limits this is all that admission costs, however short the runs are.
        """
        if any(self._hold_back(state) for state in waiting):
            return False
        model = self._ledger.model
        loads = [sum_loads([run.load for run in state.pending]) for state in waiting]
        longest = max(model.seconds(load) for load in loads)
        heavy_units: dict[int, int] = {}
        for state in waiting:
            for run in state.pending:
                for size_class, units in run.heavy_units.items():
                    heavy_units[size_class] = max(units, heavy_units.get(size_class, 0))
        total = sum_loads(loads)
        heaviest_bytes, heaviest_seconds = heaviest_costs(
            heaviest_units(total, heavy_units.__getitem__), model
        )
        candidate = Candidate(
            total,
            pending_bytes=self._ledger.pending_cost(total),
            heaviest_bytes=heaviest_bytes,
            heaviest_seconds=heaviest_seconds,
            longest_chain_seconds=self._ledger.chains.longest_seconds() + longest,
        )
        return self.judge(candidate).fits

    def _admit_partition(self, state: PartitionState, now: float) -> list[Run]:
        admitted: list[Run] = []
        while state.pending:
            head = state.pending[0]
            if self._hold_back(state):
                break
            count, cause = self._longest_prefix(state, head)
            if count:
                head.refused_since = None
                admitted.append(self._pieces.admit(state, count))
                if self.closed_for is state:
                    self.closed_for = None
            if state.pending and state.pending[0] is head:
                if not self.refused_by:
                    self.refused_by = cause
                if head.refused_since is None:
                    head.refused_since = now
                elif now - head.refused_since >= CLOSES_AFTER_SECONDS and self.closed_for is None:
                    self.closed_for = state
                break
        return admitted

    @property
    def waits_for_room(self) -> bool:
        """Whether something fetched waits for room (not only for its own partition)."""
        return any(state not in self.held_back for state in self._with_pending)

    def _hold_back(self, state: PartitionState) -> bool:
        """Whether a partition is paused for its own reason."""
        deadline = self._standing.enforced_deadline_seconds
        find_own_reasons(state, self._ledger, deadline, self._max_uncommitted_messages)
        if state.own_pauses:
            self.held_back[state.partition] = state
        else:
            self.held_back.pop(state.partition, None)
        return bool(state.own_pauses)

    def judge(self, candidate: Candidate | None = None) -> Verdict:
        """Judge what is in flight, with records that would be admitted if they are given."""
        return self._limits.judge(self._ledger.value(candidate), self._standing)

    def _longest_prefix(self, state: PartitionState, head: PendingRun) -> tuple[int, str]:
        """Return how many of the head's records fit, and what refuses the next one."""
        count = len(head.units)
        costs = RunCosts(self._ledger, state, head)
        verdict = self._judge_prefix(costs, count)
        if verdict.fits:
            return count, ""
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            if self._judge_prefix(costs, middle).fits:
                low = middle
            else:
                high = middle
        if low == 0 and self._nothing_held():
            return 1, self._judge_prefix(costs, 1).cause
        return low, self._judge_prefix(costs, low + 1).cause

    def _nothing_held(self) -> bool:
        totals = self._ledger.totals
        return not (
            totals[PieceState.WAITING][RECORDS]
            or totals[PieceState.INSIDE][RECORDS]
            or totals[PieceState.UNACKNOWLEDGED][RECORDS]
        )

    def _judge_prefix(self, costs: RunCosts, count: int) -> Verdict:
        load = costs.load(count)
        return self.judge(
            Candidate(
                load,
                pending_bytes=self._ledger.pending_cost(load),
                heaviest_bytes=costs.heaviest_bytes(count),
                heaviest_seconds=costs.heaviest_seconds(count),
                longest_chain_seconds=costs.longest_chain_seconds(count),
            )
        )
