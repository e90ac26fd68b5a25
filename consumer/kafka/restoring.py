"""Putting partitions back where they must be read on: after a failed call, or without an offset.

The client's own reset is off, since it skips records without a word. A partition whose offset is
known is put there by ``seek``; that is refused where nothing is being fetched, so such partitions
are taken and given again instead.
"""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from consumer.core.ledger.columns import Partition
from consumer.kafka.errors import ClientError, ClientFatalError, Reports
from consumer.kafka.positions import Positions
from consumer.kafka.queries import watermarks

#: Longest wait for an answer that a start position needs.
QUERY_SECONDS = 5.0


class Restorer:
    """Restores the client's idea of each position from ours.

    Parameters
    ----------
    consumer, positions, reports
        The client adapter's own.
    incremental : bool
        Whether the group's protocol gives partitions one by one.
    reset : str
        "earliest", "latest" or "error": where to begin without a usable offset.
    """

    def __init__(
        self,
        consumer: Consumer,
        positions: Positions,
        reports: Reports,
        *,
        incremental: bool,
        reset: str,
    ) -> None:
        self._consumer = consumer
        self._positions = positions
        self._reports = reports
        self._incremental = incremental
        self._reset = reset

    def restore(self) -> None:
        """Put right what is in doubt or without an offset; the next call tries what failed."""
        for partition, offset in list(self._positions.resets.items()):
            start = self._reset_offset(partition, offset)
            if start is not None:
                del self._positions.resets[partition]
                self._positions.move(partition, start)
                self._positions.in_doubt.add(partition)
        if not self._positions.in_doubt:
            return
        refused = [p for p in sorted(self._positions.in_doubt) if not self._seek(p)]
        if not refused or self._assign_again(refused):
            self._positions.in_doubt.clear()

    def _seek(self, partition: Partition) -> bool:
        target = self._positions.start(partition)
        if target.offset < 0:
            return False
        try:
            self._consumer.seek(target)
        except KafkaException:
            # Not being fetched: not yet, or not after an error.
            return False
        return True

    def _assign_again(self, partitions: list[Partition]) -> bool:
        # The eager protocol knows only the whole assignment.
        chosen = partitions if self._incremental else sorted(self._positions.assigned)
        targets = list(map(self._positions.start, chosen))
        paused = [tp for tp in targets if (tp.topic, tp.partition) in self._positions.paused]
        try:
            if self._incremental:
                self._unassign(targets)
                self._consumer.incremental_assign(targets)
            else:
                self._consumer.assign(targets)
            if paused:
                self._consumer.pause(paused)
        except KafkaException as thrown:
            # A rebalance is about to take them.
            self._reports.add_thrown(thrown)
            return False
        return True

    def _unassign(self, targets: list[ClientPartition]) -> None:
        try:
            self._consumer.incremental_unassign(targets)
        except KafkaException as thrown:
            # An earlier try may have got as far as this.
            self._reports.add_thrown(thrown)

    def _reset_offset(self, partition: Partition, offset: int | None) -> int | None:
        """Return where to read on without a usable offset; None if that is not known yet."""
        where = f"partition {partition[1]} of {partition[0]}"
        if self._reset == "error":
            text = f"offset {offset} is out of range in {where}"
            if offset is None:
                text = f"there is no committed offset in {where}"
            text += ", and auto.offset.reset=error: commit the offset to begin at"
            self._reports.fatal = ClientFatalError("_AUTO_OFFSET_RESET", text)
            return None
        if offset is None and self._reset == "earliest":
            return OFFSET_BEGINNING
        bounds = watermarks(self._consumer, partition, QUERY_SECONDS, self._reports)
        if bounds is None:
            return None
        start = bounds[0] if self._reset == "earliest" else bounds[1]
        if offset is not None:
            lost = f", {start - offset} offsets are gone" if start > offset else ""
            text = f"offset {offset} is out of range in {where}: reading on at {start}{lost}"
            self._reports.keep(ClientError("OFFSET_OUT_OF_RANGE", text, partition))
        return start
