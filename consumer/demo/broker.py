"""The demonstration's broker: one inside this process, or a real one.

Owns starting and ending it, its topics, and how much it can hold. The embedded one is the Kafka
client's own mock cluster: it takes records of 1 MB, keeps the last 5 MiB of each partition and
drops what is older, read or not. So whoever writes must keep what is unread below that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, Producer

from consumer.broker import RealKafka
from consumer.errors import ConsumerError

#: Partitions that the embedded broker gives every topic.
PARTITIONS = 4
#: Bytes of each partition that may be unread: far enough from what it keeps.
EMBEDDED_UNREAD_BYTES = 3_500_000
#: A real broker keeps everything; what waits at the end has to be worked off all the same.
REAL_UNREAD_BYTES = 8_000_000
_START_SECONDS = 10.0


class DemoError(ConsumerError):
    """The demonstration cannot go on: what happened, and what to look at."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where records go."""

    bootstrap_servers: str
    #: most bytes of a partition that nobody has handled yet
    unread_bytes: int


class EmbeddedBroker:
    """The mock cluster of one client, alive while that client is."""

    def __init__(self) -> None:
        self._client: Producer | None = None

    def __enter__(self) -> Self:
        self._client = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client = None

    def place(self, topics: Sequence[str]) -> Place:
        """Make the topics and return where they are.

        Raises
        ------
        DemoError
            If it does not answer, or makes topics otherwise than it is known to.
        """
        assert self._client is not None
        try:
            for topic in topics:
                # Asking for a topic makes it.
                answer = self._client.list_topics(topic, timeout=_START_SECONDS)
                if len(answer.topics[topic].partitions) != PARTITIONS:
                    msg = f"the embedded broker gave {topic} other than {PARTITIONS} partitions"
                    raise DemoError(msg)
        except KafkaException as error:
            msg = f"the embedded broker does not answer: {error.args[0].str()}"
            raise DemoError(msg) from None
        brokers = answer.brokers.values()
        servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return Place(servers, EMBEDDED_UNREAD_BYTES)


class RealBroker:
    """A real Kafka, started for the demonstration and deleted after it."""

    def __init__(self) -> None:
        self._kafka = RealKafka()

    def __enter__(self) -> Self:
        self._kafka.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kafka.stop()

    def place(self, topics: Sequence[str]) -> Place:
        """Make the topics and return where they are."""
        for topic in topics:
            self._kafka.create_topic(topic, PARTITIONS, max_message_bytes=16 << 20)
        return Place(self._kafka.bootstrap_servers, REAL_UNREAD_BYTES)
