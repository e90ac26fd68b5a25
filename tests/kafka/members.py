"""One member of a group, driven as the worker drives it, with what it saw written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from consumer.core.events import Assigned, Committed, EndReached, Event, Fetched, Lost, Revoked
from consumer.core.ledger.columns import Partition
from consumer.kafka.client import KafkaClient
from consumer.kafka.gather import Figures
from consumer.kafka.properties import consumer_properties
from consumer.payload import counting

FIGURES = Figures(counting.counted_vertices, counting.key_hashes)

#: A member hears of a rebalance with its next heartbeat: frequent ones make short tests.
_QUICK = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6_000}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", **_QUICK},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **_QUICK},
    "consumer": {"group.protocol": "consumer"},
}


class Member:
    """A client whose events are kept; ``on_callback`` acts inside the callbacks."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        group: str,
        *,
        prefetch_bytes: int = 8 * 1024 * 1024,
        **properties: Any,
    ) -> None:
        user = {"bootstrap.servers": bootstrap_servers, "group.id": group, **properties}
        self.told: list[Event] = []
        self.events: list[Event] = []
        #: partition -> (offset, value) of everything returned, in order
        self.records: dict[Partition, list[tuple[int, bytes | None]]] = {}
        self.ends: dict[Partition, int] = {}
        #: partition -> next offset, of what was returned since it was assigned
        self.positions: dict[Partition, int] = {}
        self.on_callback: Callable[[Event], object] = lambda event: None
        self.client = KafkaClient(
            consumer_properties(user, prefetch_bytes=prefetch_bytes, brokers=1),
            [topic],
            self._on_event,
            clock=time.monotonic,
            figures=FIGURES,
        )
        self.client.subscribe()

    def _on_event(self, event: Event) -> None:
        self.told.append(event)
        if isinstance(event, Assigned):
            for partition in event.partitions:
                self.positions.pop(partition, None)
        self.on_callback(event)

    def step(self, max_records: int = 5000, wait_seconds: float = 0.02) -> list[Event]:
        """Consume once and write down what came."""
        events = self.client.consume(max_records, wait_seconds)
        self.events += events
        for event in events:
            if isinstance(event, Fetched):
                for run in event.runs:
                    pairs = zip(run.columns.offsets.tolist(), run.columns.values, strict=True)
                    self.records.setdefault(run.partition, []).extend(pairs)
                    self.positions[run.partition] = int(run.columns.offsets[-1]) + 1
            elif isinstance(event, EndReached):
                partition, end = event.partition, event.next_offset
                self.ends[partition] = end
                # Records behind it may have come in the same call.
                self.positions[partition] = max(end, self.positions.get(partition, end))
        return events

    def run_until(self, condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
        """Consume until something is so."""
        run_until([self], condition, what, seconds)

    @property
    def assigned(self) -> frozenset[Partition]:
        """Partitions that the client knows to be its own."""
        return frozenset(self.client._positions.assigned)

    @property
    def paused(self) -> frozenset[Partition]:
        """Partitions that the client knows to be paused."""
        return frozenset(self.client._positions.paused)

    @property
    def offsets(self) -> dict[Partition, list[int]]:
        """Offsets returned, in order, by partition."""
        return {p: [offset for offset, _ in pairs] for p, pairs in self.records.items()}

    @property
    def count(self) -> int:
        """How many records were returned."""
        return sum(map(len, self.records.values()))

    def told_of(self, kind: type[Assigned] | type[Revoked] | type[Lost]) -> list[Partition]:
        """Partitions of all events of a kind, in order."""
        return [p for event in self.told if isinstance(event, kind) for p in event.partitions]

    def committed(self) -> list[Committed]:
        """Answers to commits that were not waited for."""
        return [event for event in self.events if isinstance(event, Committed)]

    def close(self) -> None:
        """Leave the group."""
        self.client.close()


def run_until(
    members: list[Member], condition: Callable[[], object], what: str, seconds: float = 20.0
) -> None:
    """Drive several members until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        for member in members:
            member.step()
