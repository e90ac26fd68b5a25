"""Settlement: what becomes of records after a handler process had them.

Owns outcomes, when a retry is due and what a dead process leaves behind. Dead letters and outputs
on their way are ``deliveries``; what an end does to the records' charges and offsets is ``pieces``.

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

from consumer.core.backoff import backoff_seconds
from consumer.core.commands import Command
from consumer.core.completion.deliveries import Deliveries
from consumer.core.config import FlowConfig, Ordering
from consumer.core.dispatch import Dispatcher
from consumer.core.events import ChunkOutcome, Delivered, Output, RecordFault
from consumer.core.ledger.in_flight import Chain, PartitionState, Piece, PieceState
from consumer.core.ledger.ledger import InsideChunk, Ledger
from consumer.core.ledger.pieces import Pieces
from consumer.core.reasons import KillReason, Reason, RetryReason
from sizing.load import RECORDS

#: Deaths alone after which a record is dead-lettered.
DEATHS_ALONE = 2


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
        dispatcher: Dispatcher,
        config: FlowConfig,
    ) -> None:
        self._pieces = Pieces(ledger)
        self._dispatcher = dispatcher
        self._config = config
        self._retries: list[tuple[float, int, Chain]] = []
        self._deliveries = Deliveries(self._pieces)
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
            self.vertices_total += self._pieces.settle_chunk(chunk.pieces, chunk.load)
        else:
            # Backwards, since what goes again is put at the head of its chain.
            pairs = list(zip(chunk.pieces, self._sort(chunk, outcome), strict=True))
            for piece, ends in reversed(pairs):
                self._pieces.leave(piece)
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
                        end.retry[local] = RecordFault(local, RetryReason.FOLLOWS)
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
        self.outcomes["done"] += int(rest.sum()) - skipped
        commands: list[Command] = []
        retrying = _alike(again, ends.retry)
        groups = [(indices, PieceState.RETRYING) for indices in retrying]
        if unacknowledged:
            groups.append((unacknowledged, PieceState.UNACKNOWLEDGED))
        if rest.any():
            groups.append((np.flatnonzero(rest).tolist(), PieceState.INSIDE))
        parts = self._pieces.replace(piece, groups)
        # Backwards, since each is put at the head of its chain.
        for part, indices in reversed(list(zip(parts, retrying, strict=False))):
            commands = self._retry(part, [ends.retry[i] for i in indices], now) + commands
        for part in parts[len(retrying) :]:
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

    # -- retries -----------------------------------------------------------------------------

    def _retry(self, part: Piece, faults: list[RecordFault], now: float) -> list[Command]:
        """Put records that asked for it, or that follow one that did, back at their chain's head.

        All of them asked, or all of them follow.
        """
        if faults[0].reason != RetryReason.FOLLOWS:
            self.outcomes["failed"] += len(part)
            self._pieces.count_attempt(part)
            most = self._config.max_attempts
            if any(fault.reason == RetryReason.SUSPECT_MEMORY for fault in faults):
                # Memory ran short for all of them together: each is tried alone, with more.
                self._pieces.isolate(part, short_of_memory=True)
                most = min(most, 1 + DEATHS_ALONE)
            if part.attempts >= most:
                return self._give_up(part, faults)
        delay = self._backoff(max(1, part.attempts), part.first_offset)
        chain = self._pieces.retry(part, now + delay)
        assert chain.retry_at is not None, "a chain that waits for a retry has no time for it"
        self._counter += 1
        heapq.heappush(self._retries, (chain.retry_at, self._counter, chain))
        return []

    def _give_up(self, part: Piece, faults: list[RecordFault]) -> list[Command]:
        """Dead-letter records that failed too often."""
        self._pieces.wait_for_broker(part)
        return [
            self._deliveries.dead_letter(
                part,
                local,
                RecordFault(
                    local,
                    Reason.OUT_OF_MEMORY
                    if fault.reason == RetryReason.SUSPECT_MEMORY
                    else Reason.RETRIES_EXHAUSTED,
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
        delay = backoff_seconds(
            attempt, config.retry_backoff_seconds, config.retry_backoff_limit_seconds
        )
        return delay * (0.9 + 0.2 * ((seed * 2654435761) % 1024) / 1024)

    def wake(self, now: float) -> list[Command]:
        """Let chains whose time has come go again, and send again what was refused."""
        while self._retries and self._retries[0][0] <= now:
            at, _, chain = heapq.heappop(self._retries)
            if chain.retry_at != at:
                continue
            self._pieces.wake(chain)
            self._dispatcher.make_ready(chain)
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
            self.outcomes["done"] += answer.done
            self._settle(answer.settled)
        return answer.commands

    # -- dead processes ----------------------------------------------------------------------

    def abandon(
        self, chunks: list[InsideChunk], why: KillReason | None, cause: str
    ) -> list[Command]:
        """Take back what a dead process held. The first chunk is suspect, the second had not begun.

        Parameters
        ----------
        chunks : list of InsideChunk
            What the process held, the one it worked on first.
        why : KillReason or None
            Why it was killed by us; None when it died by itself.
        cause : str
            Exit in words.
        """
        commands: list[Command] = []
        # Backwards, since each piece is put at the head of its chain.
        for number, chunk in reversed(list(enumerate(chunks))):
            suspect = number == 0 and why is not KillReason.STOP
            for piece in reversed(chunk.pieces):
                self._pieces.leave(piece)
                if piece.run.partition.fenced:
                    self._settle(piece)
                elif suspect and self._is_to_blame(piece, chunk, why):
                    commands.append(self._dead_letter(piece, why, cause))
                else:
                    if suspect:
                        self._pieces.count_attempt(piece)
                        self._pieces.isolate(piece)
                    self._pieces.put_back(piece)
            self._reopen(chunk.pieces)
        return commands

    @staticmethod
    def _is_to_blame(piece: Piece, chunk: InsideChunk, why: KillReason | None) -> bool:
        """Whether a record ran out of time alone, or its process died of it alone too often."""
        if len(chunk.pieces) > 1 or len(piece) > 1:
            return False
        too_often = piece.alone and piece.attempts + 1 >= DEATHS_ALONE
        return why is KillReason.TIMED_OUT or too_often

    def _dead_letter(self, piece: Piece, why: KillReason | None, cause: str) -> Command:
        """Dead-letter a record for the death of its process."""
        self.outcomes["failed"] += 1
        self._pieces.count_attempt(piece)
        self._pieces.wait_for_broker(piece)
        timed_out = why is KillReason.TIMED_OUT
        reason = Reason.TIMED_OUT if timed_out else Reason.KILLED_PROCESS
        fault = RecordFault(0, reason, "", cause)
        return self._deliveries.dead_letter(piece, 0, fault, attempts=piece.attempts)

    # -- ends --------------------------------------------------------------------------------

    def _settle(self, piece: Piece) -> None:
        """Release a piece; it is done, acknowledged or fenced."""
        self.vertices_total += self._pieces.settle(piece)

    def _reopen(self, pieces: list[Piece]) -> None:
        """Make the chains of these pieces ready again, or close them."""
        for chain in {id(p.chain): p.chain for p in pieces}.values():
            if chain.pieces:
                self._dispatcher.make_ready(chain)
            else:
                self._pieces.close(chain)

    def let_go(self, state: PartitionState) -> None:
        """Release everything of a fenced partition that is outside a process."""
        self._pieces.let_go(state)
        self._deliveries.forget(state)


def _alike(indices: list[int], faults: dict[int, RecordFault]) -> list[list[int]]:
    """Split records that go again into neighbours that all asked for it, or all follow.

    Attempts are counted by piece: a follower must not inherit those of the record before it.
    """
    parts: list[list[int]] = []
    for index in indices:
        follows = faults[index].reason == RetryReason.FOLLOWS
        if parts and (faults[parts[-1][-1]].reason == RetryReason.FOLLOWS) is follows:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts
