"""Everything that is done to pieces, chains and runs, with the ledger kept in step.

Owns every write to them: how the pieces of a run are made, where they go and how they end.
Admission, dispatch, settlement and ownership decide, and ask. Knows no clock, no process and no
outcome, and holds nothing but the ledger.

The way of a piece, from one state to the next:

==================  =========================  ===========================================
operation           before                     after
==================  =========================  ===========================================
queue, admit        fetched, not charged       WAITING, or RETRYING behind others that are
take, enter         WAITING                    INSIDE
leave, then one of
- settle            INSIDE                     SETTLED
- put_back          INSIDE                     WAITING
- wait_for_broker   INSIDE                     UNACKNOWLEDGED
- replace           INSIDE                     parts: INSIDE, RETRYING or UNACKNOWLEDGED
retry               RETRYING, in no queue      RETRYING, at the head of its chain
wake                RETRYING                   WAITING
wait_for_broker     RETRYING, in no queue      UNACKNOWLEDGED
settle              UNACKNOWLEDGED, or a part  SETTLED
let_go(_above)      any but INSIDE             SETTLED, undone
==================  =========================  ===========================================

Rules, after every operation but where it says otherwise:

- A piece is charged in the state that it has. ``run.unfinished`` has exactly the run's pieces that
  are not settled; a partition's oldest run has at least one.
- ``chain.pieces`` has the chain's pieces that wait, in order: WAITING, or all of them RETRYING while
  ``chain.retry_at`` says when they may go again. ``chain.inside`` counts those in a process.
- Waiting and inside pieces of an ordered chain count for its row of the chain table, so a retry
  releases seconds and working bytes; held bytes are charged until the end.
- A whole run, and a whole chunk, is one change of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consumer.core.config import Ordering
from consumer.core.ledger.columns import FetchedRun
from consumer.core.ledger.counts import count_load, heavy_units
from consumer.core.ledger.in_flight import (
    FREE_SHARD,
    Chain,
    PartitionState,
    PendingRun,
    Piece,
    PieceState,
    Run,
)
from consumer.core.ledger.ledger import Ledger
from sizing.classes import classes_of, sizes_units
from sizing.load import VERTICES, Load, load_rows, sum_loads


class Pieces:
    """Operations on pieces, chains and runs.

    Parameters
    ----------
    ledger : Ledger
        Where they are charged. Whoever has the same ledger may have an object of its own.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # -- fetched and not admitted --------------------------------------------------------------

    def queue(self, state: PartitionState, run: PendingRun) -> None:
        """Put a fetched run behind what its partition has fetched already.

        Its held bytes count as pending. The position moves behind it.
        """
        state.pending.append(run)
        state.position = int(run.fetched.columns.offsets[-1]) + 1
        self._ledger.hold_pending(run.load)

    def drop_pending(self, state: PartitionState) -> None:
        """Let go of what a partition has fetched and not admitted: the next owner reads it.

        No pending bytes are left. Nothing from the first of it on may be committed.
        """
        for run in state.pending:
            state.note_let_go(int(run.fetched.columns.offsets[0]))
            self._ledger.release_pending(run.load)
        state.pending.clear()

    def admit(self, state: PartitionState, count: int) -> Run:
        """Make the first ``count`` records of a partition's oldest pending run a run in flight.

        Pending bytes become a charge; what is left of the pending run stays the oldest, counted
        anew. Every piece goes to the end of its chain: WAITING, or RETRYING behind others that
        are. All are in ``run.unfinished``.
        """
        ledger = self._ledger
        head = state.pending.popleft()
        ledger.release_pending(head.load)
        taken = head
        if count < len(head.units):
            taken = pending_part(head, 0, count)
            rest = pending_part(head, count, len(head.units))
            state.pending.appendleft(rest)
            ledger.hold_pending(rest.load)
        offsets = taken.fetched.columns.offsets
        run = Run(
            partition=state,
            sequence=head.sequence,
            first_offset=int(offsets[0]),
            last_offset=int(offsets[-1]),
            load=taken.load,
            heavy_units=taken.heavy_units,
        )
        state.runs.append(run)
        pieces = self._pieces_of(run, taken)
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

    def _pieces_of(self, run: Run, taken: PendingRun) -> list[Piece]:
        """Split a run by chain, and value all of its pieces at once."""
        columns = taken.fetched.columns
        shards = taken.shards
        first = int(shards[0])
        if len(shards) == 1 or bool((shards == first).all()):
            return [
                Piece(
                    run=run,
                    chain=self._chain(run.partition, first),
                    columns=columns,
                    units=taken.units,
                    classes=taken.classes,
                    load=taken.load,
                    first_offset=run.first_offset,
                    heavy_units=run.heavy_units,
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
        return [
            Piece(
                run=run,
                chain=self._chain(run.partition, int(sorted_shards[start])),
                columns=ordered.part(start, stop),
                units=units[start:stop],
                classes=classes[start:stop],
                load=rows[number],
                first_offset=int(ordered.offsets[start]),
                heavy_units=heavy_units(units[start:stop], classes[start:stop])
                if run.heavy_units
                else run.heavy_units,
                valued_by=model,
                seconds=seconds[number],
                working_bytes=working[number],
            )
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
        ]

    # -- into a process and out of it ----------------------------------------------------------

    def split(self, piece: Piece, count: int) -> None:
        """Split a chain's first piece that waits after its first ``count`` records.

        Charged before and after: the same records, waiting. Both parts take the piece's place, in
        order. All of a piece stays the piece itself.
        """
        if count == len(piece):
            return
        first = piece_part(piece, slice(0, count))
        rest = piece_part(piece, slice(count, len(piece)))
        waiting = piece.chain.pieces
        waiting.popleft()
        waiting.appendleft(rest)
        waiting.appendleft(first)
        self._replace(piece, [rest, first])

    @staticmethod
    def take(chain: Chain) -> Piece:
        """Take a chain's first piece for a chunk; nothing has been passed over in it any more.

        Still charged as waiting: the chunk ``enter``s as a whole, before the step ends.
        """
        piece = chain.pieces.popleft()
        chain.inside += 1
        chain.passed_over_since = None
        return piece

    def enter(self, taken: list[Piece]) -> Load:
        """Move the pieces of a chunk into a process; return their load.

        Their charge moves from waiting to inside. Their chains' rows keep it.
        """
        load = sum_loads([piece.load for piece in taken])
        self._ledger.enter_process(taken, load)
        for piece in taken:
            piece.state = PieceState.INSIDE
        return load

    @staticmethod
    def pass_over(chain: Chain, now: float) -> None:
        """Note since when memory is short for a chain's first piece."""
        chain.passed_over_since = now

    @staticmethod
    def leave(piece: Piece) -> None:
        """Take a piece out of its process.

        Still charged as inside: it is settled, replaced, put back or moved on in the same step.
        The chain of a later epoch waits until the last one of a fenced epoch has left.
        """
        chain = piece.chain
        chain.inside -= 1
        if chain.inside == 0 and chain.partition.fenced:
            chain.partition.blocked_shards.discard(chain.shard)

    def replace(self, piece: Piece, parts: Sequence[tuple[list[int], PieceState]]) -> list[Piece]:
        """Replace a piece that has left its process by parts, each in a state of its own.

        Parameters
        ----------
        piece : Piece
            In no queue; it is no longer charged.
        parts : sequence of (list of int, PieceState)
            Indices of the records of each part, increasing. Every record is in one of them.

        Returns
        -------
        list of Piece
            The parts, charged and unfinished, and in no queue either.
        """
        made = []
        for indices, part_state in parts:
            part = piece_part(piece, np.array(indices, dtype=np.int64))
            part.state = part_state
            made.append(part)
        self._replace(piece, made)
        return made

    def _replace(self, piece: Piece, parts: list[Piece]) -> None:
        self._release(piece)
        unfinished = piece.run.unfinished
        del unfinished[piece]
        for part in parts:
            unfinished[part] = None
            self._ledger.charge(part)

    # -- going again ---------------------------------------------------------------------------

    def put_back(self, piece: Piece) -> None:
        """Put a piece that has left its process, undone, back at the head of its chain.

        Its charge moves from inside to waiting. Of several, the last is put back first.
        """
        self._move(piece, PieceState.WAITING)
        piece.chain.pieces.appendleft(piece)

    def retry(self, part: Piece, at: float) -> Chain:
        """Put a RETRYING part at the head of its chain, which waits until then; return the chain.

        A chain that waits already waits for the later of both. All that waits in it is RETRYING,
        and counts for its row no more. Where there is no order the part gets a chain of its own,
        so that nothing waits with it. Of several, the last is put back first.
        """
        chain = part.chain
        if not chain.ordered:
            chain = part.chain = self._lone_chain(chain.partition)
        for piece in chain.pieces:
            if piece.state is PieceState.WAITING:
                self._move(piece, PieceState.RETRYING)
        chain.pieces.appendleft(part)
        chain.retry_at = at if chain.retry_at is None else max(chain.retry_at, at)
        return chain

    def wake(self, chain: Chain) -> None:
        """Let a chain that waits for a retry go again: all that waits in it is WAITING."""
        chain.retry_at = None
        for piece in chain.pieces:
            self._move(piece, PieceState.WAITING)

    @staticmethod
    def count_attempt(piece: Piece) -> None:
        """Count one more attempt at a piece's records."""
        piece.attempts += 1

    @staticmethod
    def isolate(piece: Piece, *, short_of_memory: bool = False) -> None:
        """Have a piece's records tried one at a time, with more memory if that was short."""
        piece.alone = True
        piece.short_of_memory |= short_of_memory

    # -- deliveries ----------------------------------------------------------------------------

    def wait_for_broker(self, piece: Piece) -> None:
        """Have a piece in no queue wait for what is produced for it, and is expected next.

        Its charge moves to unacknowledged: held bytes, and no work.
        """
        self._move(piece, PieceState.UNACKNOWLEDGED)

    def expect_delivery(self, piece: Piece, held_bytes: int) -> None:
        """Count something produced for a piece, which holds so many bytes of its own."""
        piece.deliveries_pending += 1
        self._ledger.hold_delivery(held_bytes)

    def end_delivery(self, piece: Piece, held_bytes: int) -> bool:
        """Forget something produced for a piece; return whether the piece can be settled now."""
        piece.deliveries_pending -= 1
        self._ledger.release_delivery(held_bytes)
        return not piece.deliveries_pending and piece.state is PieceState.UNACKNOWLEDGED

    # -- ends ----------------------------------------------------------------------------------

    def settle(self, piece: Piece) -> int:
        """End a piece that is done; return its vertices, or 0 where its epoch is fenced.

        Nothing of it is charged. It moves its partition's offsets, unless fenced.
        """
        self._release(piece)
        return self._note_settled(piece)

    def settle_chunk(self, pieces: list[Piece], load: Load) -> int:
        """Take all pieces of a chunk out of their process and end them, done; return the vertices.

        ``load`` is their sum. The same as ``leave`` and ``settle`` of each.
        """
        self._ledger.release_inside(pieces, load)
        vertices = 0
        for piece in pieces:
            piece.state = PieceState.SETTLED
            self.leave(piece)
            vertices += self._note_settled(piece)
        return vertices

    def _note_settled(self, piece: Piece) -> int:
        """Move the offsets of a released piece's partition."""
        run = piece.run
        del run.unfinished[piece]
        state = run.partition
        if state.fenced:
            return 0
        run.settled_records += len(piece)
        state.settled_above += len(piece)
        state.highest_finished = max(state.highest_finished, int(piece.columns.offsets[-1]))
        if not run.unfinished:
            self._forget_finished(state)
        return int(piece.load[VERTICES])

    @staticmethod
    def _forget_finished(state: PartitionState) -> None:
        """Drop the oldest runs of a partition that are finished: the committed end is above."""
        while state.runs and not state.runs[0].unfinished:
            state.settled_above -= state.runs.popleft().settled_records

    def let_go(self, state: PartitionState) -> None:
        """Release everything of a fenced partition that is outside a process, undone.

        No run of it is left; what is inside stays charged until it leaves.
        """
        for chain in list(state.chains.values()):
            for piece in chain.pieces:
                self._drop(piece)
            chain.pieces.clear()
            chain.retry_at = None
            self.close(chain)
        for run in list(state.runs):
            for piece in list(run.unfinished):
                if piece.state is PieceState.UNACKNOWLEDGED:
                    self._drop(piece)
        state.runs.clear()

    def let_go_above(self, state: PartitionState, offset: int) -> None:
        """Release what waits of a partition above an offset, undone; a piece across it is cut.

        The next owner reads it: nothing from the first of it on may be committed.
        """
        for chain in list(state.chains.values()):
            kept: list[Piece] = []
            for piece in chain.pieces:
                below = int((piece.columns.offsets <= offset).sum())
                if below == len(piece):
                    kept.append(piece)
                elif below == 0:
                    self._drop(piece)
                else:
                    part = piece_part(piece, slice(0, below))
                    self._replace(piece, [part])
                    state.note_let_go(int(piece.columns.offsets[below]))
                    kept.append(part)
            chain.pieces.clear()
            chain.pieces.extend(kept)
            if not kept:
                chain.retry_at = None
                self.close(chain)

    def _drop(self, piece: Piece) -> None:
        """Let go of a piece, undone: its offsets are not settled, and not to be committed."""
        self._release(piece)
        del piece.run.unfinished[piece]
        state = piece.run.partition
        state.note_let_go(piece.first_offset)
        self._forget_finished(state)

    # -- chains --------------------------------------------------------------------------------

    def _chain(self, state: PartitionState, shard: int) -> Chain:
        """Return a partition's chain, created when it is first used."""
        chain = state.chains.get(shard)
        if chain is None:
            row = -1 if shard == FREE_SHARD else self._ledger.chains.open()
            chain = state.chains[shard] = Chain(partition=state, shard=shard, row=row)
        return chain

    @staticmethod
    def _lone_chain(state: PartitionState) -> Chain:
        """Return a new chain for one piece that has no order."""
        shard = state.next_lone_shard
        state.next_lone_shard -= 1
        chain = state.chains[shard] = Chain(partition=state, shard=shard, row=-1)
        return chain

    def close(self, chain: Chain) -> None:
        """Forget a chain that holds nothing, and give its row back; do nothing for any other."""
        if chain.pieces or chain.inside:
            return
        del chain.partition.chains[chain.shard]
        if chain.ordered:
            self._ledger.chains.close(chain.row)
            chain.row = -1

    # -- charges -------------------------------------------------------------------------------

    def _move(self, piece: Piece, state: PieceState) -> None:
        self._ledger.release(piece)
        piece.state = state
        self._ledger.charge(piece)

    def _release(self, piece: Piece) -> None:
        self._ledger.release(piece)
        piece.state = PieceState.SETTLED


def pending_run(
    fetched: FetchedRun, *, sequence: int, shard_count: int, ordering: Ordering
) -> PendingRun:
    """Count a fetched run and give each record its shard."""
    columns = fetched.columns
    units = sizes_units(columns.vertices, columns.payload_bytes)
    classes = classes_of(units)
    count = len(columns)
    unordered = ordering is Ordering.UNORDERED
    if unordered or (ordering is Ordering.KEY and fetched.key_hashes is None):
        shards = np.full(count, FREE_SHARD, dtype=np.int64)
    elif ordering is Ordering.PARTITION or fetched.key_hashes is None:
        shards = np.zeros(count, dtype=np.int64)
    else:
        shards = fetched.key_hashes % shard_count
        if fetched.null_keys is not None:
            shards = np.where(fetched.null_keys, FREE_SHARD, shards)
    return PendingRun(
        fetched=fetched,
        sequence=sequence,
        units=units,
        classes=classes,
        shards=shards,
        load=count_load(columns.vertices, columns.payload_bytes, units, classes),
        heavy_units=heavy_units(units, classes),
    )


def pending_part(run: PendingRun, start: int, stop: int) -> PendingRun:
    """Return a part of a pending run, counted anew."""
    fetched = run.fetched
    columns = fetched.columns.part(start, stop)
    units, classes = run.units[start:stop], run.classes[start:stop]
    hashes = None if fetched.key_hashes is None else fetched.key_hashes[start:stop]
    nulls = None if fetched.null_keys is None else fetched.null_keys[start:stop]
    return PendingRun(
        fetched=FetchedRun(fetched.partition, columns, key_hashes=hashes, null_keys=nulls),
        sequence=run.sequence,
        units=units,
        classes=classes,
        shards=run.shards[start:stop],
        load=count_load(columns.vertices, columns.payload_bytes, units, classes),
        heavy_units=heavy_units(units, classes) if run.heavy_units else run.heavy_units,
    )


def piece_part(piece: Piece, which: slice | NDArray[np.int64]) -> Piece:
    """Return a new piece of some of a piece's records, with its state, attempts and chain."""
    if isinstance(which, slice):
        columns = piece.columns.part(which.start, which.stop)
    else:
        columns = piece.columns.take(which)
    units = piece.units[which]
    classes = piece.classes[which]
    return Piece(
        run=piece.run,
        chain=piece.chain,
        columns=columns,
        units=units,
        classes=classes,
        load=count_load(columns.vertices, columns.payload_bytes, units, classes),
        first_offset=int(columns.offsets[0]),
        heavy_units=heavy_units(units, classes) if piece.heavy_units else piece.heavy_units,
        state=piece.state,
        alone=piece.alone,
        short_of_memory=piece.short_of_memory,
        attempts=piece.attempts,
    )
