"""The thread that produces: by the story's clock, and never more than the broker can hold.

Owns the producer, where each record went, and what of it is still unread. Waiting for room moves
the clock of a phase along, so that nothing is caught up that the broker could not have taken.
"""

from __future__ import annotations

import threading
import time
import zlib
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from consumer.demo.broker import PARTITIONS, DemoError, Place
from consumer.demo.scenario import COAST_VERTICES, ROOM_RATIO, TOPICS, Phase, extras_of, records_of
from consumer.kafka.errors import describe
from consumer.traffic.shapes import Record
from consumer.traffic.stream import Traffic

Partition: TypeAlias = tuple[str, int]

#: What the broker adds to a record, and rounding.
_RECORD_OVERHEAD_BYTES = 80
_NAP_SECONDS = 0.01


class Feed(threading.Thread):
    """Produces the phases one after another.

    Parameters
    ----------
    place : Place
        Where to.
    phases : sequence of Phase
        What.
    seconds : float
        All phases together.
    seed : int
        Of the traffic.
    """

    def __init__(self, place: Place, phases: Sequence[Phase], seconds: float, seed: int) -> None:
        super().__init__(name="feed", daemon=True)
        self._place = place
        self._phases = phases
        self._seconds = seconds
        self._traffic = Traffic(seed, coast_vertices=COAST_VERTICES)
        self._halt = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": place.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 10,
                "message.max.bytes": 16 << 20,
                "on_delivery": self._delivered,
                "log_level": 0,
            }
        )
        #: of each record of a partition, the bytes up to its end
        self._ends = {(topic, n): array("q") for topic in TOPICS for n in range(PARTITIONS)}
        self._acknowledged: dict[Partition, int] = dict.fromkeys(self._ends, 0)
        #: partition -> next offset that is not done; replaced as a whole by the watcher
        self.done: Mapping[Partition, int] = {}
        self.phase: Phase = phases[0]
        #: whether the broker has no room just now
        self.waits_for_room = False
        #: what ended it before its time
        self.failure: str = ""
        self.finished = False

    # -- asked by others ---------------------------------------------------------------------

    @property
    def produced(self) -> dict[Partition, int]:
        """Records that the broker has, by partition."""
        return dict(self._acknowledged)

    @property
    def records(self) -> int:
        """Records that the broker has."""
        return sum(self._acknowledged.values())

    def halt(self) -> None:
        """Produce no more; what was handed over is sent."""
        self._halt.set()

    # -- the thread --------------------------------------------------------------------------

    def run(self) -> None:
        """Produce everything, then wait until the broker has it."""
        try:
            for phase in self._phases:
                self.phase = phase
                self._produce_phase(phase, phase.share * self._seconds)
        except DemoError as error:
            self.failure = str(error)
        left = self._producer.flush(20.0)
        if left and not self.failure:
            self.failure = f"the broker did not acknowledge {left} records in 20 s"
        self.finished = True

    def _produce_phase(self, phase: Phase, seconds: float) -> None:
        began = time.monotonic()
        end = began + seconds
        extras = deque(
            (began + share * seconds, topic, record)
            for share, topic, record in extras_of(phase, self._traffic)
        )
        for due in records_of(phase, seconds, self._traffic):
            while (wait := began + due.at_seconds - time.monotonic()) > 0:
                if self._halt.is_set():
                    return
                self._producer.poll(min(wait, 0.05))
            for record in due.records:
                began += self._send(due.topic, record, end)
                while extras and time.monotonic() >= extras[0][0]:
                    self._hand_over(*extras.popleft()[1:])
            self._producer.poll(0)
            if self._halt.is_set() or time.monotonic() >= end or self.failure:
                break
        if not self._halt.is_set():
            for _, topic, record in extras:
                self._hand_over(topic, record)

    def _send(self, topic: str, record: Record, end: float) -> float:
        """Send one record when there is room; return the seconds that it waited."""
        began = time.monotonic()
        waited = 0.0
        while not self._has_room(_partition(topic, record), _size(record)):
            self.waits_for_room = True
            self._producer.poll(_NAP_SECONDS)
            waited = time.monotonic() - began
            if self._halt.is_set() or time.monotonic() >= end:
                self.waits_for_room = False
                return waited
        self.waits_for_room = False
        self._hand_over(topic, record)
        return waited

    def _hand_over(self, topic: str, record: Record) -> None:
        partition = _partition(topic, record)
        key, value = record
        while True:
            try:
                self._producer.produce(topic, key=key, value=value, partition=partition[1])
            except BufferError:
                self._producer.poll(_NAP_SECONDS)
                continue
            ends = self._ends[partition]
            ends.append((ends[-1] if ends else 0) + _size(record))
            return

    def _has_room(self, partition: Partition, size: int) -> bool:
        ends = self._ends[partition]
        done = min(self.done.get(partition, 0), len(ends))
        unread = (ends[-1] if ends else 0) - (ends[done - 1] if done else 0)
        limit = self._place.unread_bytes * ROOM_RATIO[partition[0]]
        return unread == 0 or unread + size <= limit

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        if error is not None:
            self.failure = f"a record was not taken: {describe(error)}"
            return
        assert topic is not None
        assert partition is not None
        place = (topic, partition)
        if message.offset() != self._acknowledged[place]:
            expected = self._acknowledged[place]
            self.failure = f"{topic}[{partition}]: offset {message.offset()}, expected {expected}"
        self._acknowledged[place] += 1


def _partition(topic: str, record: Record) -> Partition:
    return topic, zlib.crc32(record[0]) % PARTITIONS


def _size(record: Record) -> int:
    return len(record[0]) + len(record[1]) + _RECORD_OVERHEAD_BYTES
