"""What the client calls when the group gives and takes partitions.

Owns the rebalance callbacks and what they guard. A callback never raises: the client would drop
records whose position has already moved. It never polls: the client would end the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from consumer.core.events import Assigned, Event, Lost, Revoked
from consumer.core.ledger.columns import Partition
from consumer.kafka.errors import CallbackFailedError, Reports, describe
from consumer.kafka.positions import Positions


class Membership:
    """The group's word on our partitions, passed on as events.

    Parameters
    ----------
    positions, reports
        The client adapter's own.
    on_event : callable
        Told inside the callback; may take its time.
    clock : callable
        Monotonic seconds.
    incremental : bool
        Whether the group's protocol gives partitions one by one.
    """

    def __init__(
        self,
        positions: Positions,
        reports: Reports,
        on_event: Callable[[Event], None],
        clock: Callable[[], float],
        *,
        incremental: bool,
    ) -> None:
        self._positions = positions
        self._reports = reports
        self._on_event = on_event
        self._clock = clock
        self._incremental = incremental
        self._failure: tuple[str, BaseException] | None = None
        #: whether the group has accepted this member
        self.joined = False
        #: paused or resumed since the last assignment began
        self.switched: set[Partition] = set()

    def on_assign(self, consumer: Consumer, given: list[ClientPartition]) -> None:
        """Take partitions: first in the client, since an unassigned one cannot be paused."""
        with self.guard("on_assign"):
            partitions = _names(given)
            self.joined = True
            self._positions.begin(partitions)
            self.switched.clear()
            if self._incremental:
                consumer.incremental_assign(given)
            else:
                consumer.assign(given)
            if partitions:
                self._on_event(Assigned(self._clock(), partitions))
            # The client remembers a pause of an earlier assignment, for ever.
            untouched = [ClientPartition(*p) for p in partitions if p not in self.switched]
            if untouched:
                consumer.resume(untouched)

    def on_revoke(self, consumer: Consumer, taken: list[ClientPartition]) -> None:
        """Give partitions back, after whoever listens has finished with them."""
        partitions = self._held(taken)
        with self.guard("on_revoke"):
            if partitions:
                self._on_event(Revoked(self._clock(), partitions))
        self._give_back(consumer, taken)

    def on_lost(self, consumer: Consumer, taken: list[ClientPartition]) -> None:
        """Forget partitions first: nothing of them may be committed, not even by a mistake."""
        partitions = self._held(taken)
        self._positions.forget(partitions)
        with self.guard("on_lost"):
            if partitions:
                self._on_event(Lost(self._clock(), partitions))
        self._give_back(consumer, taken)

    def lose_everything(self) -> None:
        """Tell of what is still held when the client is gone."""
        left = tuple(sorted(self._positions.assigned))
        if left:
            self._positions.forget(left)
            self._on_event(Lost(self._clock(), left))

    @contextmanager
    def guard(self, callback: str) -> Iterator[None]:
        """Keep what a callback raises away from the client, for the next call to raise."""
        try:
            yield
        except:  # noqa: E722 - on Python 3.11 it may be no exception: see kafka_error
            thrown = sys.exc_info()[1]
            if self._failure is None and thrown is not None:
                self._failure = (callback, thrown)

    def raise_failure(self) -> None:
        """Raise what failed in a callback, once."""
        if self._failure is not None:
            callback, thrown = self._failure
            self._failure = None
            raise CallbackFailedError(callback, describe(thrown)) from thrown

    def _held(self, taken: Iterable[ClientPartition]) -> tuple[Partition, ...]:
        return tuple(p for p in _names(taken) if p in self._positions.assigned)

    def _give_back(self, consumer: Consumer, taken: list[ClientPartition]) -> None:
        self._positions.forget(_names(taken))
        try:
            if self._incremental:
                consumer.incremental_unassign(taken)
            else:
                consumer.unassign()
        except (KafkaException, RuntimeError) as thrown:
            # After a lost session the list may name partitions that are not ours any more.
            self._reports.add_thrown(thrown)


def _names(given: Iterable[ClientPartition]) -> tuple[Partition, ...]:
    return tuple((tp.topic, tp.partition) for tp in given)
