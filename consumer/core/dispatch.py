"""Dispatch: which records go to which handler process, in chunks of predicted cost.

Owns the queue of ready chains and the choice of what goes into a chunk. Takes pieces of ready
chains, oldest runs first, so that what finishes is near the committed end.

Rules: a chunk ends at its seconds, its raw bytes or its working bytes; a record heavier than a
whole chunk travels alone. A chain is inside one process at a time. Memory is checked again here,
because admission only sees what waits. When nothing is inside any process, one chunk goes
whatever it costs. What memory passes over for a second reserves: nothing heavy goes before it;
after two seconds nothing does. Heavy records leave one process to light ones that wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from consumer.core.commands import Chunk, ChunkPart, Submit
from consumer.core.ledger.in_flight import Chain, Piece
from consumer.core.ledger.ledger import InsideChunk, Ledger, ProcessState
from consumer.core.ledger.pieces import Pieces
from sizing.charge import WORK_SHARE_RATIO
from sizing.load import PAYLOAD_BYTES, Load

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
    #: what memory leaves for a record that travels alone
    memory_left: float
    allow_heavy: bool
    taken: list[Piece] = field(default_factory=list)
    heavy: bool = False
    closed: bool = False


class Dispatcher:
    """The queue of ready chains.

    Parameters
    ----------
    ledger : Ledger
        Everything in flight.
    chunk_bytes : int
        Raw bytes of one chunk; its predicted work is the ledger's.
    wants_sample : callable
        Given a chunk's load: (measure its working bytes, trace allocations as well).
    """

    def __init__(
        self,
        ledger: Ledger,
        chunk_bytes: int,
        wants_sample: Callable[[Load], tuple[bool, bool]],
    ) -> None:
        self._ledger = ledger
        self._pieces = Pieces(ledger)
        self._chunk_bytes = chunk_bytes
        self._wants_sample = wants_sample
        self._queue: list[tuple[int, int, int, Chain]] = []
        self._queued: set[Chain] = set()
        self._counter = 0
        self._chunk_id = 0
        self._reserved: Chain | None = None

    # -- the queue ---------------------------------------------------------------------------

    def make_ready(self, chain: Chain) -> None:
        """Queue a chain whose first piece may go now; does nothing for any other."""
        if chain in self._queued or not chain.ready:
            return
        self._queued.add(chain)
        self._counter += 1
        priority = 0 if chain.partition.revoking else 1
        entry = (priority, chain.pieces[0].run.sequence, self._counter, chain)
        heapq.heappush(self._queue, entry)

    def prefer(self, chains: list[Chain]) -> None:
        """Move chains of a partition that is being revoked to the front."""
        wanted = set(chains)
        self._queue = [entry for entry in self._queue if entry[3] not in wanted]
        heapq.heapify(self._queue)
        self._queued -= wanted
        for chain in chains:
            self.make_ready(chain)

    @property
    def ready_chains(self) -> int:
        """Chains that could go now."""
        return len(self._queued)

    def _pop(self) -> Chain | None:
        while self._queue:
            chain = heapq.heappop(self._queue)[3]
            self._queued.discard(chain)
            if chain.ready:
                return chain
        return None

    # -- dispatch ----------------------------------------------------------------------------

    def dispatch(self, now: float) -> list[Submit]:
        """Give a chunk to each process that has room for one."""
        submits: list[Submit] = []
        if not self._queue:
            return submits
        with_room = self._with_room(now)
        while with_room and self._queue:
            process = with_room.pop(0)
            submit = self._fill(process, len(with_room) + 1, now)
            if submit is None:
                break
            submits.append(submit)
        return submits

    def _with_room(self, now: float) -> list[ProcessState]:
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
                overrun = age > 2.0 * chunk.predicted_seconds + self._ledger.chunk_seconds
                if left <= self._ledger.chunk_seconds and not overrun:
                    second.append(process)
        return empty + second

    def _fill(self, process: ProcessState, sharers: int, now: float) -> Submit | None:
        heavy_inside = sum(
            any(chunk.heavy for chunk in other.chunks) for other in self._ledger.processes
        )
        most_heavy = max(1, len(self._ledger.processes) - 1)
        draft = self._draft(process, sharers, now, allow_heavy=heavy_inside < most_heavy)
        if draft is None and heavy_inside >= most_heavy:
            draft = self._draft(process, sharers, now, allow_heavy=True)
        if draft is None:
            return None
        return self._submit(process, draft, now)

    def _draft(
        self, process: ProcessState, sharers: int, now: float, *, allow_heavy: bool
    ) -> _Draft | None:
        ledger = self._ledger
        waiting_seconds = ledger.model.seconds(ledger.waiting)
        memory_left = self._memory_left(process)
        draft = _Draft(
            seconds_left=min(
                self._ledger.chunk_seconds, max(waiting_seconds / sharers, LEAST_CHUNK_SECONDS)
            ),
            payload_left=float(self._chunk_bytes),
            working_left=min(self._most_working_bytes(), memory_left),
            memory_left=memory_left,
            allow_heavy=allow_heavy,
        )
        most_chains = max(1, -(-len(self._queued) // sharers))
        put_back: list[Chain] = []
        chains = looked_at = 0
        while chains < most_chains and looked_at < CHAINS_LOOKED_AT and not draft.closed:
            chain = self._pop()
            if chain is None:
                break
            before = len(draft.taken)
            if not self._gives_way(chain, now):
                self._take_from(chain, draft, now)
            if len(draft.taken) > before:
                chains += 1
                if self._reserved is chain:
                    self._reserved = None
            else:
                looked_at += 1
            put_back.append(chain)
        for chain in put_back:
            self.make_ready(chain)
        return draft if draft.taken else None

    def _memory_left(self, process: ProcessState) -> float:
        """Working bytes that a chunk of this process may have; no limit when none works."""
        ledger = self._ledger
        if ledger.idle_processes:
            return np.inf
        others = ledger.inside_bytes() - process.inside_bytes()
        return ledger.available_bytes - ledger.held_bytes() - others

    def _most_working_bytes(self) -> float:
        share = WORK_SHARE_RATIO * self._ledger.available_bytes / len(self._ledger.processes)
        return max(CHUNK_MEMORY_SHARE * share, 1.0)

    def _gives_way(self, chain: Chain, now: float) -> bool:
        """Whether a chain waits for one that memory has passed over for too long."""
        reserved = self._reserved
        if reserved is None or reserved is chain:
            return False
        if not reserved.ready or reserved.passed_over_since is None:
            self._reserved = None
            return False
        if now - reserved.passed_over_since >= 2.0 * RESERVES_AFTER_SECONDS:
            return True
        return self._first_record(chain.pieces[0])[1]

    def _first_record(self, piece: Piece) -> tuple[float, bool]:
        """Return the working bytes of a piece's first record, and whether it is heavy."""
        model = self._ledger.model
        size_class, units = int(piece.classes[0]), int(piece.units[0])
        working = float(model.working_bytes_per_unit[size_class]) * units
        heavy = (
            float(model.seconds_per_unit[size_class]) * units > self._ledger.chunk_seconds
            or int(piece.columns.payload_bytes[0]) > self._chunk_bytes
            or working > self._most_working_bytes()
        )
        return working, heavy

    def _pass_over(self, chain: Chain, now: float) -> None:
        since = chain.passed_over_since
        if since is None:
            self._pieces.pass_over(chain, now)
        elif now - since >= RESERVES_AFTER_SECONDS and self._reserved is None:
            self._reserved = chain

    def _take_from(self, chain: Chain, draft: _Draft, now: float) -> None:
        """Move pieces of a chain into the draft, up to what fits or to its first heavy record."""
        model = self._ledger.model
        while chain.pieces:
            piece = chain.pieces[0]
            piece.value(model)
            payload = int(piece.load[PAYLOAD_BYTES])
            if (
                piece.alone
                or piece.seconds > draft.seconds_left
                or piece.working_bytes > draft.working_left
                or payload > draft.payload_left
            ):
                self._take_part(chain, piece, draft, now)
                return
            draft.taken.append(self._pieces.take(chain))
            draft.seconds_left -= piece.seconds
            draft.payload_left -= payload
            draft.working_left -= piece.working_bytes

    def _take_part(self, chain: Chain, piece: Piece, draft: _Draft, now: float) -> None:
        """Take the first records of a piece that does not fit as a whole, if any."""
        count = 0 if piece.alone else self._prefix(piece, draft)
        if count == 0:
            working, heavy = self._first_record(piece)
            if draft.taken:
                # A heavy record waits for a chunk of its own; others may still fit into this one.
                draft.closed = not (heavy or piece.alone)
                return
            if heavy and not draft.allow_heavy:
                return
            if working > draft.memory_left:
                self._pass_over(chain, now)
                return
            draft.heavy = heavy
            count = 1
        self._pieces.split(piece, count)
        draft.taken.append(self._pieces.take(chain))
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

    def _submit(self, process: ProcessState, draft: _Draft, now: float) -> Submit:
        ledger = self._ledger
        self._chunk_id += 1
        load = self._pieces.enter(draft.taken)
        sample_bytes, trace = self._wants_sample(load)
        chunk = InsideChunk(
            chunk_id=self._chunk_id,
            pieces=draft.taken,
            load=load,
            predicted_seconds=ledger.model.seconds(load),
            predicted_bytes=ledger.model.working_bytes(load),
            submitted_at=now,
            started_at=now if not process.chunks else np.inf,
            heavy=draft.heavy,
            sample_bytes=sample_bytes,
        )
        process.chunks.append(chunk)
        return Submit(
            process.number,
            Chunk(
                chunk_id=chunk.chunk_id,
                parts=tuple(ChunkPart(p.run.partition.partition, p.columns) for p in draft.taken),
                load=load,
                predicted_seconds=chunk.predicted_seconds,
                predicted_bytes=int(chunk.predicted_bytes),
                sample_bytes=sample_bytes,
                trace_allocations=trace,
                raise_memory_limit=draft.taken[0].short_of_memory,
            ),
        )
