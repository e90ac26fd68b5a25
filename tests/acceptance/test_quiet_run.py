"""A quiet run: nothing fails, nobody joins or leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests import sample_records
from tests.acceptance import asking, running
from tests.acceptance.payloads import point
from tests.acceptance.running import Worker
from tests.producing import produce

#: A size soon after the first records, whatever the speed of the machine.
EARLY: dict[str, Any] = {"VERTEX_BUDGET_WARMUP_SECONDS": 0.1, "VERTEX_BUDGET_WARMUP_MESSAGES": 500}


def run_once(worker, kafka, records, partitions, seconds=40.0):
    """Produce, handle everything and stop; return the worker's last figures."""
    count = len(produce(kafka.bootstrap_servers, worker.topic, records))
    with worker:
        worker.until(
            lambda: worker.metric("messages_total", "done") == count, f"{count} done", seconds
        )
        worker.until(
            lambda: asking.lag(kafka, worker.group, worker.topic, partitions) == 0,
            "everything committed",
        )
        worker.until(lambda: worker.lag() == 0, "its own lag is 0")
        worker.until(lambda: worker.metric("sizings_total", "warm-up") == 1, "a size")
        figures = worker.metrics()
        worker.stop()
    handled = worker.handled()
    assert len(handled) == count
    assert running.duplicates(handled) == {}
    assert running.out_of_order(handled) == []
    assert figures["in_flight_messages"][()] == 0
    assert figures["in_flight_bytes"][()] == 0
    assert figures["partitions"][("paused",)] == 0
    assert "Traceback" not in worker.log()
    return figures


@pytest.mark.parametrize("partitions", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_every_record_is_handled_once_and_committed(
    kafka, topic_factory, group_id, tmp_path, partitions
):
    """Each record is handled exactly once, in its key's order, and the group's lag reaches 0."""
    worker = Worker(tmp_path, kafka.bootstrap_servers, topic_factory(partitions), group_id, **EARLY)
    figures = run_once(worker, kafka, sample_records.mixed(6_000), partitions)
    assert figures["partitions"][("assigned",)] == partitions
    assert figures["vertices"][()] > 0
    assert sum(figures["binding"].values()) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("partitions", [4, 8])
def test_a_long_mixed_stream_is_handled_once_and_committed(
    kafka, topic_factory, group_id, tmp_path, partitions
):
    """The same with 50,000 records, the usual warm-up and two real joins a record."""
    worker = Worker(tmp_path, kafka.bootstrap_servers, topic_factory(partitions), group_id)
    run_once(worker, kafka, sample_records.mixed(50_000), partitions, 200.0)


def test_a_small_container_is_bound_by_memory(kafka, topic_factory, group_id, tmp_path):
    """With little memory and a long deadline, the memory bound is the smaller one and binds."""
    worker = Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(4),
        group_id,
        VERTEX_BUDGET_MEMORY_LIMIT="200Mi",
        VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS=280,
        **EARLY,
    )
    figures = run_once(worker, kafka, sample_records.mixed(6_000), 4)
    assert figures["binding"][("memory",)] == 1
    assert figures["vertices"][()] == figures["bound_vertices"][("memory",)]
    assert figures["bound_vertices"][("memory",)] < figures["bound_vertices"][("deadline",)]


def test_a_short_grace_is_bound_by_the_deadline(kafka, topic_factory, group_id, tmp_path):
    """With memory enough and a short grace, the deadline bound is the smaller one and binds."""
    worker = Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(4),
        group_id,
        VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS=1,
        VBTEST_SECONDS_PER_RECORD=0.0005,
        **EARLY,
    )
    figures = run_once(worker, kafka, sample_records.mixed(4_000), 4)
    assert figures["binding"][("deadline",)] == 1
    assert figures["vertices"][()] == figures["bound_vertices"][("deadline",)]
    assert figures["drain_deadline_seconds"][()] == 0.5
    assert figures["deadline_source"][("shutdown-grace",)] == 1


def test_an_empty_topic_is_ready_and_idle(kafka, topic_factory, group_id, tmp_path):
    """Nothing to read: ready, idle, alive, and a lag of 0 for every partition."""
    with Worker(tmp_path, kafka.bootstrap_servers, topic_factory(4), group_id) as worker:
        worker.until_ready()
        worker.until(lambda: worker.metric("partitions", "assigned") == 4, "partitions")
        worker.until(lambda: worker.state() == "idle", "idle")
        worker.until(
            lambda: worker.metrics().get("lag_messages", {}).values() and worker.lag() == 0, "lag"
        )
        assert len(worker.metrics()["lag_messages"]) == 4
        assert worker.status("/healthz") == 200
        assert worker.budget()["state"] == "idle"
        assert worker.metric("vertices") == 0
        worker.stop()


def test_records_without_a_key_use_every_process(kafka, topic_factory, group_id, tmp_path):
    """One partition of keyless records has no order to keep, so all processes work on it."""
    with Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(1),
        group_id,
        VBTEST_SECONDS_PER_RECORD=0.001,
    ) as worker:
        worker.until_ready()
        worker.until(lambda: worker.metric("handler_processes") == 2, "two processes")
        produce(kafka.bootstrap_servers, worker.topic, [point(n) for n in range(1_500)])
        worker.until_handled(1_500)
        worker.stop()
    shares = [len(path.read_text().splitlines()) for path in tmp_path.glob("handled-*")]
    assert len(shares) == 2
    assert min(shares) >= 300, shares


def test_one_partition_in_its_order_says_that_the_order_limits(
    kafka, topic_factory, group_id, tmp_path
):
    """With the order of a partition one process works on it, and ``ordering`` is what limits."""
    with Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(1),
        group_id,
        VERTEX_BUDGET_ORDERING="partition",
        VBTEST_SECONDS_PER_RECORD=0.002,
    ) as worker:
        worker.until_ready()
        worker.until(lambda: worker.metric("handler_processes") == 2, "two processes")
        produce(kafka.bootstrap_servers, worker.topic, [point(n) for n in range(1_500)])
        worker.until(lambda: worker.metric("limited_by", "ordering") == 1, "what limits")
        worker.until_handled(1_500)
        worker.until(lambda: asking.lag(kafka, group_id, worker.topic, 1) == 0, "commits")
        worker.stop()
    offsets = [h.offset for h in worker.handled()]
    assert offsets == list(range(1_500))
