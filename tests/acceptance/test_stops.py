"""The end of a worker in the middle of its work, and the next one's beginning."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests import sample_records
from tests.acceptance import asking, running
from tests.acceptance.payloads import points
from tests.acceptance.running import Worker
from tests.producing import produce
from tests.waiting import wait_until

PARTITIONS = 4


def test_a_stop_that_drains_repeats_nothing(kafka, topic_factory, group_id, tmp_path):
    """SIGTERM in the middle: the next worker goes on, nothing is lost and nothing handled twice."""
    topic = topic_factory(PARTITIONS)
    records = sample_records.mixed(3_000)
    settings: dict[str, Any] = {
        "VBTEST_SECONDS_PER_RECORD": 0.002,
        "VERTEX_BUDGET_WARMUP_SECONDS": 0.2,
        "VERTEX_BUDGET_WARMUP_MESSAGES": 300,
    }
    places = produce(kafka.bootstrap_servers, topic, records)
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    with Worker(*arguments, **settings) as first:
        first.until_handled(800)
        first.stop()
        assert "left the group" in first.log()
    half = first.handled()
    assert len(half) < len(records)
    assert running.duplicates(half) == {}
    # What is committed is what was handled, partition by partition, with no hole below it.
    done = asking.committed(kafka, group_id, topic)
    for partition in range(PARTITIONS):
        offsets = {h.offset for h in half if h.partition == partition}
        assert offsets == set(range(done.get(partition, 0)))
    with Worker(*arguments, **settings) as second:
        second.until_handled(len(records))
        second.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        second.until(lambda: second.metric("sizings_total", "warm-up") == 1, "a size of its own")
        second.stop()
    assert {h.place for h in second.handled()} == set(places)
    assert running.duplicates(second.handled()) == {}
    assert running.out_of_order(second.handled()) == []


def test_a_kill_repeats_no_more_than_what_was_above_the_committed_end(
    kafka, topic_factory, group_id, tmp_path
):
    """SIGKILL in the middle: nothing is lost; only what was not committed is handled again."""
    topic = topic_factory(PARTITIONS)
    records = points(3_000)
    places = produce(kafka.bootstrap_servers, topic, records)
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    # A static member is let in again at once, whatever the broker thinks of its predecessor.
    settings: dict[str, Any] = {
        "VBTEST_SECONDS_PER_RECORD": 0.002,
        "KAFKA_GROUP_INSTANCE_ID": "one",
    }
    with Worker(*arguments, **settings) as first:
        first.until_handled(800)
        first.until(lambda: sum(asking.committed(kafka, group_id, topic).values()) > 200, "commits")
        first.kill()
    half = first.handled()
    assert len(half) < len(records)
    done = asking.committed(kafka, group_id, topic)
    for partition, end in done.items():
        assert set(range(end)) <= {h.offset for h in half if h.partition == partition}
    with Worker(*arguments, **settings) as second:
        second.until_handled(len(records))
        second.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        second.stop()
    handled = second.handled()
    assert {h.place for h in handled} == set(places)
    above = {h.place for h in half if h.offset >= done.get(h.partition, 0)}
    assert set(running.duplicates(handled)) <= above
    assert all(count == 2 for count in running.duplicates(handled).values())


@pytest.mark.slow
def test_a_stop_lets_go_at_the_deadline(kafka, topic_factory, group_id, tmp_path):
    """A record that does not end is let go when the grace is over; the next worker handles it."""
    topic = topic_factory(1)
    gate = tmp_path / "gate"
    gate.touch()
    places = produce(kafka.bootstrap_servers, topic, points(30))
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    with Worker(*arguments, VBTEST_GATE=gate, VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS=3) as first:
        first.until(lambda: first.metric("in_flight_messages") > 0, "work inside")
        first.stop()
    assert first.handled() == []
    gate.unlink()
    with Worker(*arguments) as second:
        second.until_handled(30)
        second.until(lambda: asking.lag(kafka, group_id, topic, 1) == 0, "everything committed")
        second.stop()
    assert {h.place for h in second.handled()} == set(places)
    assert running.duplicates(second.handled()) == {}


def test_a_second_signal_leaves_at_once(kafka, topic_factory, group_id, tmp_path):
    """It does not wait for what is inside a process, and commits nothing of it."""
    topic = topic_factory(1)
    gate = tmp_path / "gate"
    gate.touch()
    produce(kafka.bootstrap_servers, topic, points(30))
    with Worker(tmp_path, kafka.bootstrap_servers, topic, group_id, VBTEST_GATE=gate) as worker:
        worker.until(lambda: worker.metric("in_flight_messages") > 0, "work inside")
        worker.send(signal.SIGTERM)
        worker.until_said("draining")
        worker.send(signal.SIGTERM)
        wait_until(lambda: not worker.running, 12.0, "the end")
        assert worker.exit_code == 0
    assert asking.committed(kafka, group_id, topic).get(0, 0) == 0
    assert worker.handled() == []
