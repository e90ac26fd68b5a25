"""A worker that cannot start says why, in a few lines, and ends with 1 or 2."""

from __future__ import annotations

import signal
import socket

import pytest

from tests.acceptance import running
from tests.acceptance.running import HANDLER, Worker, run_to_end
from tests.waiting import wait_until


def settings(kafka, topic, group, tmp_path, **changes):
    given = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA_GROUP_ID": group,
        "VERTEX_BUDGET_TOPICS": topic,
        "VERTEX_BUDGET_HANDLER": HANDLER,
        "VERTEX_BUDGET_PROCESSES": "1",
        "VERTEX_BUDGET_HTTP_ADDRESS": "127.0.0.1:0",
        "VBTEST_RECORDS": str(tmp_path),
    }
    return given | changes


def complaint(text):
    """Return the message alone: what is neither a log line nor the client's own."""
    assert "Traceback" not in text
    at = text.index("vertex-budget: ")
    return text[at:].strip()


def test_a_missing_broker_is_named(kafka, group_id, tmp_path):
    """Nobody listens where the broker should be: exit code 1, and the address is in the text."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        given = settings(kafka, "t", group_id, tmp_path, KAFKA_BOOTSTRAP_SERVERS=address)
        code, text = run_to_end(given)
    assert code == 1
    assert address in complaint(text)
    assert len(complaint(text).splitlines()) <= 3


def test_a_topic_that_does_not_exist_is_named(kafka, topic_factory, group_id, tmp_path):
    """A topic with a typing error: exit code 1, and its name is in the text."""
    topic = topic_factory(1)
    code, text = run_to_end(settings(kafka, f"{topic}x", group_id, tmp_path))
    assert code == 1
    assert f"{topic}x" in complaint(text)
    assert len(complaint(text).splitlines()) <= 3


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        ("no_such_module:handle", "no_such_module"),
        ("tests.acceptance.handlers:Recordr", "Recorder"),
        ("consumer.handlers", "module:name"),
    ],
)
def test_a_handler_that_cannot_be_imported_is_named(kafka, topic_factory, tmp_path, handler, words):
    """A handler that is not there: exit code 1 or 2, with what is wrong about its name."""
    given = settings(kafka, topic_factory(1), "g", tmp_path, VERTEX_BUDGET_HANDLER=handler)
    code, text = run_to_end(given)
    assert code in (1, 2)
    assert words in complaint(text)
    assert len(complaint(text).splitlines()) <= 3


def test_a_port_in_use_is_named(kafka, topic_factory, group_id, tmp_path):
    """The HTTP port is taken: exit code 1, and the address and the setting are in the text."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, text = run_to_end(
            settings(
                kafka, topic_factory(1), group_id, tmp_path, VERTEX_BUDGET_HTTP_ADDRESS=address
            )
        )
    assert code == 1
    assert address in complaint(text)
    assert "VERTEX_BUDGET_HTTP_ADDRESS" in complaint(text)


def test_every_bad_setting_is_named_at_once(kafka, topic_factory, group_id, tmp_path):
    """Several settings are wrong: exit code 2, and each of them is in one message."""
    code, text = run_to_end(
        settings(
            kafka,
            topic_factory(1),
            group_id,
            tmp_path,
            VERTEX_BUDGET_ORDERING="sorted",
            VERTEX_BUDGET_MEMORY_HEADROOM="1.5",
            VERTEX_BUDGET_COMMIT_INTERVAL="1",
            KAFKA_ENABLE_AUTO_COMMIT="true",
            KAFKA_MAX_POLL_INTERVAL_MS="6000",
        )
    )
    assert code == 2
    for words in (
        "sorted",
        "1.5",
        "VERTEX_BUDGET_COMMIT_INTERVAL",
        "KAFKA_ENABLE_AUTO_COMMIT",
        "KAFKA_MAX_POLL_INTERVAL_MS",
    ):
        assert words in complaint(text)


def test_memory_too_small_is_named(kafka, topic_factory, group_id, tmp_path):
    """Not even one handler process fits: exit code 1, and the least limit that would do is told."""
    code, text = run_to_end(
        settings(kafka, topic_factory(1), group_id, tmp_path, VERTEX_BUDGET_MEMORY_LIMIT="48Mi")
    )
    assert code in (1, 2)
    assert "memory" in complaint(text).lower()
    assert len(complaint(text).splitlines()) <= 3


@pytest.mark.slow
def test_sigterm_during_the_start_ends_it(kafka, topic_factory, group_id, tmp_path):
    """A stop that comes before the group was joined ends the worker cleanly."""
    gate = tmp_path / "gate"
    gate.touch()
    with Worker(
        tmp_path, kafka.bootstrap_servers, topic_factory(1), group_id, VBTEST_OPEN_GATE=gate
    ) as worker:
        worker.until(worker.handler_pids, "a handler process")
        worker.send(signal.SIGTERM)
        wait_until(lambda: not worker.running, 30.0, "the end")
        assert worker.exit_code == 0
        assert "Traceback" not in worker.log()
    assert running.handled(tmp_path) == []
