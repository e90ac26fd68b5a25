"""Sending dead letters and outputs, until the broker has each of them.

Owns the producers and what was handed over and is not acknowledged. Decides nothing about
records: the core says what to send and learns when it has arrived.

Every record handed over is kept until it is acknowledged or refused for its size. What fails for
any other reason is sent again, so an outage delays and loses nothing. Nothing here waits:
``poll`` does what can be done now. One thread makes every call.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from consumer.core.backoff import backoff_seconds
from consumer.core.commands import Destination, Produce
from consumer.core.events import Delivered
from consumer.core.ledger.columns import Headers
from consumer.kafka.dead_letters import Left, dead_letter_headers, dead_letter_topic
from consumer.kafka.errors import ClientError, Reports, describe, is_fatal, kafka_error
from consumer.kafka.tokens import with_guarded_token
from consumer.kafka.topics import MISSING, Topics

#: What the client keeps beside every record that it holds.
OVERHEAD_BYTES = 512
BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 30.0

#: A batch is refused as a whole for one record, or for its sum: each record is tried alone.
_OF_A_BATCH = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
    }
)


@dataclass(slots=True)
class _Record:
    """One record on its way."""

    number: int
    command: Produce
    topic: str
    size_bytes: int
    #: sent in a batch of its own
    alone: bool = False
    left: Left = Left.NOTHING
    keep_timestamp: bool = True


@dataclass(slots=True)
class _Lane:
    """What waits for one topic."""

    like: str
    waiting: deque[_Record]
    failures: int = 0
    not_before: float = 0.0


class RecordProducer:
    """Dead letters and outputs on their way.

    Parameters
    ----------
    properties : mapping
        As ``producer_properties`` returns them, with ``oauth_cb`` if there is one.
    topics : Topics
        Finds or makes the topics.
    clock : callable
        Monotonic seconds.
    queue_bytes : int
        What may be inside the client at once; one record always may. The rest waits here, as
        the same bytes that the core holds and charges, so waiting costs nothing more.
    dead_letter_topic_name : str, optional
        One topic for all dead letters, instead of ``<topic>.dlq``.
    output_topic : str, optional
        Where outputs go.
    worker_version : str
        Written into every dead letter.
    logger : logging.Logger, optional
        Gets the clients' own log lines.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Topics,
        *,
        clock: Callable[[], float],
        queue_bytes: int,
        worker_version: str,
        dead_letter_topic_name: str | None = None,
        output_topic: str | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._queue_bytes = queue_bytes
        self._worker_version = worker_version
        self._dead_letter_topic = dead_letter_topic_name
        self._output_topic = output_topic
        self._reports = Reports()
        self._config = with_guarded_token(properties, self._reports)
        self._config["error_cb"] = self._on_error
        if logger is not None:
            self._config["logger"] = logger
        self._numbers = 0
        self._generation = 0
        #: alone -> client
        self._clients: dict[bool, Producer] = {}
        self._lanes: dict[str, _Lane] = {}
        self._inside: dict[int, _Record] = {}
        self._inside_bytes = 0
        #: filled by the client's callback, emptied by poll
        self._answers: list[tuple[int, int, KafkaError | None]] = []
        self._delivered: list[Delivered] = []
        self._problem: str | None = None

    def send(self, command: Produce) -> None:
        """Take one record; ``Delivered`` follows.

        Nothing is refused. What cannot go now waits here, for room, for its topic or for the
        broker, and goes by itself in a later ``poll``.
        """
        if command.destination is Destination.DEAD_LETTER:
            topic = dead_letter_topic(command.source[0], self._dead_letter_topic)
        else:
            assert self._output_topic is not None, "an output, and no topic for outputs"
            topic = self._output_topic
        self._numbers += 1
        record = _Record(self._numbers, command, topic, _size_bytes(command))
        lane = self._lanes.setdefault(topic, _Lane(command.source[0], deque()))
        lane.waiting.append(record)
        self._fill(topic, lane)

    def poll(self) -> list[Delivered]:
        """Serve the clients, send what can go now, and return what is settled."""
        for client in list(self._clients.values()):
            client.poll(0)
        answers, self._answers = self._answers, []
        failed: list[_Record] = []
        for generation, number, error in answers:
            if generation == self._generation:
                self._settle(number, error, failed)
        # Put back in their order, before what has not been tried.
        for record in sorted(failed, key=lambda r: r.number, reverse=True):
            self._lanes[record.topic].waiting.appendleft(record)
        if self._reports.fatal is not None:
            self._begin_again()
        for topic, lane in self._lanes.items():
            self._fill(topic, lane)
        delivered, self._delivered = self._delivered, []
        return delivered

    def take_errors(self) -> list[ClientError]:
        """Return what the clients reported since the last call; for the log."""
        return self._reports.take()

    def _fill(self, topic: str, lane: _Lane) -> None:
        """Hand over what waits, oldest first, as far as there is room."""
        if not lane.waiting or self._clock() < lane.not_before:
            return
        if not self._topics.is_ready(topic, like=lane.like):
            self._report(self._topics.problem(topic))
            return
        while lane.waiting and self._hand_over(lane.waiting[0], lane):
            lane.waiting.popleft()

    def _hand_over(self, record: _Record, lane: _Lane) -> bool:
        """Give a record to the client; False if it must wait."""
        if self._inside and self._inside_bytes + record.size_bytes > self._queue_bytes:
            return False
        headers, key, value = self._contents(record)
        timestamp_ms = record.command.timestamp_ms if record.keep_timestamp else 0
        try:
            self._client(alone=record.alone).produce(
                record.topic,
                value=value,
                key=key,
                headers=[*headers],
                timestamp=max(0, timestamp_ms),
                on_delivery=partial(self._on_delivery, self._generation, record.number),
            )
        except BufferError:
            return False
        except KafkaException as thrown:
            error = kafka_error(thrown)
            if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                # No client would send it, alone or not.
                record.alone = True
                return self._give_up(record, error) or self._hand_over(record, lane)
            self._fail(lane, record.topic, error, describe(thrown))
            return False
        self._inside[record.number] = record
        self._inside_bytes += record.size_bytes
        return True

    def _contents(self, record: _Record) -> tuple[Headers, bytes | None, bytes | None]:
        command = record.command
        if command.destination is Destination.OUTPUT:
            return command.headers, command.key, command.value
        headers = dead_letter_headers(
            command, worker_version=self._worker_version, left=record.left
        )
        key = command.key if record.left < Left.EVERYTHING else None
        return headers, key, command.value if record.left < Left.VALUE else None

    def _settle(self, number: int, error: KafkaError | None, failed: list[_Record]) -> None:
        """Draw the consequence of one answer."""
        record = self._inside.pop(number)
        self._inside_bytes -= record.size_bytes
        lane = self._lanes[record.topic]
        if error is None:
            lane.failures = 0
            self._problem = None
            self._delivered.append(Delivered(self._clock(), record.command.delivery_id))
            return
        if error.code() in _OF_A_BATCH:
            if not record.alone:
                record.alone = True
                failed.append(record)
                return
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                if not self._give_up(record, error):
                    failed.append(record)
                return
            if error.code() == KafkaError.INVALID_TIMESTAMP and record.keep_timestamp:
                record.keep_timestamp = False
                failed.append(record)
                return
        failed.append(record)
        self._fail(lane, record.topic, error, describe(error))

    def _give_up(self, record: _Record, error: KafkaError) -> bool:
        """Leave out more of a record that is too large; True if there is nothing left to leave."""
        if record.command.destination is Destination.DEAD_LETTER and record.left < Left.EVERYTHING:
            record.left = Left(record.left + 1)
            return False
        self._delivered.append(
            Delivered(
                self._clock(),
                record.command.delivery_id,
                error=f"{record.topic}: {describe(error)}",
                too_large=True,
            )
        )
        return True

    def _fail(self, lane: _Lane, topic: str, error: KafkaError | None, text: str) -> None:
        """Have a topic's records wait before they are tried again."""
        now = self._clock()
        if now >= lane.not_before:
            lane.failures += 1
            lane.not_before = now + backoff_seconds(
                lane.failures, BACKOFF_SECONDS, BACKOFF_LIMIT_SECONDS
            )
        if error is not None and error.code() in MISSING:
            self._topics.forget(topic)
        if error is not None and is_fatal(error):
            self._reports.add(error)
        self._report(f"{topic}: {text}")

    def _report(self, problem: str | None) -> None:
        """Keep a problem, once for as long as it lasts."""
        if problem is not None and problem != self._problem:
            self._problem = problem
            self._reports.keep(ClientError("NOT_DELIVERED", problem))

    def _begin_again(self) -> None:
        """Replace clients that will not work again; what they held is sent once more."""
        self._generation += 1
        self._reports.fatal = None
        self._answers.clear()
        for client in self._clients.values():
            client.purge()
        self._clients.clear()
        for record in sorted(self._inside.values(), key=lambda r: r.number, reverse=True):
            self._lanes[record.topic].waiting.appendleft(record)
        self._inside.clear()
        self._inside_bytes = 0

    def _client(self, *, alone: bool) -> Producer:
        client = self._clients.get(alone)
        if client is None:
            one_by_one = {"batch.num.messages": 1, "linger.ms": 0} if alone else {}
            client = self._clients[alone] = Producer({**self._config, **one_by_one})
        return client

    # Callbacks of the clients: they only write down.

    def _on_delivery(
        self, generation: int, number: int, error: KafkaError | None, _: Message
    ) -> None:
        self._answers.append((generation, number, error))

    def _on_error(self, error: KafkaError) -> None:
        self._reports.add(error)


def _size_bytes(command: Produce) -> int:
    headers = sum(len(name) + len(data or b"") for name, data in command.headers)
    return len(command.value or b"") + len(command.key or b"") + headers + OVERHEAD_BYTES
