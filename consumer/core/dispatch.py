"""Dispatch: which records go to which handler process, in chunks of predicted cost.

Owns the queue of ready chains and the building of chunks. Takes pieces of ready chains, oldest
runs first, so that what finishes is near the committed end.

Rules: a chunk ends at its seconds, its raw bytes or its working bytes; a record heavier than a
whole chunk travels alone. A chain is inside one process at a time. Memory is checked again here,
because admission only sees what waits. When nothing is inside any process, one chunk goes
whatever it costs. What memory passes over for a second reserves: nothing heavy goes before it;
after two seconds nothing does. Heavy records leave one process to light ones that wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from consumer.core.commands import Chunk, ChunkPart, Submit
from consumer.core.ledger import InsideChunk, Ledger, ProcessSlots
from consumer.core.work import Chain, Piece, PieceState, piece_part
from sizing.bounds import WORK_SHARE_RATIO
from sizing.load import PAYLOAD_BYTES, Load, zero_load

#: A chunk that memory passes over for this long reserves; for twice as long it stops the rest.
RESERVES_AFTER_SECONDS = 1.0
#: Chains looked at before a process is left without a chunk in this step.
CHAINS_LOOKED_AT = 64
#: Least work of a chunk when there is little to share out; below, the round trip costs more.
LEAST_CHUNK_SECONDS = 0.005
#: Share of a process's part of the work memory that one chunk may use.
CHUNK_MEMORY_SHARE = 0.25


@dataclass(slots=True)
class _Draft:
    """A chunk being built, and what still fits into it."""

    seconds_left: float
    payload_left: float
    working_left: float
    pieces: list[Piece]
    load: Load
    heavy: bool = False
    closed: bool = False


class Dispatcher:
    """The queue of ready chains.

    Parameters
    ----------
    ledger : Ledger
        Everything in flight.
    chunk_seconds, chunk_bytes : float, int
        Predicted work and raw bytes of one chunk.
    wants_sample : callable
        Given a chunk's load: (measure its working bytes, trace allocations as well).
    """

    def __init__(
        self,
        ledger: Ledger,
        chunk_seconds: float,
        chunk_bytes: int,
        wants_sample: Callable[[Load], tuple[bool, bool]],
    ) -> None:
        self._ledger = ledger
        self._chunk_seconds = chunk_seconds
        self._chunk_bytes = chunk_bytes
        self._wants_sample = wants_sample
        self._queue: list[tuple[int, int, int, Chain]] = []
        self._queued = 0
        self._counter = 0
        self._chunk_id = 0
        self._reserved: Chain | None = None

    # -- the queue ---------------------------------------------------------------------------

    def make_ready(self, chain: Chain) -> None:
        """Queue a chain whose first piece may go now; does nothing for any other."""
        if chain.queued or not chain.ready:
            return
        chain.queued = True
        self._queued += 1
        self._counter += 1
        priority = 0 if chain.partition.revoking else 1
        entry = (priority, chain.pieces[0].run.sequence, self._counter, chain)
        heapq.heappush(self._queue, entry)

    def prefer(self, chains: list[Chain]) -> None:
        """Move chains of a partition that is being revoked to the front."""
        wanted = set(map(id, chains))
        self._queue = [entry for entry in self._queue if id(entry[3]) not in wanted]
        heapq.heapify(self._queue)
        for chain in chains:
            if chain.queued:
                chain.queued = False
                self._queued -= 1
            self.make_ready(chain)

    @property
    def ready_chains(self) -> int:
        """Chains that could go now."""
        return self._queued

    def _pop(self) -> Chain | None:
        while self._queue:
            chain = heapq.heappop(self._queue)[3]
            chain.queued = False
            self._queued -= 1
            if chain.ready:
                return chain
        return None

    # -- dispatch ----------------------------------------------------------------------------

    def dispatch(self, now: float) -> list[Submit]:
        """Fill free slots with chunks."""
        submits: list[Submit] = []
        if not self._queue:
            return submits
        free = self._free_slots(now)
        while free and self._queue:
            process = free.pop(0)
            submit = self._fill(process, len(free) + 1, now)
            if submit is None:
                break
            submits.append(submit)
        return submits

    def _free_slots(self, now: float) -> list[ProcessSlots]:
        empty, second = [], []
        for process in self._ledger.processes:
            if not process.ready or process.killing:
                continue
            if not process.chunks:
                empty.append(process)
            elif len(process.chunks) == 1:
                chunk = process.chunks[0]
                age = now - chunk.started_at
                left = chunk.predicted_seconds - age
                overrun = age > 2.0 * chunk.predicted_seconds + self._chunk_seconds
                if left <= self._chunk_seconds and not overrun:
                    second.append(process)
        return empty + second

    def _fill(self, process: ProcessSlots, free_slots: int, now: float) -> Submit | None:
        heavy_inside = sum(
            any(chunk.heavy for chunk in other.chunks) for other in self._ledger.processes
        )
        most_heavy = max(1, len(self._ledger.processes) - 1)
        draft = self._draft(process, free_slots, now, allow_heavy=heavy_inside < most_heavy)
        if draft is None and heavy_inside >= most_heavy:
            draft = self._draft(process, free_slots, now, allow_heavy=True)
        if draft is None:
            return None
        return self._submit(process, draft, now)

    def _draft(
        self, process: ProcessSlots, free_slots: int, now: float, *, allow_heavy: bool
    ) -> _Draft | None:
        ledger = self._ledger
        share = WORK_SHARE_RATIO * ledger.available_bytes / len(ledger.processes)
        waiting_seconds = ledger.model.seconds(ledger.waiting)
        draft = _Draft(
            seconds_left=min(
                self._chunk_seconds, max(waiting_seconds / free_slots, LEAST_CHUNK_SECONDS)
            ),
            payload_left=float(self._chunk_bytes),
            working_left=max(CHUNK_MEMORY_SHARE * share, 1.0),
            pieces=[],
            load=zero_load(),
        )
        most_chains = max(1, -(-self._queued // free_slots))
        put_back: list[Chain] = []
        chains = looked_at = 0
        while chains < most_chains and looked_at < CHAINS_LOOKED_AT and not draft.closed:
            chain = self._pop()
            if chain is None:
                break
            looked_at += 1
            before = len(draft.pieces)
            if self._may_go(chain, process, draft, now, allow_heavy=allow_heavy):
                self._take_from(chain, draft)
            if len(draft.pieces) > before:
                chains += 1
                chain.passed_over_since = None
                if self._reserved is chain:
                    self._reserved = None
            put_back.append(chain)
        for chain in put_back:
            self.make_ready(chain)
        return draft if draft.pieces else None

    def _may_go(
        self, chain: Chain, process: ProcessSlots, draft: _Draft, now: float, *, allow_heavy: bool
    ) -> bool:
        """Check memory and the rules of heavy records for a chain's first record."""
        ledger = self._ledger
        piece = chain.pieces[0]
        model = ledger.model
        first_seconds = float(model.seconds_per_unit[piece.classes[0]]) * int(piece.units[0])
        first_bytes = float(model.working_bytes_per_unit[piece.classes[0]]) * int(piece.units[0])
        heavy = self._is_heavy(first_seconds, int(piece.columns.payload_bytes[0]), first_bytes)
        reserved = self._reserved
        if reserved is not None and (not reserved.ready or reserved.passed_over_since is None):
            reserved = self._reserved = None
        if reserved is not None and reserved is not chain and reserved.passed_over_since:
            stops_all = now - reserved.passed_over_since >= 2.0 * RESERVES_AFTER_SECONDS
            if heavy or stops_all:
                return False
        if heavy and (draft.pieces or not allow_heavy):
            return False
        if self._fits(process, max(first_bytes, model.working_bytes(draft.load) + first_bytes)):
            return True
        if chain.passed_over_since is None:
            chain.passed_over_since = now
        elif now - chain.passed_over_since >= RESERVES_AFTER_SECONDS and self._reserved is None:
            self._reserved = chain
        return False

    def _fits(self, process: ProcessSlots, working_bytes: float) -> bool:
        ledger = self._ledger
        if ledger.idle_processes:
            return True
        inside = ledger.inside_bytes()
        after = inside - process.inside_bytes() + max(process.inside_bytes(), working_bytes)
        return ledger.held_bytes() + after <= ledger.available_bytes

    def _is_heavy(self, seconds: float, payload_bytes: int, working_bytes: float) -> bool:
        ledger = self._ledger
        share = WORK_SHARE_RATIO * ledger.available_bytes / len(ledger.processes)
        return (
            seconds > self._chunk_seconds
            or payload_bytes > self._chunk_bytes
            or working_bytes > CHUNK_MEMORY_SHARE * share
        )

    def _take_from(self, chain: Chain, draft: _Draft) -> None:
        """Move pieces of a chain into the draft, up to what fits or to its first heavy record."""
        model = self._ledger.model
        while chain.pieces and not draft.closed:
            piece = chain.pieces[0]
            if piece.alone:
                if draft.pieces:
                    return
                self._put(chain, self._cut(chain, piece, 1), draft)
                draft.closed = True
                return
            seconds = model.seconds(piece.load)
            payload = float(piece.load[PAYLOAD_BYTES])
            working = model.working_bytes(piece.load)
            if (
                seconds <= draft.seconds_left
                and payload <= draft.payload_left
                and working <= draft.working_left
            ):
                self._put(chain, piece, draft)
                draft.seconds_left -= seconds
                draft.payload_left -= payload
                draft.working_left -= working
                continue
            count = self._prefix(piece, draft)
            if count == 0:
                if draft.pieces:
                    draft.closed = True
                    return
                count = 1
                draft.heavy = self._is_heavy(
                    float(model.seconds_per_unit[piece.classes[0]]) * int(piece.units[0]),
                    int(piece.columns.payload_bytes[0]),
                    float(model.working_bytes_per_unit[piece.classes[0]]) * int(piece.units[0]),
                )
            self._put(chain, self._cut(chain, piece, count), draft)
            draft.closed = True

    def _prefix(self, piece: Piece, draft: _Draft) -> int:
        """Return how many of a piece's records fit into the draft."""
        model = self._ledger.model
        fits = (
            (np.cumsum(model.seconds_of_records(piece.units, piece.classes)) <= draft.seconds_left)
            & (np.cumsum(piece.columns.payload_bytes) <= draft.payload_left)
            & (
                np.cumsum(model.working_bytes_of_records(piece.units, piece.classes))
                <= draft.working_left
            )
        )
        return int(fits.sum())

    def _cut(self, chain: Chain, piece: Piece, count: int) -> Piece:
        """Split off a piece's first records; both parts stay charged."""
        if count == len(piece):
            return piece
        ledger = self._ledger
        ledger.release(piece)
        piece.run.unfinished.discard(piece)
        chain.pieces.popleft()
        piece.state = PieceState.WAITING
        parts = piece_part(piece, slice(0, count)), piece_part(piece, slice(count, len(piece)))
        piece.state = PieceState.SETTLED
        for part in reversed(parts):
            chain.pieces.appendleft(part)
            part.run.unfinished.add(part)
            ledger.charge(part)
        return parts[0]

    def _put(self, chain: Chain, piece: Piece, draft: _Draft) -> None:
        chain.pieces.popleft()
        self._ledger.move(piece, PieceState.INSIDE)
        chain.inside += 1
        draft.pieces.append(piece)
        draft.load = draft.load + piece.load

    def _submit(self, process: ProcessSlots, draft: _Draft, now: float) -> Submit:
        ledger = self._ledger
        self._chunk_id += 1
        sample_bytes, trace = self._wants_sample(draft.load)
        chunk = InsideChunk(
            chunk_id=self._chunk_id,
            pieces=draft.pieces,
            load=draft.load,
            predicted_seconds=ledger.model.seconds(draft.load),
            predicted_bytes=ledger.model.working_bytes(draft.load),
            submitted_at=now,
            started_at=now if not process.chunks else np.inf,
            heavy=draft.heavy,
            sample_bytes=sample_bytes,
        )
        process.chunks.append(chunk)
        return Submit(
            process.number,
            Chunk(
                chunk.chunk_id,
                tuple(ChunkPart(p.run.partition.partition, p.columns) for p in draft.pieces),
                draft.load,
                chunk.predicted_seconds,
                int(chunk.predicted_bytes),
                sample_bytes=sample_bytes,
                trace_allocations=trace,
            ),
        )
