"""The rooms of completion around one ledger, without a ``Flow``: records go in and out by hand.

A record of n vertices has n units; a unit costs a millisecond and 100 working bytes. Each record
has 64 payload bytes, so 264 are held for it. A key is a number: keys that are equal modulo 16 share
a shard, which is the remainder. The record at offset n has the value ``v<n>`` and n seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consumer.core.admission.admission import Admission
from consumer.core.commands import Command, Produce
from consumer.core.completion.ownership import Ownership
from consumer.core.completion.settlement import Settlement
from consumer.core.config import FlowConfig
from consumer.core.dispatch import Dispatcher
from consumer.core.events import ChunkOutcome, Delivered, Output, RecordFault
from consumer.core.ledger.columns import Columns, FetchedRun, Headers, Partition
from consumer.core.ledger.in_flight import PartitionState, Piece
from consumer.core.ledger.ledger import InsideChunk, Ledger
from consumer.core.limits import LIMITS, Standing
from consumer.core.reasons import KillReason
from sizing.load import sum_loads
from sizing.model import CostModel

TOWN = ("town", 0)
#: 64 of payload and 200 for its objects
HELD = 264


def fetched(
    first_offset: int,
    keys: Sequence[int | None],
    vertices: Sequence[int] | None = None,
    *,
    partition: Partition = TOWN,
    headers: dict[int, Headers] | None = None,
) -> FetchedRun:
    """Consecutive records with these keys, of one vertex each unless told otherwise."""
    offsets = np.arange(first_offset, first_offset + len(keys))
    nulls = np.array([key is None for key in keys])
    columns = Columns(
        values=[b"v%d" % offset for offset in offsets.tolist()],
        keys=None if nulls.all() else [None if key is None else b"%d" % key for key in keys],
        offsets=offsets,
        timestamps_ms=offsets * 1000,
        vertices=np.array(vertices or [1] * len(keys)),
        payload_bytes=np.full(len(keys), 64),
        headers=headers or {},
    )
    hashes = None if nulls.all() else np.array([key or 0 for key in keys])
    return FetchedRun(partition, columns, hashes, nulls if nulls.any() else None)


class Desk:
    """Ledger, settlement and ownership of a worker with two processes and room for everything."""

    def __init__(self, config: FlowConfig | None = None) -> None:
        config = config or FlowConfig(2)
        self.ledger = Ledger(2, config.chunk_seconds)
        self.ledger.use_model(CostModel(np.full(16, 1e-3), np.full(16, 100.0)))
        self.ledger.use_available_bytes(10**9)
        self.admission = Admission(
            self.ledger,
            LIMITS,
            Standing(config, 15.0, "shutdown-grace", 10**9, sized=True),
            ordering=config.ordering,
            shard_count=16,
            max_uncommitted_messages=config.max_uncommitted_messages,
        )
        self.dispatcher = Dispatcher(self.ledger, config.chunk_bytes, lambda _: (False, False))
        self.settlement = Settlement(self.ledger, self.dispatcher, config)
        self.ownership = Ownership(self.ledger, self.admission, self.dispatcher, self.settlement)
        self.pieces = self.ownership._pieces
        self.chunks = 0
        self.state = self.ownership.assign(TOWN)

    def admit(
        self,
        first_offset: int,
        keys: Sequence[int | None],
        vertices: Sequence[int] | None = None,
        *,
        partition: Partition = TOWN,
    ) -> None:
        """Fetch and admit records."""
        state = self.ownership.states[partition]
        self.admission.queue(state, fetched(first_offset, keys, vertices, partition=partition))
        self.admission.admit(0.0)
        assert not state.pending

    def enter(self, *shards: int, state: PartitionState | None = None) -> InsideChunk:
        """Send the first piece of each of these chains into process 0, as one chunk."""
        chains = (state or self.state).chains
        taken = [self.pieces.take(chains[shard]) for shard in shards]
        load = self.pieces.enter(taken)
        self.chunks += 1
        chunk = InsideChunk(
            self.chunks, taken, load, self.ledger.model.seconds(load), 0.0, 0.0, 0.0, heavy=False
        )
        self.ledger.processes[0].chunks.append(chunk)
        return chunk

    def finish(self, chunk: InsideChunk, result: ChunkOutcome, now: float = 10.0) -> list[Command]:
        """Take a chunk out of process 0 with its outcome."""
        self.ledger.processes[0].chunks.remove(chunk)
        commands = self.settlement.finish(chunk, result, now)
        self.ownership.freed(chunk.pieces)
        self.check()
        return commands

    def die(
        self, *chunks: InsideChunk, why: KillReason | None = None, cause: str = "signal 9"
    ) -> list[Command]:
        """Have process 0 die of the first of its chunks."""
        self.ledger.processes[0].chunks.clear()
        commands = self.settlement.abandon(list(chunks), why, cause)
        for chunk in chunks:
            self.ownership.freed(chunk.pieces)
        self.check()
        return commands

    def acknowledge(self, *commands: Command, now: float = 20.0) -> None:
        """Have the broker take what was produced."""
        for command in commands:
            assert isinstance(command, Produce)
            assert self.settlement.delivered(Delivered(now, command.delivery_id)) == []
            self.check()

    # -- what there is -------------------------------------------------------------------------

    def records(self) -> dict[str, int]:
        """Return the charged records by state; states without any are left out."""
        self.check()
        return {state: counts[0] for state, counts in self.ledger.counts().items() if counts[0]}

    def outcomes(self) -> dict[str, int]:
        """Return what was counted so far; outcomes without any are left out."""
        return dict(+self.settlement.outcomes)

    def waiting(self, shard: int) -> list[list[int]]:
        """Return the offsets of each piece that waits in a chain, in order."""
        return offsets(self.state.chains[shard].pieces)

    def ready(self) -> list[int]:
        """Return the shards of the chains that dispatch would take next, in its order."""
        return [entry[3].shard for entry in sorted(self.dispatcher._queue, key=lambda e: e[:3])]

    def check(self) -> None:
        """What is charged is what the partitions and the processes hold."""
        held: dict[Piece, None] = {}
        for state in self.ownership.states.values():
            for run in state.runs:
                held |= run.unfinished
        for process in self.ledger.processes:
            for chunk in process.chunks:
                held |= dict.fromkeys(chunk.pieces)
        totals = np.zeros_like(self.ledger.totals)
        for piece in held:
            totals[piece.state] += sum_loads([piece.load])
        assert np.array_equal(totals, self.ledger.totals)


def offsets(pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the offsets of each piece."""
    return [piece.columns.offsets.tolist() for piece in pieces]


def outcome(
    *,
    failed: Sequence[RecordFault] = (),
    retry: Sequence[RecordFault] = (),
    skipped: Sequence[int] = (),
    outputs: Sequence[Output] = (),
) -> ChunkOutcome:
    """What a process says of a chunk; what it does not name is done."""
    return ChunkOutcome(
        0.01,
        0.01,
        None,
        0,
        0,
        failed=tuple(failed),
        retry=tuple(retry),
        skipped=tuple(skipped),
        outputs=tuple(outputs),
    )


def produced(commands: Sequence[Command]) -> list[tuple[int, str]]:
    """Return source offset and reason of what is produced; an output has no reason."""
    assert all(isinstance(command, Produce) for command in commands)
    return [(c.source_offset, c.reason) for c in commands if isinstance(c, Produce)]
