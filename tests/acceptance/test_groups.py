"""Workers that join and leave a group while records are handled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance import running
from tests.acceptance.payloads import points
from tests.acceptance.running import Worker
from tests.producing import produce

PARTITIONS = 4
#: The classic protocol tells of a rebalance with a heartbeat.
CLASSIC: dict[str, Any] = {"KAFKA_SESSION_TIMEOUT_MS": 2000, "KAFKA_HEARTBEAT_INTERVAL_MS": 500}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": CLASSIC,
    "eager": {"KAFKA_PARTITION_ASSIGNMENT_STRATEGY": "range", **CLASSIC},
    "consumer": {"KAFKA_GROUP_PROTOCOL": "consumer"},
}


def owned(worker):
    return worker.metric("partitions", "assigned")


def quick(kafka, group, protocol):
    """Return settings of a group that rebalances and forgets quickly; small work in flight."""
    if protocol == "consumer":
        running.set_group_config(kafka, group, "consumer.heartbeat.interval.ms", 500)
        running.set_group_config(kafka, group, "consumer.session.timeout.ms", 2000)
    return {"VBTEST_SECONDS_PER_RECORD": 0.002, "VERTEX_BUDGET": 400, **PROTOCOLS[protocol]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scaling_out_and_in_loses_nothing(kafka, topic_factory, group_id, tmp_path, protocol):
    """A second worker takes its share in mid-stream and leaves again: nothing lost or repeated."""
    topic = topic_factory(PARTITIONS)
    places = produce(kafka.bootstrap_servers, topic, points(2_500))
    settings = quick(kafka, group_id, protocol)
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    with Worker(*arguments, processes=1, **settings) as first:
        first.until_handled(200)
        with Worker(*arguments, processes=1, **settings) as second:
            second.until(lambda: owned(second) == 2, "two partitions for the second")
            first.until(lambda: owned(first) == 2, "two left for the first")
            places += produce(kafka.bootstrap_servers, topic, points(2_500))
            second.until(lambda: second.metric("messages_total", "done") > 200, "its work")
            second.stop()
        first.until(lambda: owned(first) == PARTITIONS, "all partitions back")
        first.until_handled(len(places))
        first.until(
            lambda: running.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        first.until(lambda: first.metric("in_flight_messages") == 0, "nothing in flight")
        first.until(lambda: first.metric("partitions", "paused") == 0, "nothing paused")
        first.stop()
    handled = first.handled()
    assert {h.place for h in handled} == set(places)
    assert running.out_of_order(handled) == []
    # What was inside a process at a revoke was finished and committed before it was given away.
    assert running.duplicates(handled) == {}
    for worker in (first, second):
        assert "Traceback" not in worker.log()


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_a_worker_that_is_killed_is_replaced_by_the_other(
    kafka, topic_factory, group_id, tmp_path, protocol
):
    """Its partitions go to the other worker when its session ends; nothing is lost."""
    topic = topic_factory(PARTITIONS)
    settings = quick(kafka, group_id, protocol)
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    with (
        Worker(*arguments, processes=1, **settings) as first,
        Worker(*arguments, processes=1, **settings) as second,
    ):
        second.until(lambda: owned(second) == 2, "two partitions for the second")
        places = produce(kafka.bootstrap_servers, topic, points(3_000))
        second.until(lambda: second.metric("messages_total", "done") > 200, "its work")
        second.kill()
        killed = second.handled()
        done = running.committed(kafka, group_id, topic)
        first.until(lambda: owned(first) == PARTITIONS, "all partitions")
        first.until_handled(len(places))
        first.until(
            lambda: running.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        first.stop()
    handled = first.handled()
    assert {h.place for h in handled} == set(places)
    above = {h.place for h in killed if h.offset >= done.get(h.partition, 0)}
    assert set(running.duplicates(handled)) <= above
