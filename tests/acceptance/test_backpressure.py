"""More work than may be held: pausing, resuming, and never more than the budget."""

from __future__ import annotations

import threading

import pytest

from tests import sample_records
from tests.acceptance import asking, running
from tests.acceptance.payloads import points
from tests.acceptance.running import Worker
from tests.producing import produce


class Watch:
    """Scrapes a worker over and over, and judges each picture by the handler's true costs."""

    def __init__(self, worker, true_seconds):
        self._worker = worker
        self._true_seconds = true_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.scrapes = 0
        #: pictures in which what is in flight takes longer than it may
        self.overruns: list[dict[str, float]] = []
        #: records admitted from one picture to the next although both were over the budget
        self.admitted_over: list[tuple[float, float]] = []
        self.states: set[str] = set()
        self.limits: set[str] = set()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _look(self):
        was_over, admitted_before = False, 0.0
        while not self._over.wait(0.05):
            figures = self._worker.metrics()
            if not figures:
                continue
            self.scrapes += 1
            messages = figures["in_flight_messages"][()]
            vertices = figures["in_flight_vertices"][()]
            deadline = figures["drain_deadline_seconds"][()]
            if self._true_seconds(messages, vertices) > deadline and messages > 1:
                self.overruns.append({"messages": messages, "vertices": vertices})
            # A rate that rises values what is in flight anew: over the budget, but not admitted.
            is_over = max(figures["used_ratio"].values()) > 1.0
            admitted = messages + figures["messages_total"][("done",)]
            if was_over and is_over and admitted > admitted_before:
                self.admitted_over.append((admitted_before, admitted))
            was_over, admitted_before = is_over, admitted
            self.states |= {s for (s,), value in figures["state"].items() if value}
            self.limits |= {c for (c,), value in figures["limited_by"].items() if value}


def work_off(worker, kafka, count, seconds_per_record):
    """Handle a backlog under watch, check that the budget held, and return figures and watch."""
    produce(kafka.bootstrap_servers, worker.topic, points(count))
    with worker:
        with Watch(worker, lambda messages, _: messages * seconds_per_record / 2) as watch:
            worker.until_handled(count, 150.0)
            worker.until(lambda: asking.lag(kafka, worker.group, worker.topic, 4) == 0, "commits")
            worker.until(lambda: worker.metric("in_flight_messages") == 0, "nothing in flight")
            worker.until(lambda: worker.metric("partitions", "paused") == 0, "nothing paused")
        figures = worker.metrics()
        worker.stop()
    assert watch.scrapes > 50
    assert watch.overruns == []
    assert watch.admitted_over == []
    assert "backpressured" in watch.states
    assert "deadline" in watch.limits
    assert worker.log().count("assigned: ") == 1
    assert running.duplicates(worker.handled()) == {}
    assert figures["deadline_source"][("max.poll.interval",)] == 1
    return figures


def has_paused(figures):
    """Whether there were pauses and each ended."""
    return (
        figures["pauses_total"][()] == figures["resumes_total"][()] >= 1
        and figures["paused_seconds_total"][()] > 0
    )


@pytest.mark.timeout(120)
def test_a_slow_handler_with_a_backlog_pauses_and_resumes(kafka, topic_factory, group_id, tmp_path):
    """Half a poll interval of work is let in and no more; then fetching pauses until it is half."""
    worker = Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(4),
        group_id,
        VBTEST_SECONDS_PER_RECORD=0.03,
        KAFKA_MAX_POLL_INTERVAL_MS=26_000,
        KAFKA_SESSION_TIMEOUT_MS=6000,
        VERTEX_BUDGET_WARMUP_SECONDS=1,
        VERTEX_BUDGET_WARMUP_MESSAGES=50,
    )
    assert has_paused(work_off(worker, kafka, 1_100, 0.03))


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("poll_seconds", [6, 26])
def test_a_backlog_of_three_poll_intervals_is_worked_off_without_a_rebalance(
    kafka, topic_factory, group_id, tmp_path, poll_seconds
):
    """The client is called often enough all the time, with pauses and, where they are short, without."""
    worker = Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(4),
        group_id,
        VBTEST_SECONDS_PER_RECORD=0.02,
        KAFKA_MAX_POLL_INTERVAL_MS=poll_seconds * 1000,
        KAFKA_SESSION_TIMEOUT_MS=6000,
        VERTEX_BUDGET_WARMUP_SECONDS=1,
        VERTEX_BUDGET_WARMUP_MESSAGES=50,
    )
    figures = work_off(worker, kafka, 330 * poll_seconds, 0.02)
    handled = worker.handled()
    assert handled[-1].at_ns - handled[0].at_ns > 3e9 * poll_seconds
    assert has_paused(figures) or poll_seconds == 6


@pytest.mark.timeout(120)
def test_from_pings_to_polygons_the_budget_follows(kafka, topic_factory, group_id, tmp_path):
    """After a warm-up on pings alone, heavy records shrink the budget before they can overrun it."""
    topic = topic_factory(4)
    light = sample_records.pings(4_000)
    heavy = sample_records.heavy(100, max_vertices=4_000)
    with Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic,
        group_id,
        # Thousands of times what a ping costs, and within what one record may cost.
        VBTEST_SECONDS_PER_VERTEX=0.00005,
        KAFKA_MAX_POLL_INTERVAL_MS=6000,
        KAFKA_SESSION_TIMEOUT_MS=6000,
        VERTEX_BUDGET_WARMUP_SECONDS=0.2,
        VERTEX_BUDGET_WARMUP_MESSAGES=1000,
    ) as worker:
        produce(kafka.bootstrap_servers, topic, light)
        worker.until(lambda: worker.metric("sizings_total", "warm-up") == 1, "a size from pings")
        worker.until_handled(len(light))
        before = worker.metrics()
        with Watch(worker, lambda _, vertices: vertices * 0.00005 / 2) as watch:
            produce(kafka.bootstrap_servers, topic, heavy)
            reasons = ("new-class", "mix-drift", "prediction-failed")
            worker.until(
                lambda: sum(worker.metric("sizings_total", r) for r in reasons), "a new size"
            )
            worker.until_handled(len(light) + len(heavy), 80.0)
            worker.until(lambda: asking.lag(kafka, group_id, topic, 4) == 0, "commits")
        after = worker.metrics()
        worker.stop()
    assert worker.log().count("assigned: ") == 1
    assert after["messages"][()] < before["messages"][()]
    assert after["messages_total"][("dead-lettered",)] == 0
    assert watch.overruns == []
    assert watch.admitted_over == []
    assert running.duplicates(worker.handled()) == {}
