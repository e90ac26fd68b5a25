"""The broker goes away and comes back."""

from __future__ import annotations

import pytest

from consumer.broker import RealKafka
from tests.acceptance import running
from tests.acceptance.payloads import points
from tests.acceptance.running import Worker
from tests.producing import produce

PARTITIONS = 2


@pytest.mark.timeout(150)
def test_a_broker_that_is_killed_and_comes_back_costs_no_record(group_id, tmp_path):
    """The worker waits and goes on by itself; nothing is lost, outputs and dead letters included."""
    acts = {900: {"do": "fail"}, 2_400: {"do": "fail"}}
    records = points(2_500, acts=acts)
    with RealKafka() as kafka:
        for name in ("in", "out", "in.dlq"):
            kafka.create_topic(name, PARTITIONS)
        places = produce(kafka.bootstrap_servers, "in", records)
        with Worker(
            tmp_path,
            kafka.bootstrap_servers,
            "in",
            group_id,
            VBTEST_SECONDS_PER_RECORD=0.004,
            VERTEX_BUDGET=400,
            VERTEX_BUDGET_OUTPUT_TOPIC="out",
            KAFKA_SESSION_TIMEOUT_MS=6000,
            KAFKA_RECONNECT_BACKOFF_MAX_MS=500,
        ) as worker:
            worker.until_handled(500)
            kafka.kill()
            worker.until(lambda: "refused" in worker.log().lower(), "the outage is noticed")
            assert worker.status("/healthz") == 200
            kafka.restart()
            worker.until_handled(len(records) - len(acts), 60.0)
            worker.until(
                lambda: running.lag(kafka, group_id, "in", PARTITIONS) == 0,
                "everything committed",
            )
            worker.until(lambda: worker.metric("in_flight_messages") == 0, "nothing in flight")
            worker.until(lambda: worker.metric("partitions", "paused") == 0, "nothing paused")
            worker.stop()
            assert "Traceback" not in worker.log()
        handled = {h.place for h in worker.handled()}
        assert handled == set(places) - {places[n] for n in acts}
        outputs = running.read_topic(kafka.bootstrap_servers, "out", len(handled))
        letters = running.read_topic(kafka.bootstrap_servers, "in.dlq", len(acts))
    assert {m.value() for m in outputs} == {v for n, (_, v) in enumerate(records) if n not in acts}
    assert {m.value() for m in letters} == {records[n][1] for n in acts}
