"""The account finds what is wrong: it is no good if it can only say that all is well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from consumer.demo.account import settle
from consumer.demo.broker import PARTITIONS, EmbeddedBroker, Place
from consumer.demo.feed import Feed
from consumer.demo.scenario import (
    DEAD_LETTERS,
    LAND,
    TOPICS,
    VEHICLES,
    extras_of,
    phases,
    records_of,
)
from consumer.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from consumer.traffic.stream import Traffic
from tests.producing import produce

GROUP = "g"


@pytest.fixture
def place() -> Iterator[Place]:
    """Return an embedded broker with the demonstration's topics."""
    with EmbeddedBroker() as broker:
        yield broker.place([*TOPICS, DEAD_LETTERS])


def commit(place: Place, ends: dict[tuple[str, int], int]) -> None:
    member = Consumer({"bootstrap.servers": place.bootstrap_servers, "group.id": GROUP})
    offsets = [TopicPartition(topic, n, end) for (topic, n), end in ends.items()]
    member.commit(offsets=offsets, asynchronous=False)
    member.close()


def handled(folder: Path, *lines: str) -> None:
    with (folder / f"handled-{os.getpid()}").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def dead_letter(place: Place, topic: str, partition: int, offset: int) -> None:
    headers: dict[str, str | bytes | None] = {
        REASON: b"malformed-json",
        SOURCE_TOPIC: topic.encode(),
        SOURCE_PARTITION: b"%d" % partition,
        SOURCE_OFFSET: b"%d" % offset,
    }
    producer = Producer({"bootstrap.servers": place.bootstrap_servers})
    producer.produce(DEAD_LETTERS, value=b"x", partition=1, headers=headers)
    assert producer.flush(10.0) == 0


def test_all_is_well(place, tmp_path):
    """Handled or dead-lettered, each once, and committed."""
    handled(tmp_path, f"{LAND} 0 0", f"{LAND} 0 2", f"{VEHICLES} 3 0")
    dead_letter(place, LAND, 0, 1)
    ends = {(LAND, 0): 3, (VEHICLES, 3): 1}
    commit(place, ends)

    account = settle(ends, tmp_path, place.bootstrap_servers, GROUP)

    assert account.is_complete
    assert (account.produced, account.handled, account.dead_lettered) == (4, 3, 1)
    assert (account.lost, account.unfinished, account.duplicates, account.uncommitted) == (0,) * 4
    assert account.dead_letter_reasons == {"malformed-json": 1}


def test_what_is_lost_twice_or_open_is_counted(place, tmp_path):
    """A committed record that nobody handled is lost; one beyond the commit waits; two are one too many."""
    handled(tmp_path, f"{LAND} 0 0", f"{LAND} 0 2", f"{LAND} 0 2", f"{LAND} 0 3")
    dead_letter(place, LAND, 0, 0)
    commit(place, {(LAND, 0): 3})

    account = settle({(LAND, 0): 6}, tmp_path, place.bootstrap_servers, GROUP)

    assert not account.is_complete
    assert account.lost == 1
    assert account.unfinished == 2
    assert account.uncommitted == 3
    assert account.duplicates == 2
    assert account.handled == 3


def test_the_feed_never_puts_more_into_the_broker_than_it_can_hold(place):
    """Nobody reads: it stops in time, and not one record is dropped by the broker."""
    burst = phases(giants=False)[-1]
    feed = Feed(place, [burst], 2.0 / burst.share, 1)

    feed.run()

    assert feed.failure == ""
    assert 1_000 < feed.records < burst.burst
    reader = Consumer({"bootstrap.servers": place.bootstrap_servers, "group.id": "r"})
    for (topic, partition), records in feed.produced.items():
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0)
        assert (max(0, low), max(0, high)) == (0, records)
    reader.close()


def test_records_larger_than_the_room_go_one_at_a_time(place):
    """The limit holds what waits; it never stops the story for good."""
    feed = Feed(Place(place.bootstrap_servers, 10), phases(giants=False), 10.0, 1)

    assert feed._has_room((VEHICLES, 0), 500)
    feed._ends[VEHICLES, 0].append(500)
    assert not feed._has_room((VEHICLES, 0), 1)
    feed.done = {(VEHICLES, 0): 1}
    assert feed._has_room((VEHICLES, 0), 500)


@pytest.mark.parametrize("giants", [False, True])
def test_the_story_is_the_seeds(giants):
    """Phases fill the time; the same seed tells the same story; only real brokers get giants."""
    story = phases(giants=giants)

    assert np.isclose(sum(phase.share for phase in story), 1.0)
    for phase in story:
        first, again = (list(records_of(phase, 2.0, Traffic(4))) for _ in range(2))
        assert first == again
        assert max(len(value) for due in first for _, value in due.records) < 1_000_000
        extras = extras_of(phase, Traffic(4))
        assert extras == extras_of(phase, Traffic(4))
        large = [at for at, _, (_, value) in extras if len(value) > 1_000_000]
        assert len(large) == phase.giants <= (3 if giants else 0)
        assert len(extras) == phase.giants + len(phase.poison)
        assert {due.topic for due in first} <= set(TOPICS)


def test_the_embedded_broker_has_the_partitions_that_are_counted_on(place):
    """The account and the feed know the partitions without asking."""
    produce(place.bootstrap_servers, VEHICLES, [(b"k", b"v")], partition=PARTITIONS - 1)
