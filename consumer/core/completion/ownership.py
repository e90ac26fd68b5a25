"""Ownership: which partitions are ours, in which epoch, and how they are given back.

Owns the partition states, revokes, losses and what may be committed. Rules: on a revoke or a
stop nothing more is accepted; what lies above the highest started offset is let go at once (it
was never done; the next owner reads it); what has started and what is below it is finished within
the drain deadline, or the next owner would do again what was done above a gap. After a loss nothing is committed. What is still inside a
process when its epoch ends is fenced: it moves no offset, and the next epoch's chain waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from consumer.core.admission.admission import Admission
from consumer.core.completion.settlement import Settlement
from consumer.core.dispatch import Dispatcher
from consumer.core.ledger.columns import Partition
from consumer.core.ledger.in_flight import PartitionState, Piece, PieceState
from consumer.core.ledger.ledger import Ledger
from consumer.core.ledger.pieces import Pieces


@dataclass(slots=True, eq=False)
class Drain:
    """Partitions that are being given back."""

    partitions: tuple[Partition, ...]
    deadline_at: float


class Ownership:
    """Assigned partitions and those on their way out."""

    def __init__(
        self,
        ledger: Ledger,
        admission: Admission,
        dispatcher: Dispatcher,
        settlement: Settlement,
    ) -> None:
        self._pieces = Pieces(ledger)
        self._admission = admission
        self._dispatcher = dispatcher
        self._settlement = settlement
        self.states: dict[Partition, PartitionState] = {}
        self.drains: list[Drain] = []
        self._fenced: dict[Partition, PartitionState] = {}
        self._epoch = 0

    def assign(self, partition: Partition) -> PartitionState:
        """Begin an epoch of a partition."""
        if partition in self.states:
            self.fence(partition)
        self._epoch += 1
        state = PartitionState(partition, self._epoch)
        old = self._fenced.get(partition)
        if old is not None:
            inside = {c.shard for c in old.chains.values() if c.inside and c.ordered}
            old.blocked_shards |= inside
            state.blocked_shards = old.blocked_shards
        self.states[partition] = state
        return state

    def fence(self, partition: Partition) -> None:
        """End an epoch: release what is outside a process, and fence what is inside.

        No drain waits for the partition any more, and none gives it back.
        """
        for drain in self.drains:
            drain.partitions = tuple(p for p in drain.partitions if p != partition)
        state = self.states.pop(partition, None)
        if state is None:
            return
        self._admission.drop_pending(state)
        state.fenced = True
        self._settlement.let_go(state)
        if any(chain.inside for chain in state.chains.values()):
            self._fenced[partition] = state
        elif partition in self._fenced and not self._fenced[partition].blocked_shards:
            del self._fenced[partition]

    def freed(self, pieces: list[Piece]) -> None:
        """Let the chains of a new epoch go when the old epoch's chunk has come back."""
        for piece in pieces:
            if not piece.run.partition.fenced:
                continue
            partition = piece.run.partition.partition
            current = self.states.get(partition)
            if current is not None and piece.chain.shard in current.chains:
                self._dispatcher.make_ready(current.chains[piece.chain.shard])

    # -- giving back -------------------------------------------------------------------------

    def begin_drain(self, partitions: tuple[Partition, ...], deadline_at: float) -> None:
        """Accept nothing more of these partitions and let go of what was never started."""
        ours = tuple(p for p in partitions if p in self.states)
        for partition in ours:
            state = self.states[partition]
            state.revoking = True
            self._admission.drop_pending(state)
            self._pieces.let_go_above(state, _highest_started(state))
            self._dispatcher.prefer(list(state.chains.values()))
        self.drains.append(Drain(partitions, deadline_at))

    def drained(self, drain: Drain) -> bool:
        """Whether nothing of these partitions is unfinished."""
        return not any(
            run.unfinished
            for partition in drain.partitions
            if partition in self.states
            for run in self.states[partition].runs
        )

    # -- offsets -----------------------------------------------------------------------------

    def ends(self, partitions: tuple[Partition, ...] | None = None) -> dict[Partition, int]:
        """Return the offsets that may be committed and are not."""
        wanted = self.states if partitions is None else partitions
        ends: dict[Partition, int] = {}
        for partition in wanted:
            state = self.states.get(partition)
            if state is None:
                continue
            end = state.committed_end()
            if end is not None and end != state.committed:
                ends[partition] = end
        return ends


def _highest_started(state: PartitionState) -> int:
    """Return the highest offset that is finished, inside a process or not acknowledged."""
    started = (PieceState.INSIDE, PieceState.UNACKNOWLEDGED)
    highest = state.highest_finished
    for run in state.runs:
        for piece in run.unfinished:
            if piece.state in started:
                highest = max(highest, int(piece.columns.offsets[-1]))
    return highest
