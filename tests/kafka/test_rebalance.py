"""Two members of one group under each protocol: nothing lost, nothing read twice, nothing stuck."""

from __future__ import annotations

import time

import pytest

from consumer.core.events import Assigned, Lost, Revoked
from consumer.kafka.errors import ClientFatalError
from tests.kafka.members import PROTOCOLS, run_until
from tests.producing import produce

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
SECONDS = 20.0


def commit_positions(member):
    """Have a member commit all that it was given, inside every revocation."""
    answers = []

    def on_callback(event):
        if isinstance(event, Revoked):
            known = member.positions
            offsets = {p: known[p] for p in event.partitions if p in known}
            if offsets:
                answers.append(member.client.commit(offsets, wait=True))

    member.on_callback = on_callback
    return answers


@each_protocol
def test_a_handover_loses_and_repeats_nothing(kafka, topic_factory, join, protocol):
    """A second member joins and leaves: committing in each revocation, all comes exactly once."""
    topic = topic_factory(4)
    servers = kafka.bootstrap_servers
    produce(servers, topic, ((b"%d" % i, b"x") for i in range(2_000)))
    first = join(topic, **PROTOCOLS[protocol])
    answers = commit_positions(first)
    first.run_until(lambda: first.count == 2_000, "the first records")
    second = join(topic, **PROTOCOLS[protocol])
    answers += commit_positions(second)
    run_until(
        [first, second],
        lambda: len(first.assigned) == len(second.assigned) == 2,
        "half each",
        SECONDS,
    )
    assert first.assigned.isdisjoint(second.assigned)
    produce(servers, topic, ((b"%d" % i, b"x") for i in range(2_000)))
    run_until([first, second], lambda: first.count + second.count == 4_000, "more records")
    second.close()
    assert not second.assigned
    first.run_until(lambda: len(first.assigned) == 4, "everything back", SECONDS)
    produce(servers, topic, ((b"%d" % i, b"x") for i in range(2_000)))
    first.run_until(lambda: first.count + second.count >= 6_000, "the last records")
    read: dict[object, list[int]] = {}
    for member in (first, second):
        for partition, offsets in member.offsets.items():
            read.setdefault(partition, []).extend(offsets)
    for offsets in read.values():
        assert sorted(offsets) == list(range(len(offsets)))
    assert first.told_of(Lost) == second.told_of(Lost) == []
    assert [answer for answer in answers if answer is None or answer.error is not None] == []


@each_protocol
def test_partitions_that_come_back_are_not_left_paused(kafka, topic_factory, join, protocol):
    """The client remembers a pause over a reassignment; a partition that comes back flows."""
    topic = topic_factory(4)
    first = join(topic, **PROTOCOLS[protocol])
    first.run_until(lambda: len(first.assigned) == 4, "all partitions")
    first.client.pause(first.assigned)
    second = join(topic, **PROTOCOLS[protocol])
    run_until([first, second], lambda: len(second.assigned) == 2, "half", SECONDS)
    second.close()
    given_before = len(first.told_of(Assigned))
    first.run_until(lambda: len(first.assigned) == 4, "everything back", SECONDS)
    back = set(first.told_of(Assigned)[given_before:])
    assert len(back) >= 2
    assert first.paused == first.assigned - back
    first.client.resume(first.assigned)
    for partition in range(4):
        produce(kafka.bootstrap_servers, topic, [(None, b"x")], partition=partition)
    first.run_until(lambda: first.count == 4, "a record of each")


@each_protocol
def test_a_pause_in_the_assignment_holds(kafka, topic_factory, join, protocol):
    """Partitions paused while they are being assigned give nothing until they are resumed."""
    topic = topic_factory(2)
    produce(kafka.bootstrap_servers, topic, [(b"%d" % i, b"x") for i in range(100)])
    member = join(topic, **PROTOCOLS[protocol])

    def on_callback(event):
        if isinstance(event, Assigned):
            member.client.pause(event.partitions)

    member.on_callback = on_callback
    member.run_until(lambda: len(member.assigned) == 2, "the partitions")
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        member.step()
    assert member.count == 0
    member.client.resume(member.assigned)
    member.run_until(lambda: member.count == 100, "all records")


def test_a_member_that_is_silent_for_too_long_has_lost_its_partitions(kafka, topic_factory, join):
    """After the poll interval partitions are lost, nothing of them is committed, and it rejoins."""
    topic = topic_factory(2)
    produce(kafka.bootstrap_servers, topic, [(b"%d" % i, b"x") for i in range(100)])
    member = join(topic, **{"group.protocol": "consumer", "max.poll.interval.ms": 1_000})
    member.run_until(lambda: member.count == 100, "all records")
    answers = []

    def on_callback(event):
        if isinstance(event, Lost):
            answers.append(member.client.commit(dict.fromkeys(event.partitions, 1), wait=True))

    member.on_callback = on_callback
    # Being silent is what is tested: the interval is checked every half second.
    time.sleep(2.0)
    member.run_until(lambda: member.told_of(Lost), "the loss")
    assert sorted(member.told_of(Lost)) == [(topic, 0), (topic, 1)]
    assert [answer.error for answer in answers] == ["no longer assigned"]
    assert member.told_of(Revoked) == []
    member.run_until(lambda: member.count == 200, "everything again", SECONDS)
    assert "_MAX_POLL_EXCEEDED" in {error.code for error in member.client.take_errors()}


def test_a_second_holder_of_an_instance_id_is_told_to_wait(topic_factory, join):
    """While the broker holds a static member's instance another of its name cannot work."""
    topic = topic_factory(1)
    static = {"group.protocol": "consumer", "group.instance.id": "one"}
    first = join(topic, **static)
    first.run_until(lambda: first.assigned, "the partition")
    second = join(topic, **static)
    with pytest.raises(ClientFatalError) as caught:
        run_until([first, second], lambda: False, "the refusal")
    assert caught.value.waits_for_instance_id
    # A consumer that is dead says so every time.
    with pytest.raises(ClientFatalError):
        second.step()
    assert first.assigned == {(topic, 0)}
