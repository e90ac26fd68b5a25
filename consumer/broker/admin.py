"""A Kafka that runs somewhere: its topics are made and deleted here, nothing else.

Owns the admin client. Does not care who started the brokers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from consumer.errors import ConsumerError

_POLL_SECONDS = 0.05


class BrokerError(ConsumerError):
    """The Kafka that this process starts, or was pointed to, does not do what it should."""


class KafkaAdmin:
    """A Kafka that is running somewhere, and the topics made on it.

    Parameters
    ----------
    bootstrap_servers : str
        ``host:port``, several separated by commas.
    properties : Mapping, optional
        More of the client's properties, by librdkafka's names: what a secured broker wants.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._properties = dict(properties or {})
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        """The admin client, made when it is first wanted."""
        if self._client is None:
            self._client = AdminClient(
                {
                    **self._properties,
                    "bootstrap.servers": self.bootstrap_servers,
                    # Refused connections while a node starts are expected; each would be printed.
                    "log_level": 0,
                    # A node that comes back is to be seen at once (the default waits up to 10 s).
                    "reconnect.backoff.max.ms": 200,
                }
            )
        return self._client

    def create_topic(
        self, name: str, partitions: int = 1, *, timeout_seconds: float = 30.0, **config: object
    ) -> str:
        """Make a topic and wait until the leader of each of its partitions answers.

        Parameters
        ----------
        name : str
            Name of the topic.
        partitions : int
            Number of partitions, >= 1.
        timeout_seconds : float
            Longest wait.
        **config
            Topic settings with underscores for dots: ``max_message_bytes=1000``.

        Returns
        -------
        str
            The name, for use in an expression.

        Raises
        ------
        BrokerError
            If the topic cannot be made or its leaders do not answer in time.
        """
        deadline = time.monotonic() + timeout_seconds
        # Minus one: the number of replicas that the broker's settings say.
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1,
            config={key.replace("_", "."): str(value) for key, value in config.items()},
        )
        try:
            self.client.create_topics([topic], operation_timeout=timeout_seconds)[name].result()
        except KafkaException as error:
            message = f"topic {name!r} could not be made on {self.bootstrap_servers}: {error}"
            raise BrokerError(message) from error
        while not self._leaders_answer(name, partitions):
            if time.monotonic() > deadline:
                message = f"topic {name!r} has no leaders that answer after {timeout_seconds:g} s"
                raise BrokerError(message)
            time.sleep(_POLL_SECONDS)
        return name

    def delete_topic(self, name: str, *, timeout_seconds: float = 30.0) -> None:
        """Delete a topic; one that does not exist is fine."""
        with contextlib.suppress(KafkaException):
            self.client.delete_topics([name], operation_timeout=timeout_seconds)[name].result()

    def _leaders_answer(self, name: str, partitions: int) -> bool:
        # The metadata name a leader before it knows that it leads: it is asked something.
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(name, number): latest for number in range(partitions)}
        with contextlib.suppress(KafkaException):
            found = self.client.list_topics(name, timeout=5.0).topics[name].partitions
            if len(found) != partitions or any(p.leader < 0 for p in found.values()):
                return False
            answers = self.client.list_offsets(asked, request_timeout=5.0)
            return all(answer.exception() is None for answer in answers.values())
        return False

    def _broker_count(self) -> int:
        with contextlib.suppress(KafkaException):
            return len(self.client.list_topics(timeout=2.0).brokers)
        return 0
