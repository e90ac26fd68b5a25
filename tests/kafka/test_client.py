"""The consumer on a real broker: what it returns, and that it returns everything once."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time

import pytest
from confluent_kafka import Producer, TopicPartition

from consumer.core.events import Assigned, Fetched
from consumer.kafka.client import KafkaClient
from consumer.kafka.errors import CallbackFailedError, ClientFatalError
from consumer.kafka.properties import client_properties, consumer_properties, prefetch_bound_bytes
from consumer.kafka.queries import EndOffsets
from consumer.kafka.start_check import check_cluster
from tests.acceptance import asking
from tests.producing import produce
from tests.waiting import wait_until

SECONDS = 20.0


def test_a_record_comes_out_as_it_went_in(kafka, topic_factory, join):
    """Key, value, headers and time of a record are those that were produced, nulls too."""
    topic = topic_factory(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", b"2"), ("none", None)]
    producer.produce(topic, b"value", b"key", timestamp=1_700_000_000_123, headers=headers)
    producer.produce(topic, None, b"key")
    producer.produce(topic, b"", None)
    producer.flush(SECONDS)
    member = join(topic)
    member.run_until(lambda: member.count == 3, "three records")
    fetched = [event for event in member.events if isinstance(event, Fetched)]
    columns = [run.columns for event in fetched for run in event.runs]
    values = [value for part in columns for value in part.values]
    keys = [key for part in columns for key in (part.keys or [None] * len(part))]
    assert values == [b"value", None, b""]
    assert keys == [b"key", b"key", None]
    assert columns[0].headers == {0: headers}
    assert columns[0].timestamps_ms[0] == 1_700_000_000_123


def test_the_end_of_a_partition_is_reported_and_committed(kafka, topic_factory, group_id, join):
    """Each partition's end is told, an empty one's too, and once committed the lag is 0."""
    topic = topic_factory(2)
    produce(kafka.bootstrap_servers, topic, [(None, b"x")] * 10, partition=0)
    member = join(topic)
    member.run_until(lambda: len(member.ends) == 2, "both ends")
    assert member.ends == {(topic, 0): 10, (topic, 1): 0}
    answer = member.client.commit(member.ends, wait=True)
    assert answer is not None
    assert answer.error is None
    assert asking.committed(kafka, group_id, topic) == {0: 10, 1: 0}
    assert asking.lag(kafka, group_id, topic, 2) == 0


def test_the_end_lies_beyond_what_a_transaction_leaves_behind(kafka, topic_factory, join):
    """Aborted records are skipped, and the end counts them and the markers: the lag reaches 0."""
    topic = topic_factory(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for value, finish in [
        (b"kept", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ]:
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, value)
        producer.flush(SECONDS)
        finish(SECONDS)
    member = join(topic)
    member.run_until(lambda: member.ends.get((topic, 0)) == 12, "the end")
    assert [value for _, value in member.records[topic, 0]] == [b"kept"] * 5


def test_a_fetch_without_a_wait_is_bounded_by_the_queue(kafka, topic_factory, join):
    """With a wait one call returns the whole backlog; without, what the client may hold."""
    topic = topic_factory(2)
    record = b"x" * 200_000
    for partition in (0, 1):
        produce(kafka.bootstrap_servers, topic, [(None, record)] * 40, partition=partition)
    allowance = 8 * 1024 * 1024
    member = join(topic, prefetch_bytes=allowance)
    bound = prefetch_bound_bytes(
        consumer_properties(
            {"bootstrap.servers": "x", "group.id": "x"}, prefetch_bytes=allowance, brokers=1
        ),
        brokers=1,
    )

    def fetched_bytes(wait_seconds):
        before = member.count
        member.step(5000, wait_seconds)
        return (member.count - before) * len(record)

    most = 0
    deadline = time.monotonic() + SECONDS
    while member.count < 80 and time.monotonic() < deadline:
        most = max(most, fetched_bytes(0))
    assert member.count == 80
    assert 0 < most <= bound
    for partition in (0, 1):
        produce(kafka.bootstrap_servers, topic, [(None, record)] * 40, partition=partition)
    assert fetched_bytes(1.0) > bound


@pytest.mark.parametrize("pauses", [1, 3])
def test_a_pause_loses_nothing(kafka, topic_factory, join, pauses):
    """What a pause threw away is fetched again: every record comes once, in order."""
    topic = topic_factory(2)
    total = 5_000
    produce(kafka.bootstrap_servers, topic, ((b"%d" % i, b"x" * 100) for i in range(total)))
    member = join(topic)
    member.run_until(lambda: member.count >= 500, "a beginning")
    for _ in range(pauses):
        before = member.count
        member.client.pause(member.assigned)
        member.step(100, 0.0)
        member.step(100, 0.2)
        assert member.count == before, "a paused partition was read"
        assert member.paused == member.assigned
        member.client.resume(member.assigned)
        member.run_until(lambda b=before: member.count >= min(total, b + 500), "more")
    member.run_until(lambda: member.count >= total, "the rest")
    assert sorted(len(offsets) for offsets in member.offsets.values()) == sorted(
        member.positions[p] for p in member.offsets
    )
    for offsets in member.offsets.values():
        assert offsets == list(range(len(offsets)))


def test_an_exception_out_of_a_fetch_loses_nothing(kafka, topic_factory, join):
    """A signal handler raises inside fetches: every record still comes once, in order."""
    topic = topic_factory(4)
    total = 20_000
    produce(kafka.bootstrap_servers, topic, ((b"%d" % i, b"x" * 20) for i in range(total)))
    member = join(topic)
    lines, first = inspect.getsourcelines(KafkaClient.consume)
    (fetching,) = [first + i for i, line in enumerate(lines) if "_consumer.consume(" in line]

    def handler(signum, frame):
        # Only inside the client's call: what a handler breaks elsewhere is not its matter.
        if frame.f_code is KafkaClient.consume.__code__ and frame.f_lineno == fetching:
            raise ValueError(signum)

    stop = threading.Event()

    def send_signals():
        while not stop.wait(0.003):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send_signals)
    sender.start()
    raised = 0
    deadline = time.monotonic() + SECONDS
    try:
        while member.count < total and time.monotonic() < deadline:
            if raised == 10:
                stop.set()
            try:
                member.step(100, 0.005)
            except ValueError:
                raised += 1
    finally:
        stop.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert raised > 3
    assert member.count == total
    for offsets in member.offsets.values():
        assert offsets == list(range(len(offsets)))


def test_a_failure_in_a_callback_is_reported_by_the_next_call(kafka, topic_factory, join):
    """Our own code fails in an assignment: nothing is lost, and the next call raises it."""
    topic = topic_factory(1)
    produce(kafka.bootstrap_servers, topic, [(None, b"x")] * 100)
    member = join(topic)

    def fail(event):
        if isinstance(event, Assigned):
            raise ZeroDivisionError

    member.on_callback = fail
    with pytest.raises(CallbackFailedError, match="on_assign: ZeroDivisionError") as caught:
        member.run_until(lambda: False, "the failure")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    member.run_until(lambda: member.count == 100, "all records")
    assert member.offsets[topic, 0] == list(range(100))


def test_a_commit_is_answered_once_by_a_later_call(kafka, topic_factory, group_id, join):
    """Commits that are not waited for are answered in order, each by one event."""
    topic = topic_factory(1)
    partition = (topic, 0)
    produce(kafka.bootstrap_servers, topic, [(None, b"x")] * 10)
    member = join(topic)
    member.run_until(lambda: member.count == 10, "all records")
    for offset in (3, 7):
        assert member.client.commit({partition: offset}) is None
        member.run_until(lambda n=offset: len(member.committed()) == (n > 3) + 1, "an answer")
    assert [dict(answer.offsets) for answer in member.committed()] == [
        {partition: 3},
        {partition: 7},
    ]
    assert {answer.error for answer in member.committed()} == {None}
    assert asking.committed(kafka, group_id, topic) == {0: 7}


def test_a_partition_of_others_is_not_committed(topic_factory, join):
    """Nobody else would refuse to move the offset of a partition that is not ours."""
    topic = topic_factory(1)
    member = join(topic)
    member.run_until(lambda: member.client.joined, "the group")
    answer = member.client.commit({("other", 0): 5}, wait=True)
    assert answer is not None
    assert answer.error == "no longer assigned"


def test_records_that_are_gone_are_counted(kafka, topic_factory, join):
    """A committed offset that the log no longer holds is an error that names the gap."""
    topic = topic_factory(1)
    partition = (topic, 0)
    produce(kafka.bootstrap_servers, topic, [(None, b"x")] * 50)
    first = join(topic)
    first.run_until(lambda: first.count == 50, "all records")
    first.client.commit({partition: 10}, wait=True)
    first.close()
    gone = kafka.client.delete_records([TopicPartition(topic, 0, 30)])
    next(iter(gone.values())).result(SECONDS)
    second = join(topic)
    second.run_until(lambda: second.count == 20, "what is left")
    assert second.offsets[partition] == list(range(30, 50))
    (error,) = second.client.take_errors()
    assert (error.code, error.partition) == ("OFFSET_OUT_OF_RANGE", partition)
    assert error.text == (
        f"offset 10 is out of range in partition 0 of {topic}: reading on at 30, "
        "20 offsets are gone"
    )


def test_a_group_may_refuse_to_choose_its_beginning(topic_factory, join):
    """With auto.offset.reset=error a missing offset ends the client, in words."""
    member = join(topic_factory(1), **{"auto.offset.reset": "error"})
    with pytest.raises(ClientFatalError, match="there is no committed offset in partition 0"):
        member.run_until(lambda: False, "the error")


def test_latest_begins_at_the_end_once(kafka, topic_factory, join):
    """With auto.offset.reset=latest records from before the first start are passed over."""
    topic = topic_factory(1)
    produce(kafka.bootstrap_servers, topic, [(None, b"old")] * 5)
    member = join(topic, **{"auto.offset.reset": "latest"})
    member.run_until(lambda: member.ends, "the end")
    produce(kafka.bootstrap_servers, topic, [(None, b"new")] * 5)
    member.run_until(lambda: member.count, "new records")
    assert member.records[topic, 0][0] == (5, b"new")


def test_the_end_is_known_while_paused(kafka, topic_factory, join):
    """The lag of a paused partition grows with the log."""
    topic = topic_factory(1)
    member = join(topic)
    member.run_until(lambda: member.assigned, "the partition")
    member.client.pause(member.assigned)
    produce(kafka.bootstrap_servers, topic, [(None, b"x")] * 7)
    ends = EndOffsets(client_properties({"bootstrap.servers": kafka.bootstrap_servers}))
    ends.ask([(topic, 0)])
    assert wait_until(ends.take, SECONDS, "the answer") == {(topic, 0): 7}


def test_a_failing_token_function_is_reported(kafka, topic_factory, join):
    """An OAUTHBEARER function that raises is an error with its text, at the start and later."""

    def token(_):
        message = "no identity provider"
        raise OSError(message)

    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    member = join(topic_factory(1), oauth_cb=token, log_level=0, **properties)
    text = "oauth_cb failed: OSError: no identity provider"
    member.run_until(
        lambda: text in [error.text for error in member.client.take_errors()], "the failure"
    )
    connection = {"bootstrap.servers": kafka.bootstrap_servers, "oauth_cb": token, **properties}
    (problem,) = check_cluster(client_properties(connection), [], 1.0).problems
    assert problem.endswith(text)


def test_another_thread_is_refused(topic_factory, join):
    """A call from another thread could wait for minutes, so it fails at once."""
    member = join(topic_factory(1))
    failures = []

    def call():
        try:
            member.client.pause([])
        except AssertionError as error:
            failures.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert failures == ["only the thread that made it may call it"]
