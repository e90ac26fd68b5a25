"""Workers that join and leave a group while records are handled."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import pytest

from tests.acceptance import asking, running
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


def owned_numbers(worker):
    """Return the partitions whose lag the worker shows: those that it owns."""
    return {int(labels[0]) for labels in worker.metrics().get("lag_messages", {})}


def quick(kafka, group, protocol):
    """Return settings of a group that rebalances and forgets quickly; small work in flight."""
    if protocol == "consumer":
        asking.set_group_config(kafka, group, "consumer.heartbeat.interval.ms", 500)
        asking.set_group_config(kafka, group, "consumer.session.timeout.ms", 2000)
    return {"VBTEST_SECONDS_PER_RECORD": 0.002, "VERTEX_BUDGET": 400, **PROTOCOLS[protocol]}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "protocol",
    [
        "cooperative",
        pytest.param("eager", marks=pytest.mark.slow),
        pytest.param("consumer", marks=pytest.mark.slow),
    ],
)
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
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
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


@pytest.mark.slow
@pytest.mark.timeout(120)
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
        done = asking.committed(kafka, group_id, topic)
        first.until(lambda: owned(first) == PARTITIONS, "all partitions")
        first.until_handled(len(places))
        first.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        first.stop()
    handled = first.handled()
    assert {h.place for h in handled} == set(places)
    above = {h.place for h in killed if h.offset >= done.get(h.partition, 0)}
    assert set(running.duplicates(handled)) <= above


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_that_was_frozen_joins_again(kafka, topic_factory, group_id, tmp_path):
    """Stopped for longer than its session, it has lost its partitions; it commits none of them."""
    topic = topic_factory(PARTITIONS)
    places = produce(kafka.bootstrap_servers, topic, points(2_000))
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    settings = quick(kafka, group_id, "cooperative")
    with (
        Worker(*arguments, processes=1, **settings) as first,
        Worker(*arguments, processes=1, **settings) as second,
    ):
        second.until(lambda: owned(second) == 2, "two partitions for the second")
        second.send(signal.SIGSTOP)
        first.until(lambda: owned(first) == PARTITIONS, "all partitions for the first")
        places += produce(kafka.bootstrap_servers, topic, points(1_000))
        second.send(signal.SIGCONT)
        first.until(lambda: owned(first) == 2, "two left for the first")
        second.until(lambda: owned(second) == 2, "two for the second again")
        places += produce(kafka.bootstrap_servers, topic, points(1_000))
        first.until_handled(len(places))
        first.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        first.stop()
        second.stop()
    assert {h.place for h in first.handled()} == set(places)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_revoke_does_not_wait_for_what_hangs(kafka, topic_factory, group_id, tmp_path):
    """At the drain deadline partitions go to the next owner, who handles what was inside as well.

    When they come back, the late results of the former assignment move no offset.
    """
    topic = topic_factory(PARTITIONS)
    gate = tmp_path / "gate"
    gate.touch()
    places = produce(kafka.bootstrap_servers, topic, points(400))
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    settings = {**CLASSIC, "VERTEX_BUDGET": 400, "VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS": 4}
    with Worker(*arguments, VBTEST_GATE=gate, **settings) as first:
        first.until(lambda: first.metric("in_flight_messages") == 400, "everything in flight")
        with Worker(*arguments, **settings) as second:
            second.until(lambda: owned(second) == 2, "two partitions for the second")
            mine = {0, 1, 2, 3} - owned_numbers(first)
            of_mine = {place for place in places if place[0] in mine}
            second.until(
                lambda: {h.place for h in second.handled()} >= of_mine, "all of them handled"
            )
            second.stop()
        first.until(lambda: owned(first) == PARTITIONS, "all partitions back")
        places += produce(kafka.bootstrap_servers, topic, points(400))
        gate.unlink()
        first.until_handled(len(places))
        first.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        first.until(lambda: first.metric("in_flight_messages") == 0, "nothing in flight")
        first.until(lambda: first.metric("partitions", "paused") == 0, "nothing paused")
        first.stop()
    assert {h.place for h in first.handled()} == set(places)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_static_member_waits_until_its_former_self_is_forgotten(
    kafka, topic_factory, group_id, tmp_path
):
    """Killed and started again at once with the protocol ``consumer``: it says what it waits for."""
    topic = topic_factory(2)
    asking.set_group_config(kafka, group_id, "consumer.heartbeat.interval.ms", 1000)
    asking.set_group_config(kafka, group_id, "consumer.session.timeout.ms", 10_000)
    places = produce(kafka.bootstrap_servers, topic, points(1_500))
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    settings = {
        "VBTEST_SECONDS_PER_RECORD": 0.002,
        "VERTEX_BUDGET": 400,
        "KAFKA_GROUP_INSTANCE_ID": "one",
        **PROTOCOLS["consumer"],
    }
    with Worker(*arguments, processes=1, **settings) as first:
        first.until_handled(200)
        first.kill()
    with Worker(*arguments, processes=1, **settings) as second:
        second.until(lambda: second.state() == "waiting-for-instance-id", "its state")
        assert second.status("/healthz") == 200
        second.until_handled(len(places), 90.0)
        second.until(lambda: asking.lag(kafka, group_id, topic, 2) == 0, "everything committed")
        second.until(lambda: second.state() != "waiting-for-instance-id", "its state afterwards")
        second.stop()
    assert {h.place for h in second.handled()} == set(places)


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stop_in_the_middle_of_a_rebalance_repeats_nothing(
    kafka, topic_factory, group_id, tmp_path, protocol
):
    """Workers are replaced one after another, each stopped while its successor joins the group."""
    topic = topic_factory(PARTITIONS)
    settings = quick(kafka, group_id, protocol)
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    places = produce(kafka.bootstrap_servers, topic, points(1_000))
    with contextlib.ExitStack() as stack:
        current = stack.enter_context(Worker(*arguments, processes=1, **settings))
        current.until(lambda: owned(current) == PARTITIONS, "all partitions")
        for _ in range(4):
            successor = stack.enter_context(Worker(*arguments, processes=1, **settings))
            successor.until_said("metrics on port")
            places += produce(kafka.bootstrap_servers, topic, points(500))
            current.stop()
            current = successor
        current.until_handled(len(places))
        current.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        current.stop()
    handled = running.handled(tmp_path)
    assert {h.place for h in handled} == set(places)
    assert running.duplicates(handled) == {}
