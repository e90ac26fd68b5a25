"""Records and processes that fail: each costs itself, and nothing else."""

from __future__ import annotations

import hashlib
import os
import signal
import uuid
from typing import Any

import pytest

from tests.acceptance import asking, running
from tests.acceptance.payloads import point, points
from tests.acceptance.running import Worker
from tests.producing import produce


def settled(worker, kafka, group, topic, partitions):
    """Wait until the group has nothing left by the broker's own figures."""
    worker.until(lambda: asking.lag(kafka, group, topic, partitions) == 0, "everything committed")


def headers_of(message):
    return {name: (value or b"").decode() for name, value in message.headers() or []}


def dead_letters(kafka, topic, count):
    """Return (message, headers) of each dead letter by its source."""
    found = {}
    for message in asking.read_topic(kafka.bootstrap_servers, f"{topic}.dlq", count):
        headers = headers_of(message)
        source = int(headers["dlq.source.partition"]), int(headers["dlq.source.offset"])
        assert headers["dlq.source.topic"] == topic
        assert source not in found, "dead-lettered twice"
        found[source] = message, headers
    return found


def run_with(worker, kafka, records, *, bad, partitions):
    """Handle records of which some end as dead letters; return figures and letters by number."""
    places = produce(kafka.bootstrap_servers, worker.topic, records)
    tombstones = {places[n] for n, (_, value) in enumerate(records) if value is None}
    expected = set(places) - {places[n] for n in bad} - tombstones
    with worker:
        worker.until(lambda: {h.place for h in worker.handled()} >= expected, "the others")
        settled(worker, kafka, worker.group, worker.topic, partitions)
        worker.until(lambda: worker.metric("in_flight_messages") == 0, "nothing in flight")
        figures = worker.metrics()
        worker.stop()
    assert {h.place for h in worker.handled()} == expected
    letters = dead_letters(kafka, worker.topic, len(bad))
    assert set(letters) == {places[n] for n in bad}
    return figures, {n: letters[places[n]] for n in bad}


def test_records_that_kill_or_hang_are_dead_lettered(kafka, topic_factory, group_id, tmp_path):
    """Each costs a process, alone once more, and goes to the dead-letter topic; no other does."""
    acts = {70: {"do": "kill"}, 71: {"do": "exit"}, 140: {"do": "hang"}}
    worker = Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic_factory(2),
        group_id,
        VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS=1.5,
    )
    figures, letters = run_with(worker, kafka, points(300, acts=acts), bad=acts, partitions=2)
    reasons = {number: headers["dlq.reason"] for number, (_, headers) in letters.items()}
    assert reasons == {70: "killed-process", 71: "killed-process", 140: "timed-out"}
    assert all(letters[n][0].key() == f"k{n % 40}".encode() for n in acts)
    assert figures["dead_letters_total"] == {("killed-process",): 2, ("timed-out",): 1}
    assert figures["messages_total"][("done",)] == 297
    assert running.out_of_order(worker.handled()) == []


PAYLOADS = {
    "malformed-json": b'{"type":"Point","coordinates":[1,',
    "unsupported-format": b"\x01\x01\x00\x00\x00" + bytes(16),
    "open-ring": b'{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}',
    "not-geojson": b'{"kind":"Point"}',
}
RAISES, FAILS, NEVER, LATER, TOMBSTONE, PAYLOADS_FROM = 10, 11, 47, 45, 60, 100


@pytest.fixture(scope="module")
def refused(kafka, tmp_path_factory):
    """One run over records that are refused for one reason or another."""
    topic = kafka.create_topic(f"refused-{uuid.uuid4().hex[:8]}", 1)
    acts: dict[int, dict[str, Any]] = {
        RAISES: {"do": "raise"},
        FAILS: {"do": "fail"},
        NEVER: {"do": "retry", "times": 100},
        LATER: {"do": "retry", "times": 2},
    }
    records: list[tuple[bytes | None, bytes | None]] = [*points(200, acts=acts)]
    for number, value in enumerate(PAYLOADS.values(), PAYLOADS_FROM):
        records[number] = records[number][0], value
    records[TOMBSTONE] = records[TOMBSTONE][0], None
    worker = Worker(
        tmp_path_factory.mktemp("refused"),
        kafka.bootstrap_servers,
        topic,
        f"group-of-{topic}",
        VERTEX_BUDGET_MAX_ATTEMPTS=3,
    )
    bad = {RAISES, FAILS, NEVER, *range(PAYLOADS_FROM, PAYLOADS_FROM + len(PAYLOADS))}
    figures, letters = run_with(worker, kafka, records, bad=bad, partitions=1)
    return records, worker, figures, letters


def test_refused_records_are_dead_lettered_as_they_were(refused):
    """Key, value and timestamp stay; reason, error and source are added as headers."""
    records, _, figures, letters = refused
    for number, (message, _) in letters.items():
        assert (message.key(), message.value()) == records[number]
        assert message.timestamp()[1] > 0
    headers = letters[RAISES][1]
    assert headers["dlq.reason"] == "handler-error"
    assert headers["dlq.error.class"] == "ValueError"
    assert "cannot handle offset" in headers["dlq.error.text"]
    assert headers["dlq.attempts"] == "1"
    headers = letters[FAILS][1]
    assert headers["dlq.reason"] == "not-wanted"
    assert headers["dlq.error.text"] == "of no use here"
    assert figures["messages_total"][("dead-lettered",)] == len(letters)
    assert figures["dead_letters_total"][("handler-error",)] == 1


def test_a_retry_is_repeated_until_it_succeeds(refused):
    """A record that asks for another attempt gets it, and its key's order is kept."""
    _, worker, _, _ = refused
    assert (worker.folder / f"attempts-0-{LATER}").stat().st_size == 3
    # Where later records of the key went again, the last handling of each counts.
    last = {h.place: h for h in worker.handled() if h.key == f"k{LATER % 40}"}
    offsets = [h.offset for h in sorted(last.values(), key=lambda h: (h.at_ns, h.line))]
    assert LATER in offsets
    assert offsets == sorted(offsets)


def test_a_retry_that_never_succeeds_is_dead_lettered(refused):
    """After the last attempt the record goes to the dead-letter topic, and its key goes on."""
    _, worker, figures, letters = refused
    assert letters[NEVER][1]["dlq.reason"] == "retries-exhausted"
    assert letters[NEVER][1]["dlq.attempts"] == "3"
    assert (worker.folder / f"attempts-0-{NEVER}").stat().st_size == 3
    assert figures["messages_total"][("failed",)] >= 3
    later = [h.offset for h in worker.handled() if h.key == f"k{NEVER % 40}" and h.offset > NEVER]
    assert later


def test_bad_payloads_have_reason_codes(refused):
    """What cannot be decoded is dead-lettered by what is wrong with it; tombstones are skipped."""
    _, _, figures, letters = refused
    reasons = [letters[n][1]["dlq.reason"] for n in sorted(letters) if n >= PAYLOADS_FROM]
    assert reasons == list(PAYLOADS)
    assert figures["messages_total"][("skipped",)] == 1


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
    (letter,) = asking.read_topic(kafka.bootstrap_servers, small, 1)
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
            lambda: asking.committed(kafka, group_id, topic).get(0) == 9,
            "all before it is committed",
        )
        assert worker.metric("in_flight_messages") == 1
        worker.until(lambda: f"{refusing}: " in worker.log(), "a line about the topic")
        asking.set_topic_config(kafka, refusing, "max.message.bytes", 1_000_000)
        settled(worker, kafka, group_id, topic, 1)
        worker.stop()
    assert len(asking.read_topic(kafka.bootstrap_servers, refusing, 1)) == 1


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
        found = asking.read_topic(kafka.bootstrap_servers, out, len(records))
        worker.stop()
    assert sorted((m.key(), m.value()) for m in found) == sorted(records)
