"""The table of properties: defaults with their reasons, what is forced or refused.

Owns data only. One set of properties serves all of the worker's clients, and each client warns
about those of the other kind, so it is written here whose is whose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: The largest dead letter that is tried with its value; the topic's own limit decides.
DEAD_LETTER_LIMIT_BYTES = 100_000_000


#: The client's own defaults.
SESSION_TIMEOUT_MS = 45_000
MAX_POLL_INTERVAL_MS = 300_000


class Default(NamedTuple):
    """A property that the worker sets unless the user does, and why."""

    value: str | int | bool
    reason: str


#: What differs from librdkafka's own defaults.
CONSUMER_DEFAULTS: Mapping[str, Default] = {
    "auto.offset.reset": Default(
        "earliest", "latest skips records on the first start and on partitions added later"
    ),
    "partition.assignment.strategy": Default(
        "cooperative-sticky", "partitions that stay with a member keep flowing in a rebalance"
    ),
    "fetch.queue.backoff.ms": Default(
        15, "with the client's 1,000 a small queue stands empty for most of the time"
    ),
    "fetch.wait.max.ms": Default(100, "a resume waits for the fetch in flight to be answered"),
    "max.poll.interval.ms": Default(
        MAX_POLL_INTERVAL_MS, "the client's own; written out since the drain deadline rests on it"
    ),
    "socket.keepalive.enable": Default(True, "firewalls drop idle connections without a word"),
    "log.connection.close": Default(False, "brokers close idle connections; that is no error"),
    "client.id": Default("vertex-budget", "names the worker in the broker's logs and quotas"),
}

PRODUCER_DEFAULTS: Mapping[str, Default] = {
    "enable.idempotence": Default(True, "a retried dead letter or output is written once"),
    "acks": Default("all", "an offset is committed on the strength of this acknowledgement"),
    "linger.ms": Default(5, "an offset waits for the acknowledgement; batches fill anyway"),
    "topic.metadata.propagation.max.ms": Default(
        5_000, "a topic that was deleted is noticed, and made again, after this"
    ),
    "message.max.bytes": Default(
        DEAD_LETTER_LIMIT_BYTES, "whether a record is too large is the topic's to decide"
    ),
    "socket.keepalive.enable": CONSUMER_DEFAULTS["socket.keepalive.enable"],
    "log.connection.close": CONSUMER_DEFAULTS["log.connection.close"],
    "client.id": CONSUMER_DEFAULTS["client.id"],
}

#: Forced values; a user who sets another is told why not.
CONSUMER_FORCED: Mapping[str, Default] = {
    "enable.auto.commit": Default(
        False, "it commits what was handed out, not what was finished, so a crash loses records"
    ),
    "enable.auto.offset.store": Default(
        False, "the worker commits the lowest unfinished offset itself"
    ),
    "enable.partition.eof": Default(
        True, "the end of a partition is committed, so that the lag of a compacted topic reaches 0"
    ),
}
PRODUCER_FORCED: Mapping[str, Default] = {
    "enable.idempotence": PRODUCER_DEFAULTS["enable.idempotence"],
    "acks": PRODUCER_DEFAULTS["acks"],
    "queue.buffering.max.kbytes": Default(
        2_097_151, "the worker counts what it hands over, and lets one record of any size pass"
    ),
    "delivery.report.only.error": Default(
        False, "an offset is committed only when its dead letter or output is acknowledged"
    ),
}

#: Properties that nobody may set, and why.
REFUSED: Mapping[str, str] = {
    "transactional.id": "the worker promises at-least-once and uses no transactions",
    "enable.gapless.guarantee": "one failed dead letter would end the producer",
    "group.protocol.type": "it is the group's own business",
}
#: Refused with group.protocol=consumer: these are the broker's to set.
BROKER_SIDE: Mapping[str, str] = {
    "session.timeout.ms": "group.consumer.session.timeout.ms",
    "heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "group.consumer.assignors (or group.remote.assignor here)",
}
RESETS = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
    "error": "error",
}

#: other spelling -> main name
ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "compression.type": "compression.codec",
    "queue.buffering.max.ms": "linger.ms",
    "retries": "message.send.max.retries",
}

CONSUMER_ONLY = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "client.rack",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.poll.interval.ms",
        "offset.store.method",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    }
)

PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "msg_order_cmp",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queuing.strategy",
        "request.timeout.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
