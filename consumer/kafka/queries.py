"""Questions to the brokers about offsets, each with a limit on its wait.

Owns the asking and nothing else. Those that take a consumer are called on its thread only;
``EndOffsets`` has a client of its own and never waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from consumer.core.ledger.columns import Partition
from consumer.kafka.errors import Reports
from consumer.kafka.tokens import with_guarded_token

#: An end that was not told within this is asked for again.
ANSWER_SECONDS = 10.0


def watermarks(
    consumer: Consumer, partition: Partition, timeout_seconds: float, reports: Reports
) -> tuple[int, int] | None:
    """Return the first offset of the log and the next to be written; None if not answered."""
    try:
        low, high = consumer.get_watermark_offsets(
            ClientPartition(*partition), timeout=timeout_seconds, cached=False
        )
    except KafkaException as thrown:
        reports.add_thrown(thrown, partition)
        return None
    return low, high


class EndOffsets:
    """The ends of partitions' logs, asked for now and picked up later; for the lag.

    Parameters
    ----------
    properties : mapping
        As ``client_properties`` returns them.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        # Silent: what it would log, the consumer says as well.
        self._admin = AdminClient({**with_guarded_token(properties, Reports()), "log_level": 0})
        self._asked: dict[Partition, Future[Any]] = {}

    def ask(self, partitions: Iterable[Partition]) -> None:
        """Send the question, unless an earlier one is still open."""
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        targets = {ClientPartition(*p): latest for p in partitions}
        if self._asked or not targets:
            return
        answers = self._admin.list_offsets(
            targets,
            # Records of open transactions are not there yet, as for the consumer.
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_SECONDS,
        )
        self._asked = {(tp.topic, tp.partition): answer for tp, answer in answers.items()}

    def take(self) -> dict[Partition, int]:
        """Return what has been answered since the last call; what failed is left out."""
        self._admin.poll(0)
        done = {p: answer for p, answer in self._asked.items() if answer.done()}
        for partition in done:
            del self._asked[partition]
        return {p: a.result().offset for p, a in done.items() if a.exception() is None}
