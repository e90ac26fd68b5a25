"""What this member knows of its partitions: where each is read on, and which are paused.

Owns the bookkeeping; calls nothing. Only the client adapter may use it.
Invariant: everything it holds is about assigned partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition as ClientPartition

from consumer.core.ledger.columns import FetchedRun, Partition

#: What the client says is no offset; given to an assignment, it means the committed one.
COMMITTED_OFFSET = -1001


class Positions:
    """Partitions of one member, from assignment to revocation."""

    def __init__(self) -> None:
        self.assigned: set[Partition] = set()
        self.paused: set[Partition] = set()
        #: to be assigned again at their positions, since what the client holds is in doubt;
        #: until then nothing that it returns of them counts
        self.in_doubt: set[Partition] = set()
        #: without a usable offset: partition -> the offset out of range, None: none committed
        self.resets: dict[Partition, int | None] = {}
        self._next: dict[Partition, int] = {}
        self._starts: dict[Partition, int] = {}

    def start(self, partition: Partition) -> ClientPartition:
        """Return the partition with the offset at which an assignment must begin."""
        offset = self._next.get(partition, self._starts.get(partition, COMMITTED_OFFSET))
        return ClientPartition(*partition, offset)

    def begin(self, partitions: Iterable[Partition]) -> None:
        """Take an assignment; it begins with nothing known and nothing paused."""
        partitions = tuple(partitions)
        self.forget(partitions)
        self.assigned.update(partitions)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Take back an assignment."""
        for partition in partitions:
            self.assigned.discard(partition)
            self.paused.discard(partition)
            self.in_doubt.discard(partition)
            self.resets.pop(partition, None)
            self._next.pop(partition, None)
            self._starts.pop(partition, None)

    def accept(self, runs: Iterable[FetchedRun]) -> tuple[FetchedRun, ...]:
        """Return the runs of partitions that count, and move their positions past them."""
        accepted = tuple(run for run in runs if self._counts(run.partition))
        for run in accepted:
            self._next[run.partition] = int(run.columns.offsets[-1]) + 1
        return accepted

    def reach_end(self, partition: Partition, offset: int) -> bool:
        """Note the end of a partition; say whether the partition counts."""
        if not self._counts(partition):
            return False
        self._next[partition] = max(offset, self._next.get(partition, offset))
        return True

    def move(self, partition: Partition, offset: int) -> None:
        """Expect another offset next; a negative one is a logical offset of the client's."""
        if offset >= 0:
            self._next[partition] = offset
        else:
            self._next.pop(partition, None)
            self._starts[partition] = offset

    def _counts(self, partition: Partition) -> bool:
        return partition in self.assigned and partition not in self.in_doubt
