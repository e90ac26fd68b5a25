"""Sending records at a pace, with a count of what the broker took and refused.

Owns one producer and its counts. Knows nothing of where records come from.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from consumer.kafka.errors import describe

#: Longest wait at one go, so that a stop is seen at once.
_NAP_SECONDS = 0.05
#: What the producer may hold of records that no broker has taken yet.
QUEUE_KBYTES = 64 << 10
#: Larger than any record that is made; whether it fits is the topic's to decide.
MOST_MESSAGE_BYTES = 64 << 20
#: Answers are waited for this long after the last record.
FLUSH_SECONDS = 30.0


@dataclass(slots=True)
class Sent:
    """What became of the records so far."""

    records: int = 0
    bytes: int = 0
    acknowledged: int = 0
    #: why the broker refused, in words -> records
    refused: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def records_per_second(self) -> float:
        """Mean rate of what was sent."""
        return self.records / self.seconds if self.seconds else 0.0


class Sender:
    """Sends records to one topic.

    Parameters
    ----------
    properties : mapping
        The client's, by librdkafka's names.
    topic : str
        Where to.
    is_stopped : callable
        Whether to stop; asked often.
    on_progress : callable
        Called now and then with what was sent so far.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        *,
        is_stopped: Callable[[], bool],
        on_progress: Callable[[Sent], None] = lambda _: None,
    ) -> None:
        self.sent = Sent()
        self._topic = topic
        self._is_stopped = is_stopped
        self._on_progress = on_progress
        #: the client's last word on why it cannot reach a broker
        self.trouble = ""
        self._producer = Producer(
            {
                "linger.ms": 20,
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
                "message.max.bytes": MOST_MESSAGE_BYTES,
                # As Java's client chooses partitions, so that keys meet those of other producers.
                "partitioner": "murmur2_random",
                **properties,
                "on_delivery": self._delivered,
                "error_cb": self._failed,
                # Said by the summary, once.
                "log_level": 0,
            }
        )
        self._began = time.monotonic()

    def send(self, due_seconds: float, records: Iterable[tuple[bytes | None, bytes]]) -> bool:
        """Send records when they are due; return whether to go on."""
        while (wait := self._began + due_seconds - time.monotonic()) > 0:
            if self._is_stopped():
                return False
            self._producer.poll(min(wait, _NAP_SECONDS))
        for key, value in records:
            if not self._hand_over(key, value):
                return False
        self._producer.poll(0)
        self._tell()
        return not self._is_stopped()

    def finish(self) -> Sent:
        """Wait for the outstanding answers and return what became of everything."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while self._producer.flush(0.2) and time.monotonic() < deadline:
            self._tell()
        left = len(self._producer)
        if left:
            self.sent.refused[self.trouble or "no broker answered"] += left
        self._tell()
        return self.sent

    def _hand_over(self, key: bytes | None, value: bytes) -> bool:
        while True:
            try:
                self._producer.produce(self._topic, key=key, value=value)
            except BufferError:
                # The broker is slower than the records come: let it take some.
                self._producer.poll(_NAP_SECONDS)
                self._tell()
                if self._is_stopped():
                    return False
                continue
            self.sent.records += 1
            self.sent.bytes += len(value) + len(key or b"")
            return True

    def _tell(self) -> None:
        self.sent.seconds = time.monotonic() - self._began
        self._on_progress(self.sent)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.sent.acknowledged += 1
        else:
            self.sent.refused[describe(error)] += 1

    def _failed(self, error: KafkaError) -> None:
        self.trouble = describe(error)
