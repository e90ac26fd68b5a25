"""What the core must hold: every fetched record, by the outcomes that the world has told it.

Owns the counts of held records, acknowledgements that are due, and what a chunk's outcome means for
each of its records. Knows of no command but what a chunk carries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig, Ordering
from consumer.core.ledger.columns import Partition
from tests.core.partition_log import (
    AWAITING_ACK,
    FINISHED,
    INSIDE,
    NOT_FETCHED,
    RETRYING,
    WAITING,
    PartitionLog,
)


@dataclass(eq=False)
class PartInside:
    """The records of one partition and one assignment inside a chunk."""

    log: PartitionLog
    indices: NDArray[np.int64]
    #: index of each in the chunk
    positions: NDArray[np.int64]
    epoch: int


@dataclass(eq=False)
class ChunkInside:
    """A chunk in a process, running or queued behind the one that runs."""

    chunk: cmd.Chunk
    process: int
    parts: list[PartInside]
    #: partition -> bit set of the chains that it holds
    chains: dict[Partition, int]
    submitted_at: float

    def __len__(self) -> int:
        return sum(len(part.indices) for part in self.parts)

    def records(self) -> list[tuple[PartInside, int]]:
        """Return (part, index in its log) of each record, by index in the chunk."""
        by_position = {
            position: (part, index)
            for part in self.parts
            for position, index in zip(part.positions.tolist(), part.indices.tolist(), strict=True)
        }
        return [by_position[position] for position in range(len(self))]


@dataclass(frozen=True, slots=True)
class AckGroup:
    """Records of one part of one chunk that were produced at once: the core settles by pieces."""

    partition: Partition
    epoch: int
    chunk_id: int
    chunk_part: int
    #: they were given up, instead of having failed or given outputs
    given_up: bool


class Held:
    """Records of the assigned partitions, and what becomes of them."""

    def __init__(self, config: FlowConfig, logs: Sequence[PartitionLog]) -> None:
        self.config = config
        self.logs = {log.partition: log for log in logs}
        self.shards = max(16, 4 * config.processes)
        self.epochs: Counter[Partition] = Counter()
        self.assigned: set[Partition] = set()
        #: (partition, index, epoch) -> acknowledgements it still needs
        self.acks_needed: Counter[tuple[Partition, int, int]] = Counter()
        #: records that count as done together, when the last of them is acknowledged
        self.ack_groups: dict[AckGroup, set[int]] = {}
        #: records that a process died of, alone
        self.killed_alone: set[tuple[Partition, int, int]] = set()
        #: (partition, index, epoch) -> times that it asked for a retry, or its process died
        self.attempts: Counter[tuple[Partition, int, int]] = Counter()
        #: raw bytes and records fetched and not finished
        self.held_bytes = 0
        self.held_records = 0
        #: records finished so far, whatever the assignment
        self.finished_records = 0

    def is_epoch(self, partition: Partition, epoch: int) -> bool:
        return partition in self.assigned and self.epochs[partition] == epoch

    def is_current(self, part: PartInside) -> bool:
        """Tell whether a part belongs to an assignment that still holds."""
        return self.is_epoch(part.log.partition, part.epoch)

    def drop_partition(self, partition: Partition) -> None:
        log = self.logs[partition]
        unsettled = np.flatnonzero(log.is_unsettled()) + log.first
        self.held_records -= len(unsettled)
        self.held_bytes -= int(log.payload_bytes[unsettled].sum())
        log.state[log.first :] = NOT_FETCHED
        self.assigned.discard(partition)

    def finish_records(self, log: PartitionLog, indices: NDArray[np.int64]) -> None:
        log.state[indices] = FINISHED
        log.handled[indices] += 1
        self.finished_records += len(indices)
        self.held_records -= len(indices)
        self.held_bytes -= int(log.payload_bytes[indices].sum())

    def await_acks(
        self, log: PartitionLog, index: int, count: int, *, given_up: bool = False
    ) -> None:
        log.state[index] = AWAITING_ACK
        self.acks_needed[log.partition, index, self.epochs[log.partition]] = count
        self.ack_groups.setdefault(self._ack_group(log, index, given_up), set()).add(index)

    def _ack_group(self, log: PartitionLog, index: int, given_up: bool) -> AckGroup:
        chunk_id, chunk_part = int(log.chunk_id[index]), int(log.chunk_part[index])
        epoch = self.epochs[log.partition]
        return AckGroup(log.partition, epoch, chunk_id, chunk_part, given_up)

    def acknowledged(self, partition: Partition, index: int, epoch: int) -> None:
        if not self.is_epoch(partition, epoch):
            return
        log = self.logs[partition]
        for given_up in (False, True):
            group = self._ack_group(log, index, given_up)
            together = self.ack_groups.get(group, set())
            if index in together and not any(
                (partition, i, epoch) in self.acks_needed for i in together
            ):
                del self.ack_groups[group]
                self.finish_records(log, np.array(sorted(together)))

    def goes_again(self, inside: ChunkInside, outcome: ev.ChunkOutcome) -> set[int]:
        """Return which records of the chunk go again: those that ask, and what follows them.

        A record follows when it has the same key, or in order of partitions the same partition.
        """
        retried = {fault.index for fault in outcome.retry}
        blocked: set[tuple[Partition, int]] = set()
        again = set()
        for position, (part, index) in enumerate(inside.records()):
            log = part.log
            key = int(log.key_hashes[index])
            if self.config.ordering is Ordering.PARTITION:
                key = 0
            is_free = self.config.ordering is Ordering.UNORDERED or (
                self.config.ordering is Ordering.KEY and log.is_null_key[index]
            )
            if position in retried or (not is_free and (log.partition, key) in blocked):
                again.add(position)
                if not is_free:
                    blocked.add((log.partition, key))
        return again

    def apply_each(self, inside: ChunkInside, outcome: ev.ChunkOutcome, again: set[int]) -> None:
        failed = {fault.index for fault in outcome.failed}
        outputs: Mapping[int, int] = Counter(output.index for output in outcome.outputs)
        retried = {fault.index for fault in outcome.retry}
        for position, (part, index) in enumerate(inside.records()):
            if not self.is_current(part):
                continue
            record = (part.log.partition, index, part.epoch)
            if position in again:
                part.log.state[index] = RETRYING if position in retried else WAITING
                self.attempts[record] += position in retried
            elif position in failed:
                self.await_acks(part.log, index, 1)
            elif outputs.get(position):
                self.await_acks(part.log, index, outputs[position])
            else:
                self.finish_records(part.log, np.array([index]))

    def let_go(self, log: PartitionLog) -> None:
        """Forget what waits above the highest record that was started: the next owner reads it."""
        state = log.state[log.first : log.position]
        started = np.flatnonzero(np.isin(state, (INSIDE, AWAITING_ACK, FINISHED)))
        above = int(started[-1]) + 1 if len(started) else 0
        waits = (state[above:] == WAITING) | (state[above:] == RETRYING)
        gone = log.first + above + np.flatnonzero(waits)
        log.state[gone] = NOT_FETCHED
        self.held_records -= len(gone)
        self.held_bytes -= int(log.payload_bytes[gone].sum())

    def chain_bits(self, log: PartitionLog, found: NDArray[np.int64]) -> int:
        if self.config.ordering is Ordering.UNORDERED:
            return 0
        if self.config.ordering is Ordering.PARTITION:
            return 1
        keyed = found[~log.is_null_key[found]]
        shards = np.bincount(log.key_hashes[keyed] % self.shards).nonzero()[0]
        return sum(1 << int(shard) for shard in shards)
