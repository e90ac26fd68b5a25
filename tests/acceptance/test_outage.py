"""The broker goes away, and comes back or does not."""

from __future__ import annotations

import signal

import pytest

from consumer.broker import RealKafka
from tests.acceptance import asking
from tests.acceptance.payloads import points
from tests.acceptance.running import Worker
from tests.producing import produce
from tests.waiting import wait_until

PARTITIONS = 2
#: One start of a broker, one restart and two workers on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def own_kafka():
    """A broker that tests may kill; each leaves it running."""
    with RealKafka() as started:
        yield started


def topics(kafka, name):
    made = name, f"{name}.out", f"{name}.dlq"
    for topic in made:
        kafka.create_topic(topic, PARTITIONS)
    return made


def test_a_broker_that_is_killed_and_comes_back_costs_no_record(own_kafka, group_id, tmp_path):
    """The worker waits and goes on by itself; nothing is lost, outputs and dead letters included."""
    acts = {900: {"do": "fail"}, 2_400: {"do": "fail"}}
    records = points(2_500, acts=acts)
    topic, out, dlq = topics(own_kafka, "comes-back")
    places = produce(own_kafka.bootstrap_servers, topic, records)
    with Worker(
        tmp_path,
        own_kafka.bootstrap_servers,
        topic,
        group_id,
        VBTEST_SECONDS_PER_RECORD=0.004,
        VERTEX_BUDGET=400,
        VERTEX_BUDGET_OUTPUT_TOPIC=out,
        KAFKA_SESSION_TIMEOUT_MS=6000,
        KAFKA_RECONNECT_BACKOFF_MAX_MS=500,
    ) as worker:
        worker.until_handled(500)
        own_kafka.kill()
        worker.until(lambda: "refused" in worker.log().lower(), "the outage is noticed")
        assert worker.status("/healthz") == 200
        own_kafka.restart()
        worker.until_handled(len(records) - len(acts), 60.0)
        worker.until(
            lambda: asking.lag(own_kafka, group_id, topic, PARTITIONS) == 0,
            "everything committed",
        )
        worker.until(lambda: worker.metric("in_flight_messages") == 0, "nothing in flight")
        worker.until(lambda: worker.metric("partitions", "paused") == 0, "nothing paused")
        worker.stop()
        assert "Traceback" not in worker.log()
        # The client repeats itself several times a second; the log does not.
        assert worker.log().count("Connection refused") < 20
    handled = {h.place for h in worker.handled()}
    assert handled == set(places) - {places[n] for n in acts}
    outputs = asking.read_topic(own_kafka.bootstrap_servers, out, len(handled))
    letters = asking.read_topic(own_kafka.bootstrap_servers, dlq, len(acts))
    assert {m.value() for m in outputs} == {v for n, (_, v) in enumerate(records) if n not in acts}
    assert {m.value() for m in letters} == {records[n][1] for n in acts}


def test_a_stop_does_not_wait_for_a_broker_that_is_away(own_kafka, group_id, tmp_path):
    """The last commit gets no answer: the worker ends within its grace, and says so."""
    topic, _, _ = topics(own_kafka, "stays-away")
    produce(own_kafka.bootstrap_servers, topic, points(1_500))
    with Worker(
        tmp_path,
        own_kafka.bootstrap_servers,
        topic,
        group_id,
        VBTEST_SECONDS_PER_RECORD=0.004,
        VERTEX_BUDGET=200,
        VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS=6,
    ) as worker:
        worker.until_handled(300)
        own_kafka.kill()
        try:
            worker.send(signal.SIGTERM)
            # Left to itself the client waits 45 seconds for its session.
            wait_until(lambda: not worker.running, 30.0, "the end")
        finally:
            own_kafka.restart()
        assert worker.exit_code == 1
        assert "no answer from the broker" in worker.log()
        assert "Traceback" not in worker.log()
