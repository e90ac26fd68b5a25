"""Settlement: what becomes of records after a handler process had them.

Owns outcomes, retries and what a dead process leaves behind. Only here is a piece settled. Dead
letters and outputs on their way are ``deliveries``.

Rules: a record counts as done only when everything produced for it is acknowledged. A record
that asks for a retry takes the later records of its key (or partition) in the chunk with it. A
chain that waits for a retry releases its seconds and working bytes and keeps its held bytes. No
record is dead-lettered on a guess: one that killed a process in company is tried alone first.
A result of a fenced epoch frees what it held, moves no offset and produces nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from consumer.core.admission import Admission
from consumer.core.commands import Command
from consumer.core.config import FlowConfig, Ordering
from consumer.core.deliveries import Deliveries
from consumer.core.dispatch import Dispatcher
from consumer.core.events import ChunkOutcome, Delivered, Output, RecordFault
from consumer.core.ledger import InsideChunk, Ledger
from consumer.core.work import Chain, PartitionState, Piece, PieceState, piece_part
from sizing.load import RECORDS, VERTICES

#: Deaths alone after which a record is dead-lettered.
DEATHS_ALONE = 2

REASON_KILLED = "killed-process"
REASON_TIMED_OUT = "timed-out"
REASON_RETRIES = "retries-exhausted"
REASON_MEMORY = "out-of-memory"
#: what a handler process says of records when memory ran short
SUSPECT_MEMORY = "suspect-memory"
#: a record that goes again only because one of its key before it does
FOLLOWS = "follows-a-retry"


@dataclass(slots=True, eq=False)
class _Sorted:
    """Indices of one piece by what becomes of them."""

    failed: dict[int, RecordFault] = field(default_factory=dict)
    retry: dict[int, RecordFault] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    outputs: dict[int, list[Output]] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        return not (self.failed or self.retry or self.outputs)


class Settlement:
    """Ends of records."""

    def __init__(
        self,
        ledger: Ledger,
        admission: Admission,
        dispatcher: Dispatcher,
        config: FlowConfig,
    ) -> None:
        self._ledger = ledger
        self._admission = admission
        self._dispatcher = dispatcher
        self._config = config
        self._retries: list[tuple[float, int, Chain]] = []
        self._deliveries = Deliveries(ledger)
        self._counter = 0
        self.outcomes: Counter[str] = Counter()
        self.vertices_total = 0
        self.last_finished_at = 0.0

    # -- results -----------------------------------------------------------------------------

    def finish(self, chunk: InsideChunk, outcome: ChunkOutcome, now: float) -> list[Command]:
        """Settle a chunk by its outcome."""
        self.last_finished_at = now
        commands: list[Command] = []
        if not (outcome.failed or outcome.retry or outcome.skipped or outcome.outputs):
            self.outcomes["done"] += int(chunk.load[RECORDS])
            self._ledger.release_inside(chunk.pieces, chunk.load)
            for piece in chunk.pieces:
                self._leave_process(piece)
                self._note_settled(piece)
        else:
            # Backwards, since what goes again is put at the head of its chain.
            pairs = list(zip(chunk.pieces, self._sort(chunk, outcome), strict=True))
            for piece, ends in reversed(pairs):
                self._leave_process(piece)
                commands = self._settle_by(piece, ends, now) + commands
        self._reopen(chunk.pieces)
        return commands

    def _sort(self, chunk: InsideChunk, outcome: ChunkOutcome) -> list[_Sorted]:
        starts = [0, *accumulate(len(piece) for piece in chunk.pieces)]
        ends = [_Sorted() for _ in chunk.pieces]

        def place(index: int) -> tuple[int, int]:
            number = bisect_right(starts, index) - 1
            return number, index - starts[number]

        for fault in outcome.retry:
            number, local = place(fault.index)
            ends[number].retry[local] = fault
        for fault in outcome.failed:
            number, local = place(fault.index)
            ends[number].failed[local] = fault
        for index in outcome.skipped:
            number, local = place(index)
            ends[number].skipped.add(local)
        for output in outcome.outputs:
            number, local = place(output.index)
            ends[number].outputs.setdefault(local, []).append(output)
        if outcome.retry:
            self._add_followers(chunk.pieces, ends)
        return ends

    def _add_followers(self, pieces: list[Piece], ends: list[_Sorted]) -> None:
        """Later records of a retried record's key go again after it."""
        by_chain: dict[int, list[int]] = defaultdict(list)
        for number, piece in enumerate(pieces):
            if piece.chain.ordered:
                by_chain[id(piece.chain)].append(number)
        for numbers in by_chain.values():
            if not any(ends[number].retry for number in numbers):
                continue
            retried: set[bytes | None] = set()
            whole = self._config.ordering is Ordering.PARTITION
            seen = False
            for number in numbers:
                piece, end = pieces[number], ends[number]
                keys = piece.columns.keys
                for local in range(len(piece)):
                    key = None if keys is None else keys[local]
                    if local in end.retry:
                        seen = True
                        retried.add(key)
                    elif (whole and seen) or key in retried:
                        end.retry[local] = RecordFault(local, FOLLOWS)
        for end in ends:
            for local in end.retry:
                end.failed.pop(local, None)
                end.skipped.discard(local)
                end.outputs.pop(local, None)

    def _settle_by(self, piece: Piece, ends: _Sorted, now: float) -> list[Command]:
        if piece.run.partition.fenced or ends.plain:
            self.outcomes["skipped"] += len(ends.skipped)
            self.outcomes["done"] += len(piece) - len(ends.skipped)
            self._settle(piece)
            return []
        count = len(piece)
        unacknowledged = sorted({*ends.failed, *ends.outputs})
        again = sorted(ends.retry)
        rest = np.ones(count, dtype=bool)
        rest[unacknowledged] = False
        rest[again] = False
        skipped = sum(bool(rest[i]) for i in ends.skipped)
        self.outcomes["skipped"] += skipped
        self.outcomes["done"] += (
            int(rest.sum()) - skipped + len(set(ends.outputs) - set(ends.failed))
        )
        commands: list[Command] = []
        retrying = [
            (self._part(piece, indices, PieceState.RETRYING), indices)
            for indices in _alike(again, ends.retry)
        ]
        groups: list[Piece] = [part for part, _ in retrying]
        if unacknowledged:
            groups.append(self._part(piece, unacknowledged, PieceState.UNACKNOWLEDGED))
        if rest.any():
            groups.append(self._part(piece, np.flatnonzero(rest).tolist(), PieceState.INSIDE))
        self._replace(piece, groups)
        # Backwards, since each is put at the head of its chain.
        for part, indices in reversed(retrying):
            commands = self._retry(part, [ends.retry[i] for i in indices], now) + commands
        for part in groups[len(retrying) :]:
            if part.state is PieceState.UNACKNOWLEDGED:
                for local, original in enumerate(unacknowledged):
                    if original in ends.failed:
                        fault = ends.failed[original]
                        commands.append(self._deliveries.dead_letter(part, local, fault))
                    else:
                        commands.extend(
                            self._deliveries.output(part, local, output)
                            for output in ends.outputs[original]
                        )
            else:
                self._settle(part)
        return commands

    @staticmethod
    def _part(piece: Piece, indices: list[int], state: PieceState) -> Piece:
        part = piece_part(piece, np.array(indices, dtype=np.int64))
        part.state = state
        return part

    def _replace(self, piece: Piece, parts: list[Piece]) -> None:
        self._ledger.release(piece)
        unfinished = piece.run.unfinished
        unfinished.pop(piece, None)
        for part in parts:
            unfinished[part] = None
            self._ledger.charge(part)

    # -- retries -----------------------------------------------------------------------------

    def _retry(self, part: Piece, faults: list[RecordFault], now: float) -> list[Command]:
        """Put records that asked for it, or that follow one that did, back at their chain's head.

        All of them asked, or all of them follow.
        """
        self.outcomes["failed"] += len(part)
        if faults[0].reason != FOLLOWS:
            part.attempts += 1
            most = self._config.max_attempts
            if any(fault.reason == SUSPECT_MEMORY for fault in faults):
                # Memory ran short for all of them together: each is tried alone, with more.
                part.alone = part.short_of_memory = True
                most = min(most, 1 + DEATHS_ALONE)
            if part.attempts >= most:
                return self._give_up(part, faults)
        delay = self._backoff(max(1, part.attempts), part.first_offset)
        chain = part.chain
        if not chain.ordered:
            chain = self._lone_chain(part)
        chain.pieces.appendleft(part)
        chain.retry_at = now + delay if chain.retry_at is None else max(chain.retry_at, now + delay)
        for piece in chain.pieces:
            if piece.state is PieceState.WAITING:
                self._ledger.move(piece, PieceState.RETRYING)
        self._counter += 1
        heapq.heappush(self._retries, (chain.retry_at, self._counter, chain))
        return []

    def _give_up(self, part: Piece, faults: list[RecordFault]) -> list[Command]:
        """Dead-letter records that failed too often."""
        self._ledger.move(part, PieceState.UNACKNOWLEDGED)
        return [
            self._deliveries.dead_letter(
                part,
                local,
                RecordFault(
                    local,
                    REASON_MEMORY if fault.reason == SUSPECT_MEMORY else REASON_RETRIES,
                    fault.error_class,
                    fault.error_text or fault.reason,
                ),
                attempts=part.attempts,
            )
            for local, fault in enumerate(faults)
        ]

    def _backoff(self, attempt: int, seed: int) -> float:
        """Exponential, with a jitter of 20 % that a replay repeats (by offset)."""
        config = self._config
        delay = min(
            config.retry_backoff_seconds * 2.0 ** (attempt - 1), config.retry_backoff_limit_seconds
        )
        return delay * (0.9 + 0.2 * ((seed * 2654435761) % 1024) / 1024)

    def _lone_chain(self, piece: Piece) -> Chain:
        state = piece.run.partition
        shard = state.next_lone_shard
        state.next_lone_shard -= 1
        chain = state.chains[shard] = Chain(state, shard, -1)
        piece.chain = chain
        return chain

    def wake(self, now: float) -> list[Command]:
        """Let chains whose time has come go again, and send again what was refused."""
        while self._retries and self._retries[0][0] <= now:
            at, _, chain = heapq.heappop(self._retries)
            if chain.retry_at != at:
                continue
            chain.retry_at = None
            for piece in chain.pieces:
                if piece.state is PieceState.RETRYING:
                    self._ledger.move(piece, PieceState.WAITING)
            self._dispatcher.make_ready(chain)
            self._admission.close_chain(chain)
        return self._deliveries.due(now)

    @property
    def deliveries_refused(self) -> bool:
        """Whether the broker refuses what has to be produced: intake stops until it does not."""
        return self._deliveries.refused

    @property
    def dead_letters(self) -> Counter[str]:
        """Dead letters that the broker has acknowledged, by reason."""
        return self._deliveries.dead_letters

    # -- deliveries --------------------------------------------------------------------------

    def delivered(self, event: Delivered) -> list[Command]:
        """Count an acknowledgement, or the refusal, of what was produced."""
        answer = self._deliveries.answered(event)
        if answer.final:
            self.last_finished_at = event.now
        if answer.dead_lettered:
            self.outcomes["dead-lettered"] += 1
        if answer.settled is not None:
            self._settle(answer.settled)
        return answer.commands

    # -- dead processes ----------------------------------------------------------------------

    def abandon(self, chunks: list[InsideChunk], why: str, cause: str) -> list[Command]:
        """Take back what a dead process held. The first chunk is suspect, the second had not begun.

        Parameters
        ----------
        chunks : list of InsideChunk
            What the process held, the one it worked on first.
        why : str
            Why it was killed by us ("timed-out", "stop"); empty when it died by itself.
        cause : str
            Exit in words.
        """
        commands: list[Command] = []
        for number, chunk in reversed(list(enumerate(chunks))):
            suspect = number == 0 and why != "stop"
            lone = len(chunk.pieces) == 1 and len(chunk.pieces[0]) == 1
            for piece in reversed(chunk.pieces):
                self._leave_process(piece)
                if piece.run.partition.fenced:
                    self._settle(piece)
                    continue
                if suspect:
                    piece.attempts += 1
                    reason = REASON_TIMED_OUT if why == REASON_TIMED_OUT else REASON_KILLED
                    if lone and (
                        why == REASON_TIMED_OUT or (piece.alone and piece.attempts >= DEATHS_ALONE)
                    ):
                        self.outcomes["failed"] += 1
                        self._ledger.move(piece, PieceState.UNACKNOWLEDGED)
                        fault = RecordFault(0, reason, "", cause)
                        letter = self._deliveries.dead_letter(
                            piece, 0, fault, attempts=piece.attempts
                        )
                        commands.append(letter)
                        continue
                    piece.alone = True
                self._ledger.move(piece, PieceState.WAITING)
                piece.chain.pieces.appendleft(piece)
                if piece.chain.retry_at is not None:
                    self._ledger.move(piece, PieceState.RETRYING)
            self._reopen(chunk.pieces)
        return commands

    # -- ends --------------------------------------------------------------------------------

    @staticmethod
    def _leave_process(piece: Piece) -> None:
        piece.chain.inside -= 1
        if piece.chain.inside == 0 and piece.run.partition.fenced:
            piece.run.partition.blocked_shards.discard(piece.chain.shard)

    def _settle(self, piece: Piece) -> None:
        """Release a piece; it is done, acknowledged or let go."""
        self._ledger.release(piece)
        self._note_settled(piece)

    def _note_settled(self, piece: Piece) -> None:
        """Move the offsets of a released piece's partition."""
        run = piece.run
        run.unfinished.pop(piece, None)
        state = run.partition
        if state.fenced:
            return
        run.settled_records += len(piece)
        state.settled_above += len(piece)
        self.vertices_total += int(piece.load[VERTICES])
        state.highest_finished = max(state.highest_finished, int(piece.columns.offsets[-1]))

    def drop(self, piece: Piece) -> None:
        """Let go of a piece that was never started: the next owner reads it."""
        self._ledger.release(piece)
        piece.run.unfinished.pop(piece, None)
        piece.run.partition.let_go(piece.first_offset)

    def _reopen(self, pieces: list[Piece]) -> None:
        """Make the chains of these pieces ready again, or close them."""
        for chain in {id(p.chain): p.chain for p in pieces}.values():
            if chain.pieces:
                self._dispatcher.make_ready(chain)
            else:
                self._admission.close_chain(chain)

    def let_go(self, state: PartitionState) -> None:
        """Release everything of a fenced partition that is outside a process."""
        for chain in list(state.chains.values()):
            for piece in chain.pieces:
                self.drop(piece)
            chain.pieces.clear()
            chain.retry_at = None
            self._admission.close_chain(chain)
        for run in state.runs:
            for piece in list(run.unfinished):
                if piece.state is PieceState.UNACKNOWLEDGED:
                    self.drop(piece)
        self._deliveries.forget(state)
        state.runs.clear()


def _alike(indices: list[int], faults: dict[int, RecordFault]) -> list[list[int]]:
    """Split records that go again into neighbours that all asked for it, or all follow.

    Attempts are counted by piece: a follower must not inherit those of the record before it.
    """
    parts: list[list[int]] = []
    for index in indices:
        follows = faults[index].reason == FOLLOWS
        if parts and (faults[parts[-1][-1]].reason == FOLLOWS) is follows:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts
