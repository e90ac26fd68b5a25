"""Admission: which fetched records may be charged, and why the next one may not.

Owns the queue of fetched runs and the two inequalities at the door. A run that does not fit is
cut: the longest prefix that fits is admitted, the rest waits as fetched-not-admitted. Every
admission is checked exactly, on the very charge that follows it.

Rules: with nothing held that is not waiting for a retry, one record is admitted whatever it
costs. A head refused for want of room for a second closes admission for everyone until it fits.
What a single partition is paused for is in
``own_reasons``.
"""

from __future__ import annotations

import numpy as np

from consumer.core.columns import FetchedRun, Partition
from consumer.core.ledger import Candidate, Ledger
from consumer.core.limits import Limits, Standing, Verdict
from consumer.core.own_reasons import find_own_reasons
from consumer.core.run_costs import RunCosts
from consumer.core.work import (
    FREE_SHARD,
    HEAVY_CLASS_FROM,
    Chain,
    PartitionState,
    PendingRun,
    Piece,
    PieceState,
    Run,
    heaviest_units,
    pending_part,
    pending_run,
)
from sizing.load import CLASS_RECORDS, RECORDS, Load, load_rows, sum_loads
from sizing.model import largest_units_of_class

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
        ordering: str,
        shard_count: int,
        max_uncommitted_messages: int,
    ) -> None:
        self._ledger = ledger
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

    def queue(self, state: PartitionState, fetched: FetchedRun) -> PendingRun:
        """Count a fetched run and put it behind what waits already."""
        self._sequence += 1
        run = pending_run(fetched, self._sequence, self._shard_count, self._ordering)
        state.pending.append(run)
        self._with_pending[state.partition] = state
        state.position = int(fetched.columns.offsets[-1]) + 1
        self._ledger.pending_bytes += self._pending_cost(run.load)
        return run

    def drop_pending(self, state: PartitionState) -> None:
        """Forget what a partition has fetched and not admitted."""
        for run in state.pending:
            state.let_go(int(run.fetched.columns.offsets[0]))
            self._ledger.pending_bytes -= self._pending_cost(run.load)
        state.pending.clear()
        self._with_pending.pop(state.partition, None)
        self.held_back.pop(state.partition, None)
        if self.closed_for is state:
            self.closed_for = None

    def _pending_cost(self, load: Load) -> int:
        return int(self._ledger.model.held_bytes(load))

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
        if self.closed_for is not None and not self.closed_for.pending:
            self.closed_for = None
        if self.closed_for is not None:
            waiting = [self.closed_for]
        elif self._fit_together(waiting):
            for state in waiting:
                while state.pending:
                    admitted.append(self._take(state, state.pending[0], None))
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
        light = np.flatnonzero(total[CLASS_RECORDS][:HEAVY_CLASS_FROM]).tolist()
        heavy_units.update({c: largest_units_of_class(c) for c in light})
        candidate = Candidate(
            total,
            pending_bytes=self._pending_cost(total),
            heaviest_bytes=max(
                units * float(model.working_bytes_per_unit[c]) for c, units in heavy_units.items()
            ),
            heaviest_seconds=max(
                units * float(model.seconds_per_unit[c]) for c, units in heavy_units.items()
            ),
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
                admitted.append(self._take(state, head, count))
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
                pending_bytes=self._pending_cost(load),
                heaviest_bytes=costs.heaviest_bytes(count),
                heaviest_seconds=costs.heaviest_seconds(count),
                longest_chain_seconds=costs.longest_chain_seconds(count),
            )
        )

    # -- from pending to charged -------------------------------------------------------------

    def _take(self, state: PartitionState, head: PendingRun, count: int | None) -> Run:
        """Admit the first ``count`` records (None: all) of a partition's oldest pending run."""
        ledger = self._ledger
        ledger.pending_bytes -= self._pending_cost(head.load)
        state.pending.popleft()
        taken = head
        if count is not None and count < len(head.units):
            taken = pending_part(head, 0, count)
            rest = pending_part(head, count, len(head.units))
            rest.refused_since = head.refused_since
            state.pending.appendleft(rest)
            ledger.pending_bytes += self._pending_cost(rest.load)
        offsets = taken.fetched.columns.offsets
        run = Run(
            state,
            head.sequence,
            int(offsets[0]),
            int(offsets[-1]),
            load=taken.load,
            heavy_units=taken.heavy_units,
        )
        state.runs.append(run)
        pieces = self._pieces(state, taken, run)
        retrying = False
        for piece in pieces:
            run.unfinished[piece] = None
            piece.chain.pieces.append(piece)
            if piece.chain.retry_at is not None:
                piece.state = PieceState.RETRYING
                retrying = True
        if retrying:
            for piece in pieces:
                ledger.charge(piece)
        else:
            ledger.charge_waiting(pieces, taken.load)
        return run

    def _pieces(self, state: PartitionState, taken: PendingRun, run: Run) -> list[Piece]:
        columns = taken.fetched.columns
        shards = taken.shards
        first = int(shards[0])
        if len(shards) == 1 or bool((shards == first).all()):
            chain = self.chain(state, first)
            offset = int(columns.offsets[0])
            return [
                Piece(
                    run,
                    chain,
                    columns,
                    taken.units,
                    taken.classes,
                    taken.load,
                    offset,
                    run.heavy_units,
                )
            ]
        order = np.argsort(shards, kind="stable")
        sorted_shards = shards[order]
        edges = np.flatnonzero(np.diff(sorted_shards)) + 1
        starts = [0, *edges.tolist()]
        stops = [*edges.tolist(), len(order)]
        ordered = columns.take(order)
        units = taken.units[order]
        classes = taken.classes[order]
        group = np.zeros(len(order), dtype=np.int64)
        group[edges] = 1
        rows = load_rows(
            np.cumsum(group), len(starts), ordered.vertices, ordered.payload_bytes, units, classes
        )
        model = self._ledger.model
        seconds = model.seconds_of_rows(rows).tolist()
        working = model.working_bytes_of_rows(rows).tolist()
        pieces = []
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            pieces.append(
                Piece(
                    run,
                    self.chain(state, int(sorted_shards[start])),
                    ordered.part(start, stop),
                    units[start:stop],
                    classes[start:stop],
                    rows[number],
                    int(ordered.offsets[start]),
                    heaviest_units(units[start:stop], classes[start:stop])
                    if run.heavy_units
                    else run.heavy_units,
                    valued_by=model,
                    seconds=seconds[number],
                    working_bytes=working[number],
                )
            )
        return pieces

    def chain(self, state: PartitionState, shard: int) -> Chain:
        """Return a partition's chain, created when it is first used."""
        chain = state.chains.get(shard)
        if chain is None:
            slot = -1 if shard == FREE_SHARD else self._ledger.chains.open()
            chain = state.chains[shard] = Chain(state, shard, slot)
        return chain

    def close_chain(self, chain: Chain) -> None:
        """Forget a chain that holds nothing."""
        if chain.pieces or chain.inside or chain.retry_at is not None:
            return
        if chain.partition.chains.get(chain.shard) is chain:
            del chain.partition.chains[chain.shard]
        if chain.ordered:
            self._ledger.chains.close(chain.slot)
            chain.slot = -1
