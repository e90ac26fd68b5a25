"""Topics that the worker writes to: found, or made. Never waits.

Owns one admin client and what is known of each topic. Call it from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumer.kafka.errors import Reports, describe, kafka_error
from consumer.kafka.tokens import with_guarded_token

#: A topic that could not be had is asked for again after this.
RETRY_SECONDS = 2.0
REQUEST_SECONDS = 5.0
#: Partitions of a new topic when those of its source are not known.
FALLBACK_PARTITIONS = 1

#: What brokers and clients say of a topic that is not there.
MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001
#: Answers of brokers that cannot say, or cannot make a topic on demand: sending shows the rest.
_CANNOT_SAY = frozenset(
    {
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
    }
)


@dataclass(slots=True)
class _Topic:
    like: str
    ready: bool = False
    finding: Future[Any] | None = None
    source: Future[Any] | None = None
    making: Future[Any] | None = None
    not_before: float = 0.0
    problem: str | None = None


class Topics:
    """Which topics can be written to.

    Parameters
    ----------
    properties : mapping
        As ``client_properties`` returns them.
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, properties: Mapping[str, Any], *, clock: Callable[[], float]) -> None:
        # Silent: what it would log, the other clients say as well.
        self._admin = AdminClient({**with_guarded_token(properties, Reports()), "log_level": 0})
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def is_ready(self, name: str, *, like: str) -> bool:
        """Whether a topic can be written to; if it is not known, find out by the next calls.

        Parameters
        ----------
        name : str
            The topic.
        like : str
            The topic whose number of partitions a new one gets.
        """
        topic = self._topics.setdefault(name, _Topic(like))
        if not topic.ready:
            self._admin.poll(0)
            self._advance(name, topic)
        return topic.ready

    def problem(self, name: str) -> str | None:
        """Return why a topic cannot be written to; None if it can, or is not known yet."""
        topic = self._topics.get(name)
        return None if topic is None else topic.problem

    def forget(self, name: str) -> None:
        """Find out again: a write said that the topic is not there."""
        self._topics.pop(name, None)

    def _advance(self, name: str, topic: _Topic) -> None:
        if topic.making is not None:
            if topic.making.done():
                self._made(name, topic)
        elif topic.finding is not None and topic.source is not None:
            if topic.finding.done() and topic.source.done():
                self._found(name, topic)
        elif self._clock() >= topic.not_before:
            names = list(dict.fromkeys((name, topic.like)))
            answers = self._admin.describe_topics(
                TopicCollection(names), request_timeout=REQUEST_SECONDS
            )
            topic.finding, topic.source = answers[name], answers[topic.like]

    def _found(self, name: str, topic: _Topic) -> None:
        assert topic.finding is not None
        assert topic.source is not None
        thrown = topic.finding.exception()
        error = kafka_error(thrown)
        source = topic.source
        topic.finding = topic.source = None
        if error is None or error.code() not in MISSING:
            # It is there, or may not be described; writing shows the rest.
            topic.ready = True
            topic.problem = None
            return
        partitions = FALLBACK_PARTITIONS
        if source.exception() is None:
            partitions = len(source.result().partitions)
        new = NewTopic(name, num_partitions=partitions, replication_factor=-1)
        topic.making = self._admin.create_topics([new], request_timeout=REQUEST_SECONDS)[name]

    def _made(self, name: str, topic: _Topic) -> None:
        assert topic.making is not None
        thrown = topic.making.exception()
        topic.making = None
        error = kafka_error(thrown)
        done = error is None and thrown is None
        if error is not None:
            code = error.code()
            done = code == KafkaError.TOPIC_ALREADY_EXISTS or code in _CANNOT_SAY
        if done:
            topic.ready = True
            topic.problem = None
        else:
            reason = describe(thrown)
            topic.problem = f"topic {name} does not exist and cannot be made ({reason}): create it"
            topic.not_before = self._clock() + RETRY_SECONDS
