"""Deliveries: dead letters and outputs on their way to the broker.

Owns what was produced and is not acknowledged, how many bytes that holds beside the input, and
when a refused one is sent again. Settles nothing: it says which piece has nothing left to wait for.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from consumer.core.backoff import backoff_seconds
from consumer.core.commands import Command, Destination, Produce, Say
from consumer.core.events import Delivered, Output, RecordFault
from consumer.core.ledger.in_flight import PartitionState, Piece
from consumer.core.ledger.pieces import Pieces
from consumer.core.reasons import Reason

#: Python bytes of one output record beside its key and value.
OUTPUT_OVERHEAD_BYTES = 300
#: A delivery that the broker refused is tried again after this, doubled up to the limit.
DELIVERY_BACKOFF_SECONDS = 0.5
DELIVERY_BACKOFF_LIMIT_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class _Delivery:
    piece: Piece
    command: Produce
    held_bytes: int
    refusals: int = 0


@dataclass(slots=True, eq=False)
class Answer:
    """What follows from one answer of the broker."""

    commands: list[Command] = field(default_factory=list)
    #: the piece whose last delivery this was
    settled: Piece | None = None
    #: it will not be sent again
    final: bool = True
    #: a dead letter is in its topic
    dead_lettered: bool = False
    #: records of a settled piece that are no dead letters
    done: int = 0


class Deliveries:
    """What was produced and is not acknowledged."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._deliveries: dict[int, _Delivery] = {}
        #: (when, delivery) of what is sent again
        self._resend: list[tuple[float, int]] = []
        self._ids = 0
        #: offsets of each unsettled piece that are dead letters
        self._dead: dict[Piece, set[int]] = {}
        #: acknowledged, by reason
        self.dead_letters: Counter[str] = Counter()

    def dead_letter(
        self, piece: Piece, local: int, fault: RecordFault, *, attempts: int | None = None
    ) -> Produce:
        """Expect a dead letter; without ``attempts`` the last one is not counted in the piece."""
        columns = piece.columns
        offset = int(columns.offsets[local])
        self._dead.setdefault(piece, set()).add(offset)
        command = Produce(
            delivery_id=self._next_id(),
            destination=Destination.DEAD_LETTER,
            source=piece.run.partition.partition,
            source_offset=offset,
            key=None if columns.keys is None else columns.keys[local],
            value=columns.values[local],
            headers=columns.headers.get(local, []),
            timestamp_ms=int(columns.timestamps_ms[local]),
            reason=fault.reason,
            error_class=fault.error_class,
            error_text=fault.error_text,
            attempts=piece.attempts + 1 if attempts is None else attempts,
        )
        self._expect(piece, command, 0)
        return command

    def output(self, piece: Piece, local: int, output: Output) -> Produce:
        """Expect an output of a record."""
        columns = piece.columns
        command = Produce(
            delivery_id=self._next_id(),
            destination=Destination.OUTPUT,
            source=piece.run.partition.partition,
            source_offset=int(columns.offsets[local]),
            key=output.key,
            value=output.value,
            headers=output.headers,
            timestamp_ms=int(columns.timestamps_ms[local]),
        )
        held = len(output.key or b"") + len(output.value or b"") + OUTPUT_OVERHEAD_BYTES
        self._expect(piece, command, held)
        return command

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _expect(self, piece: Piece, command: Produce, held_bytes: int) -> None:
        self._pieces.expect_delivery(piece, held_bytes)
        self._deliveries[command.delivery_id] = _Delivery(piece, command, held_bytes)

    @property
    def refused(self) -> bool:
        """Whether something that the broker refused waits to be sent again."""
        return bool(self._resend)

    def due(self, now: float) -> list[Command]:
        """Return what is to be sent again now."""
        commands: list[Command] = []
        while self._resend and self._resend[0][0] <= now:
            _, delivery_id = heapq.heappop(self._resend)
            commands.append(self._deliveries[delivery_id].command)
        return commands

    def answered(self, event: Delivered) -> Answer:
        """Take in one answer; what was refused is sent again.

        An output that no topic will ever take turns its input record into a dead letter, once.
        """
        delivery = self._deliveries.get(event.delivery_id)
        if delivery is None:
            return Answer(final=False)
        piece, command = delivery.piece, delivery.command
        output = command.destination is Destination.OUTPUT
        refused = event.error is not None and not piece.run.partition.fenced
        if refused and not (event.too_large and output):
            delivery.refusals += 1
            delay = backoff_seconds(
                delivery.refusals, DELIVERY_BACKOFF_SECONDS, DELIVERY_BACKOFF_LIMIT_SECONDS
            )
            heapq.heappush(self._resend, (event.now + delay, event.delivery_id))
            words = f"{event.error}: refused, and sent again later"
            return Answer([Say("warning", words)], final=False)
        del self._deliveries[event.delivery_id]
        last = self._pieces.end_delivery(piece, delivery.held_bytes)
        if refused and command.source_offset not in self._dead.get(piece, ()):
            local = int(np.searchsorted(piece.columns.offsets, command.source_offset))
            fault = RecordFault(local, Reason.OUTPUT_TOO_LARGE, "", event.error or "")
            return Answer([self.dead_letter(piece, local, fault)])
        dead_lettered = not output and event.error is None
        if dead_lettered:
            self.dead_letters[command.reason] += 1
        if not last:
            return Answer(dead_lettered=dead_lettered)
        done = len(piece) - len(self._dead.pop(piece, ()))
        return Answer(settled=piece, dead_lettered=dead_lettered, done=done)

    def forget(self, state: PartitionState) -> None:
        """Drop what waits to be sent again: whoever owns the partition now reads it again."""
        for _, delivery_id in self._resend:
            delivery = self._deliveries[delivery_id]
            if delivery.piece.run.partition is state:
                self._pieces.end_delivery(delivery.piece, delivery.held_bytes)
                del self._deliveries[delivery_id]
        self._dead = {p: dead for p, dead in self._dead.items() if p.run.partition is not state}
        self._resend = [entry for entry in self._resend if entry[1] in self._deliveries]
        heapq.heapify(self._resend)
