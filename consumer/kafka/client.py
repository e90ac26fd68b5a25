"""The consumer: Kafka's calls and callbacks on one side, the core's events on the other.

Owns the one ``Consumer`` of the worker. Decides nothing: what to fetch, pause or commit is the
core's business.

Rules. One thread makes every call, since a call from another can wait for minutes. A callback
never raises: the client would drop records whose position has already moved. After any
exception every partition is put back to the offset expected next. A callback never polls.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from consumer.core.events import Committed, EndReached, Event, Fetched
from consumer.core.ledger.columns import Partition
from consumer.kafka import commits
from consumer.kafka.errors import (
    ClientError,
    Reports,
    kafka_error,
)
from consumer.kafka.gather import NOTHING_GATHERED, Figures, gather
from consumer.kafka.membership import Membership
from consumer.kafka.positions import Positions
from consumer.kafka.properties import rebalance_is_incremental
from consumer.kafka.restoring import Restorer
from consumer.kafka.tokens import with_guarded_token


class KafkaClient:
    """One member of the consumer group.

    Parameters
    ----------
    properties : mapping
        As ``consumer_properties`` returns them, with ``oauth_cb`` if there is one.
    topics : iterable of str
        What to subscribe to; a name that begins with ``^`` is a pattern.
    on_event : callable
        Told of ``Assigned``, ``Revoked`` and ``Lost`` inside the callback: it may take its time
        over a revocation, and may call ``pause``, ``resume`` and ``commit``, but never
        ``consume``.
    clock : callable
        Monotonic seconds, stamped on events.
    figures : Figures
        Finds vertices and key hashes of raw records.
    logger : logging.Logger, optional
        Gets the client's own log lines, when it is called.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Iterable[str],
        on_event: Callable[[Event], None],
        *,
        clock: Callable[[], float],
        figures: Figures,
        logger: logging.Logger | None = None,
    ) -> None:
        self._topics = list(topics)
        self._clock = clock
        self._figures = figures
        self._positions = Positions()
        self._reports = Reports()
        incremental = rebalance_is_incremental(properties)
        self._membership = Membership(
            self._positions, self._reports, on_event, clock, incremental=incremental
        )
        self._pending: list[Event] = []
        self._thread = threading.get_ident()
        self._closed = False
        config = with_guarded_token(properties, self._reports)
        # A reset is done here, not by the client, which would skip records without a word.
        config["auto.offset.reset"] = "error"
        config["error_cb"] = self._on_error
        config["on_commit"] = self._on_commit
        if logger is not None:
            config["logger"] = logger
        self._consumer = Consumer(config)
        self._restorer = Restorer(
            self._consumer,
            self._positions,
            self._reports,
            incremental=incremental,
            reset=str(properties.get("auto.offset.reset", "earliest")),
        )

    @property
    def joined(self) -> bool:
        """Whether the group has accepted this member, with partitions or without."""
        return self._membership.joined

    def subscribe(self) -> None:
        """Join the group. Partitions are given inside a later ``consume``."""
        self._check_thread()
        self._consumer.subscribe(
            self._topics,
            on_assign=self._membership.on_assign,
            on_revoke=self._membership.on_revoke,
            on_lost=self._membership.on_lost,
        )

    def consume(self, max_records: int, wait_seconds: float) -> list[Event]:
        """Return what the client has, and serve its callbacks.

        Parameters
        ----------
        max_records : int
            At most so many records, >= 1. The only limit on bytes: with a wait the client
            refills its queue while the call gathers.
        wait_seconds : float
            0 in normal running. With a wait the call gathers for all of it, and nothing else
            runs on this thread.

        Returns
        -------
        list of Event
            ``Fetched`` first (at most one), then ``EndReached``, then ``Committed``.

        Raises
        ------
        ClientFatalError
            This consumer will not work again.
        Exception
            Whatever was raised inside, by a signal handler for one. Records that the failed call
            dropped are returned by later calls.
        CallbackFailedError
            Our own code failed in a callback during an earlier call.
        """
        self._check_thread()
        self._raise_failures()
        self._restorer.restore()
        events: list[Event] = []
        try:
            messages = self._consumer.consume(max_records, wait_seconds)
            gathered = gather(messages, self._figures) if messages else NOTHING_GATHERED
        except:  # noqa: E722 - what escapes on Python 3.11 may be no exception: see kafka_error
            self._after_exception(sys.exc_info()[1])
            gathered = NOTHING_GATHERED
        runs = self._positions.accept(gathered.runs)
        if runs:
            events.append(Fetched(self._clock(), runs))
        for message in gathered.errors:
            self._read_error(message, events)
        self._restorer.restore()
        events += self._pending
        self._pending.clear()
        if self._reports.fatal is not None:
            raise self._reports.fatal
        return events

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching these partitions; others than the assigned are passed over."""
        self._switch(partitions, paused=True)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions again; others than the assigned are passed over."""
        self._switch(partitions, paused=False)

    def commit(self, offsets: Mapping[Partition, int], *, wait: bool = False) -> Committed | None:
        """Commit the next offsets to read of assigned partitions.

        Parameters
        ----------
        offsets : mapping
            Partition -> next offset to read. Partitions that are no longer assigned are left
            out, since neither client nor broker would refuse them.
        wait : bool
            Wait for the answer, up to the session timeout if the coordinator is away.

        Returns
        -------
        Committed or None
            The answer, or None if a later ``consume`` returns it. A failure is an answer, never
            an exception.
        """
        self._check_thread()
        held = {p: offset for p, offset in offsets.items() if p in self._positions.assigned}
        if not held:
            return Committed(self._clock(), dict(offsets), "no longer assigned")
        return commits.commit(self._consumer, held, wait=wait, clock=self._clock)

    def take_errors(self) -> list[ClientError]:
        """Return what the client reported since the last call; for the log."""
        return self._reports.take()

    def close(self) -> None:
        """Leave the group. Partitions still held are given back through ``on_event`` first.

        Can block while a broker is away: have a watchdog.
        """
        self._check_thread()
        if self._closed:
            return
        self._closed = True
        try:
            self._consumer.close()
        except:  # noqa: E722 - see consume
            self._reports.add_thrown(sys.exc_info()[1])
        self._membership.lose_everything()

    # Callbacks of the client: called inside ``consume`` and ``close``, on the same thread.

    def _on_error(self, error: KafkaError) -> None:
        with self._membership.guard("error_cb"):
            self._reports.add(error)

    def _on_commit(self, error: KafkaError | None, offsets: list[ClientPartition]) -> None:
        with self._membership.guard("on_commit"):
            self._pending.append(commits.answer(error, offsets, self._clock()))

    # The rest.

    def _raise_failures(self) -> None:
        if self._reports.fatal is not None:
            raise self._reports.fatal
        self._membership.raise_failure()

    def _read_error(self, message: Message, events: list[Event]) -> None:
        error, offset = message.error(), message.offset()
        topic, number = message.topic(), message.partition()
        partition = None if topic is None or number is None else (topic, number)
        if error is None:
            return
        code = error.code()
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the name of librdkafka's code
            if partition and offset is not None and self._positions.reach_end(partition, offset):
                events.append(EndReached(self._clock(), partition, offset))
        elif code == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            if partition and partition in self._positions.assigned:
                self._positions.resets[partition] = offset
        else:
            self._reports.add(error, partition)

    def _after_exception(self, thrown: BaseException | None) -> None:
        """Have every partition put back, as the failed call may have dropped records.

        What the client itself complains of is reported; anything else is not ours to swallow.
        """
        if self._closed:
            raise thrown or RuntimeError("the consumer is closed")
        self._positions.in_doubt.update(self._positions.assigned)
        error = kafka_error(thrown)
        if error is not None:
            self._reports.add(error)
        elif thrown is not None:
            raise thrown

    def _switch(self, partitions: Iterable[Partition], *, paused: bool) -> None:
        self._check_thread()
        chosen = [p for p in partitions if p in self._positions.assigned]
        if not chosen:
            return
        self._membership.switched.update(chosen)
        targets = [ClientPartition(*p) for p in chosen]
        try:
            if paused:
                self._positions.paused.update(chosen)
                self._consumer.pause(targets)
            else:
                self._positions.paused.difference_update(chosen)
                self._consumer.resume(targets)
        except KafkaException as thrown:
            self._reports.add_thrown(thrown)

    def _check_thread(self) -> None:
        assert threading.get_ident() == self._thread, "only the thread that made it may call it"
