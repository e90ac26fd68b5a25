"""Commits of offsets: sent on the consumer, answered as events, never an exception.

Owns the call and the reading of its answer. What is committed, when, and that only one is in
flight is the core's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from consumer.core.events import Committed
from consumer.core.ledger.columns import Partition
from consumer.kafka.errors import describe

#: Partitions whose failure is told; the others fail for the same reason.
MOST_REASONS = 3


def commit(
    consumer: Consumer,
    offsets: Mapping[Partition, int],
    *,
    wait: bool,
    clock: Callable[[], float],
) -> Committed | None:
    """Commit offsets; return the answer, or None if the client's ``on_commit`` gets it later."""
    targets = [ClientPartition(*p, offset) for p, offset in offsets.items()]
    try:
        if not wait:
            consumer.commit(offsets=targets, asynchronous=True)
            return None
        answered = consumer.commit(offsets=targets, asynchronous=False)
    except (KafkaException, RuntimeError) as thrown:
        return Committed(clock(), dict(offsets), describe(thrown))
    return answer(None, answered, clock())


def answer(error: KafkaError | None, offsets: Sequence[ClientPartition], now: float) -> Committed:
    """Return what the broker said of a commit, of the whole and of each partition."""
    reasons = [describe(error)] if error is not None else []
    reasons += [f"{tp.topic}/{tp.partition}: {describe(tp.error)}" for tp in offsets if tp.error]
    answered = {(tp.topic, tp.partition): tp.offset for tp in offsets}
    return Committed(now, answered, "; ".join(reasons[:MOST_REASONS]) or None)
