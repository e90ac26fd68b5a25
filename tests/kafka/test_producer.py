"""Dead letters and outputs on a real broker: each arrives, whatever is in its way."""

from __future__ import annotations

import hashlib
import time

import pytest

from consumer.core.commands import Destination, Produce
from consumer.kafka.producer import RecordProducer
from consumer.kafka.properties import client_properties, producer_properties
from consumer.kafka.topics import Topics
from tests.waiting import wait_until

SECONDS = 20.0
TIMESTAMP_MS = 1_700_000_000_123


@pytest.fixture
def make_producer(kafka):
    """Return a function that makes a producer on the test's broker."""

    def make(*, queue_bytes=1_000_000, **arguments):
        user = {"bootstrap.servers": kafka.bootstrap_servers}
        topics = Topics(client_properties(user), clock=time.monotonic)
        return RecordProducer(
            producer_properties(user),
            topics,
            clock=time.monotonic,
            queue_bytes=queue_bytes,
            worker_version="1.2.3",
            **arguments,
        )

    return make


def letter(number, source, *, value=b"value", key=b"key", timestamp_ms=TIMESTAMP_MS):
    """Return a dead letter of partition 2 of a topic."""
    return Produce(
        delivery_id=number,
        destination=Destination.DEAD_LETTER,
        source=(source, 2),
        source_offset=1000 + number,
        key=key,
        value=value,
        headers=[("trace", b"abc"), ("none", None), ("dlq.reason", b"an earlier one")],
        timestamp_ms=timestamp_ms,
        reason="malformed-json",
        error_class="JSONDecodeError",
        error_text="x" * 5000,
        attempts=3,
    )


def output(number, *, value=b"out"):
    """Return an output record."""
    return Produce(number, Destination.OUTPUT, ("t", 0), number, b"k", value, [("h", b"1")], -1)


def read(join, topic, count):
    """Return the records of a topic as (key, value, headers, timestamp) by source offset."""
    reader = join(topic, group=f"reader-of-{topic}")
    reader.run_until(lambda: reader.count >= count, f"{count} records in {topic}")
    found = []
    for event in reader.events:
        for run in getattr(event, "runs", ()):
            columns = run.columns
            for i in range(len(columns)):
                key = None if columns.keys is None else columns.keys[i]
                headers = columns.headers.get(i, [])
                found.append((key, columns.values[i], headers, int(columns.timestamps_ms[i])))
    assert len(found) == count
    return sorted(found, key=lambda record: dict(record[2]).get("dlq.source.offset", b""))


def flushed(producer, count):
    """Wait until so many are delivered, and return them by delivery id."""
    delivered = []

    def poll():
        delivered.extend(producer.poll())
        return len(delivered) >= count

    wait_until(poll, SECONDS, f"{count} deliveries")
    assert len(delivered) == count
    return {d.delivery_id: d for d in delivered}


def test_a_dead_letter_is_the_record_and_its_reason(topic_factory, make_producer, join):
    """Key, value, headers and time are the record's own; the rest is said in headers."""
    source = topic_factory(3)
    producer = make_producer()
    producer.send(letter(1, source))
    assert flushed(producer, 1)[1].error is None
    ((key, value, headers, timestamp_ms),) = read(join, f"{source}.dlq", 1)
    assert (key, value, timestamp_ms) == (b"key", b"value", TIMESTAMP_MS)
    assert headers == [
        ("trace", b"abc"),
        ("none", None),
        ("dlq.reason", b"malformed-json"),
        ("dlq.error.class", b"JSONDecodeError"),
        ("dlq.error.text", b"x" * 1000),
        ("dlq.source.topic", source.encode()),
        ("dlq.source.partition", b"2"),
        ("dlq.source.offset", b"1001"),
        ("dlq.attempts", b"3"),
        ("dlq.worker.version", b"1.2.3"),
    ]


def test_a_missing_topic_is_made_like_its_source(kafka, topic_factory, make_producer):
    """The topic for dead letters gets as many partitions as the topic they come from."""
    source = topic_factory(3)
    producer = make_producer()
    producer.send(letter(1, source))
    flushed(producer, 1)
    made = kafka.client.list_topics(timeout=SECONDS).topics[f"{source}.dlq"]
    assert len(made.partitions) == 3


def test_a_record_too_large_for_the_topic_goes_without_its_value(
    topic_factory, make_producer, join
):
    """The topic refuses the size: key and headers go, and say what the value was."""
    source = topic_factory(1)
    topic = topic_factory(1, max_message_bytes=20_000)
    producer = make_producer(dead_letter_topic_name=topic)
    large = bytes(range(256)) * 400
    producer.send(letter(1, source, value=large))
    for number in range(2, 10):
        producer.send(letter(number, source))
    delivered = flushed(producer, 9)
    assert {d.error for d in delivered.values()} == {None}
    first, *others = read(join, topic, 9)
    key, value, headers, timestamp_ms = first
    assert (key, value, timestamp_ms) == (b"key", None, TIMESTAMP_MS)
    said = dict(headers)
    assert said["dlq.value.bytes"] == b"102400"
    assert said["dlq.value.sha256"] == hashlib.sha256(large).hexdigest().encode()
    assert {value for _, value, _, _ in others} == {b"value"}


def test_small_records_pass_although_their_batch_is_too_large(topic_factory, make_producer, join):
    """A topic with a small limit refuses whole batches; each record then goes on its own."""
    topic = topic_factory(1, max_message_bytes=10_000)
    producer = make_producer(dead_letter_topic_name=topic)
    for number in range(20):
        producer.send(letter(number, "t", value=b"x" * 5_000))
    assert len(flushed(producer, 20)) == 20
    assert {len(value) for _, value, _, _ in read(join, topic, 20)} == {5_000}


def test_a_record_too_large_without_its_value_loses_its_key(topic_factory, make_producer, join):
    """A key that alone is too large is left out too: no record can block its partition for ever."""
    topic = topic_factory(1, max_message_bytes=5_000)
    producer = make_producer(dead_letter_topic_name=topic)
    producer.send(letter(1, "t", key=b"k" * 10_000))
    assert flushed(producer, 1)[1].error is None
    ((key, value, headers, _),) = read(join, topic, 1)
    assert (key, value) == (None, None)
    assert dict(headers)["dlq.source.offset"] == b"1001"
    assert "trace" not in dict(headers)


def test_an_output_too_large_is_reported(topic_factory, make_producer, join):
    """An output cannot go without its value, so the refusal is the answer; others arrive."""
    topic = topic_factory(1, max_message_bytes=20_000)
    producer = make_producer(output_topic=topic)
    producer.send(output(1, value=b"x" * 100_000))
    producer.send(output(2))
    delivered = flushed(producer, 2)
    assert delivered[1].too_large
    assert delivered[1].error is not None
    assert "MSG_SIZE_TOO_LARGE" in delivered[1].error
    assert (delivered[2].error, delivered[2].too_large) == (None, False)
    ((key, value, headers, _),) = read(join, topic, 1)
    assert (key, value, headers) == (b"k", b"out", [("h", b"1")])


def test_more_than_the_allowance_waits(topic_factory, make_producer):
    """The client is handed no more than it may hold, but always one record of any size."""
    source = topic_factory(1)
    producer = make_producer(queue_bytes=10_000)
    producer.send(letter(0, source))
    flushed(producer, 1)
    for number in range(1, 6):
        producer.send(letter(number, source, value=b"x" * 50_000))
        assert len(producer._inside) == 1
    assert sorted(flushed(producer, 5)) == [1, 2, 3, 4, 5]


def test_a_time_that_the_topic_refuses_is_replaced(topic_factory, make_producer, join):
    """A record from the future is written with the time of writing instead of never."""
    topic = topic_factory(1, message_timestamp_after_max_ms=60_000)
    producer = make_producer(dead_letter_topic_name=topic)
    future_ms = int(time.time() * 1000) + 10**9
    producer.send(letter(1, "t", timestamp_ms=future_ms))
    assert flushed(producer, 1)[1].error is None
    ((_, _, _, timestamp_ms),) = read(join, topic, 1)
    assert timestamp_ms < future_ms


@pytest.mark.slow
def test_a_topic_deleted_meanwhile_is_made_again(kafka, topic_factory, make_producer):
    """Sending goes on when the topic disappears under the producer."""
    source = topic_factory(1)
    producer = make_producer()
    producer.send(letter(1, source))
    flushed(producer, 1)
    kafka.delete_topic(f"{source}.dlq")
    producer.send(letter(2, source))
    assert flushed(producer, 1)[2].error is None


def test_a_record_for_a_topic_name_that_cannot_be(make_producer):
    """A topic that the broker refuses to make is a problem in words, and nothing is dropped."""
    producer = make_producer(dead_letter_topic_name="no such name!")
    producer.send(letter(1, "t"))
    delivered, said = [], []

    def poll():
        delivered.extend(producer.poll())
        said.extend(producer.take_errors())
        return said

    wait_until(poll, SECONDS, "a problem")
    for _ in range(3):
        poll()
    (problem,) = said
    assert "no such name!" in problem.text
    assert delivered == []
