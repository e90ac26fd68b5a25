"""Records and processes that fail: each costs itself, and nothing else."""

from __future__ import annotations

import hashlib
import os
import signal

from tests.acceptance import running
from tests.acceptance.payloads import point, points
from tests.acceptance.running import Worker
from tests.producing import produce


def settled(worker, kafka, group, topic, partitions):
    """Wait until the group has nothing left by the broker's own figures."""
    worker.until(lambda: running.lag(kafka, group, topic, partitions) == 0, "everything committed")


def headers_of(message):
    return {name: (value or b"").decode() for name, value in message.headers() or []}


def dead_letters(kafka, topic, count):
    """Return (message, headers) of each dead letter by its source."""
    found = {}
    for message in running.read_topic(kafka.bootstrap_servers, f"{topic}.dlq", count):
        headers = headers_of(message)
        source = int(headers["dlq.source.partition"]), int(headers["dlq.source.offset"])
        assert headers["dlq.source.topic"] == topic
        assert source not in found, "dead-lettered twice"
        found[source] = message, headers
    return found


def run_with(kafka, topic, group, tmp_path, records, *, acts, partitions=2, **environment):
    """Handle records of which some misbehave; return worker, places and dead letters by number."""
    places = produce(kafka.bootstrap_servers, topic, records)
    with Worker(tmp_path, kafka.bootstrap_servers, topic, group, **environment) as worker:
        worker.until_handled(len(records) - len(acts))
        settled(worker, kafka, group, topic, partitions)
        worker.until(lambda: worker.metric("in_flight_messages") == 0, "nothing in flight")
        figures = worker.metrics()
        worker.stop()
    handled = {h.place for h in worker.handled()}
    assert handled == set(places) - {places[n] for n in acts}
    assert running.out_of_order(worker.handled()) == []
    letters = dead_letters(kafka, topic, len(acts))
    assert set(letters) == {places[n] for n in acts}
    return figures, {n: letters[places[n]] for n in acts}


def test_a_record_that_kills_its_process_is_dead_lettered(kafka, topic_factory, group_id, tmp_path):
    """It goes to the dead-letter topic as killed-process; all others are handled."""
    acts = {70: {"do": "kill"}, 71: {"do": "exit"}}
    topic = topic_factory(2)
    figures, letters = run_with(kafka, topic, group_id, tmp_path, points(300, acts=acts), acts=acts)
    for number in acts:
        message, headers = letters[number]
        assert headers["dlq.reason"] == "killed-process"
        assert message.key() == f"k{number % 40}".encode()
        assert b'"do"' in message.value()
    assert figures["dead_letters_total"] == {("killed-process",): 2}
    assert figures["handler_processes"][()] >= 1


def test_a_record_that_hangs_is_dead_lettered(kafka, topic_factory, group_id, tmp_path):
    """Its process is killed after the handler's time limit, alone once more; then it is let go."""
    acts = {40: {"do": "hang"}}
    topic = topic_factory(2)
    figures, letters = run_with(
        kafka,
        topic,
        group_id,
        tmp_path,
        points(200, acts=acts),
        acts=acts,
        VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS=2,
    )
    assert letters[40][1]["dlq.reason"] == "timed-out"
    assert figures["dead_letters_total"] == {("timed-out",): 1}


def test_records_that_are_refused_are_dead_lettered_as_they_were(
    kafka, topic_factory, group_id, tmp_path
):
    """Key, value, headers and timestamp stay; reason, error and source are added as headers."""
    acts = {10: {"do": "raise"}, 11: {"do": "fail"}}
    topic = topic_factory(2)
    records = points(100, acts=acts)
    figures, letters = run_with(kafka, topic, group_id, tmp_path, records, acts=acts)
    message, headers = letters[10]
    assert (message.key(), message.value()) == records[10]
    assert message.timestamp()[1] > 0
    assert headers["dlq.reason"] == "handler-error"
    assert headers["dlq.error.class"] == "ValueError"
    assert "cannot handle offset" in headers["dlq.error.text"]
    message, headers = letters[11]
    assert (message.key(), message.value()) == records[11]
    assert headers["dlq.reason"] == "not-wanted"
    assert headers["dlq.error.text"] == "of no use here"
    assert figures["messages_total"][("dead-lettered",)] == 2
    assert figures["dead_letters_total"] == {("handler-error",): 1, ("not-wanted",): 1}


def test_a_retry_is_repeated_until_it_succeeds(kafka, topic_factory, group_id, tmp_path):
    """A record that asks for another attempt gets it, and its key's order is kept."""
    acts = {5: {"do": "retry", "times": 2}, 45: {"do": "retry", "times": 1}}
    topic = topic_factory(1)
    records = points(200, acts=acts)
    places = produce(kafka.bootstrap_servers, topic, records)
    with Worker(tmp_path, kafka.bootstrap_servers, topic, group_id) as worker:
        worker.until_handled(len(records))
        settled(worker, kafka, group_id, topic, 1)
        assert worker.metric("dead_letters_total", "retries-exhausted") == 0
        worker.stop()
    handled = worker.handled()
    assert {h.place for h in handled} == set(places)
    # The last handling of each is what counts where a key's later records went again.
    last = {h.place: h for h in handled}
    own = [
        h.offset for h in sorted(last.values(), key=lambda h: (h.at_ns, h.line)) if h.key == "k5"
    ]
    assert own == sorted(own)


def test_a_retry_that_never_succeeds_is_dead_lettered(kafka, topic_factory, group_id, tmp_path):
    """After the last attempt the record goes to the dead-letter topic, and its key goes on."""
    acts = {7: {"do": "retry", "times": 100}}
    topic = topic_factory(1)
    figures, letters = run_with(
        kafka,
        topic,
        group_id,
        tmp_path,
        points(200, acts=acts),
        acts=acts,
        partitions=1,
        VERTEX_BUDGET_MAX_ATTEMPTS=3,
    )
    assert letters[7][1]["dlq.reason"] == "retries-exhausted"
    assert letters[7][1]["dlq.attempts"] == "3"
    assert (tmp_path / "attempts-0-7").stat().st_size == 3
    assert figures["messages_total"][("failed",)] >= 3


def test_bad_payloads_have_reason_codes(kafka, topic_factory, group_id, tmp_path):
    """What cannot be decoded is dead-lettered by what is wrong with it; tombstones are skipped."""
    bad = {
        1: b'{"type":"Point","coordinates":[1,',
        2: b"\x01\x01\x00\x00\x00" + bytes(16),
        3: b'{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}',
        4: b'{"kind":"Point"}',
        5: b"POINT (1 2)",
        6: b"",
    }
    topic = topic_factory(1)
    records: list[tuple[bytes | None, bytes | None]] = [
        (key, bad.get(n, value)) for n, (key, value) in enumerate(points(60))
    ]
    records[20] = (b"k20", None)
    places = produce(kafka.bootstrap_servers, topic, records)
    with Worker(tmp_path, kafka.bootstrap_servers, topic, group_id) as worker:
        worker.until_handled(60 - len(bad) - 1)
        settled(worker, kafka, group_id, topic, 1)
        figures = worker.metrics()
        worker.stop()
    letters = dead_letters(kafka, topic, len(bad))
    reasons = {n: letters[places[n]][1]["dlq.reason"] for n in bad}
    assert reasons[1] == "malformed-json"
    assert reasons[2] == "unsupported-format"
    assert reasons[3] == "open-ring"
    assert reasons[4] == "not-geojson"
    assert reasons[5] == "unsupported-format"
    assert letters[places[1]][0].value() == bad[1]
    assert figures["messages_total"][("skipped",)] == 1
    assert figures["messages_total"][("dead-lettered",)] == len(bad)


def test_a_dead_letter_too_large_for_its_topic_goes_without_its_value(
    kafka, topic_factory, group_id, tmp_path
):
    """Its size and digest stand in its headers, and its offset is committed."""
    topic = topic_factory(1)
    small = topic_factory(1, max_message_bytes=20_000)
    records = [point(0, key="k", do="fail", text="x" * 100_000), *points(20)]
    places = produce(kafka.bootstrap_servers, topic, records)
    with Worker(
        tmp_path, kafka.bootstrap_servers, topic, group_id, VERTEX_BUDGET_DLQ_TOPIC=small
    ) as worker:
        worker.until_handled(20)
        settled(worker, kafka, group_id, topic, 1)
        worker.stop()
    (letter,) = running.read_topic(kafka.bootstrap_servers, small, 1)
    headers = headers_of(letter)
    assert letter.key() == b"k"
    assert letter.value() is None
    assert headers["dlq.source.offset"] == str(places[0][1])
    assert headers["dlq.value.bytes"] == str(len(records[0][1]))
    assert headers["dlq.value.sha256"] == hashlib.sha256(records[0][1]).hexdigest()


def test_a_process_killed_from_outside_costs_no_record(kafka, topic_factory, group_id, tmp_path):
    """Its records are handled by its successor; none is dead-lettered for it."""
    topic = topic_factory(2)
    records = points(600)
    places = produce(kafka.bootstrap_servers, topic, records)
    with Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic,
        group_id,
        VBTEST_SECONDS_PER_RECORD=0.005,
    ) as worker:
        worker.until_handled(100)
        pids = worker.handler_pids()
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGKILL)
        worker.until_handled(len(records))
        settled(worker, kafka, group_id, topic, 2)
        worker.until(lambda: worker.metric("handler_processes") == 2, "a successor")
        figures = worker.metrics()
        assert set(worker.handler_pids()) != set(pids)
        worker.stop()
    assert {h.place for h in worker.handled()} == set(places)
    assert running.out_of_order(worker.handled()) == []
    assert figures["messages_total"][("dead-lettered",)] == 0
    assert figures.get("dead_letters_total", {}) == {}


def test_a_dead_letter_is_acknowledged_before_its_offset_is_committed(
    kafka, topic_factory, group_id, tmp_path
):
    """While the dead-letter topic takes nothing, the record's offset stays; then it moves on."""
    topic = topic_factory(1)
    refusing = topic_factory(1, max_message_bytes=1)
    records = points(50, acts={9: {"do": "fail"}})
    produce(kafka.bootstrap_servers, topic, records)
    with Worker(
        tmp_path, kafka.bootstrap_servers, topic, group_id, VERTEX_BUDGET_DLQ_TOPIC=refusing
    ) as worker:
        worker.until_handled(49)
        worker.until(
            lambda: running.committed(kafka, group_id, topic).get(0) == 9,
            "all before it is committed",
        )
        assert worker.metric("in_flight_messages") == 1
        worker.until(lambda: f"{refusing}: " in worker.log(), "a line about the topic")
        running.set_topic_config(kafka, refusing, "max.message.bytes", 1_000_000)
        settled(worker, kafka, group_id, topic, 1)
        worker.stop()
    assert len(running.read_topic(kafka.bootstrap_servers, refusing, 1)) == 1


def test_outputs_are_acknowledged_before_offsets(kafka, topic_factory, group_id, tmp_path):
    """Every record's output is on the output topic, under its key, when its offset is committed."""
    topic, out = topic_factory(3), topic_factory(3)
    records = points(3_000)
    produce(kafka.bootstrap_servers, topic, records)
    with Worker(
        tmp_path, kafka.bootstrap_servers, topic, group_id, VERTEX_BUDGET_OUTPUT_TOPIC=out
    ) as worker:
        # Committed first: what is read afterwards has been acknowledged by then.
        settled(worker, kafka, group_id, topic, 3)
        found = running.read_topic(kafka.bootstrap_servers, out, len(records))
        worker.stop()
    assert sorted((m.key(), m.value()) for m in found) == sorted(records)
