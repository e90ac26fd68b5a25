"""Properties: what the worker sets, what it refuses, and what the client may hold by them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import strategies as st

from consumer.kafka.properties import (
    PropertyError,
    client_properties,
    consumer_properties,
    max_poll_interval_seconds,
    prefetch_bound_bytes,
    producer_properties,
    rebalance_is_incremental,
    session_timeout_seconds,
)

USER = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
MIB = 1024 * 1024


def refused(user: dict[str, object]) -> dict[str, str]:
    """Return the reasons for refusing properties, by name."""
    with pytest.raises(PropertyError) as caught:
        consumer_properties(USER | user, prefetch_bytes=8 * MIB)
    return {refusal.name: refusal.reason for refusal in caught.value.refusals}


def test_nothing_is_committed_by_the_client_itself():
    """Automatic commits and stored offsets are off, and the ends of partitions are reported."""
    properties = consumer_properties(USER, prefetch_bytes=8 * MIB)
    assert properties["enable.auto.commit"] is False
    assert properties["enable.auto.offset.store"] is False
    assert properties["enable.partition.eof"] is True


def test_a_first_start_reads_from_the_beginning():
    """Without a committed offset a group begins at the earliest record unless told otherwise."""
    assert consumer_properties(USER, prefetch_bytes=MIB)["auto.offset.reset"] == "earliest"
    chosen = consumer_properties({**USER, "auto.offset.reset": "end"}, prefetch_bytes=MIB)
    assert chosen["auto.offset.reset"] == "latest"


@pytest.mark.parametrize("name", ["enable.auto.commit", "enable.auto.offset.store"])
def test_forced_properties_name_their_reason(name):
    """A user who turns automatic commits on is told what that would do."""
    assert refused({name: "true"}).keys() == {name}
    assert consumer_properties({**USER, name: "false"}, prefetch_bytes=MIB)[name] is False


def test_all_problems_are_reported_at_once():
    """One error names every property that cannot be used, and survives pickling."""
    user = {"enable.auto.commit": "1", "transactional.id": "t", "auto.offset.reset": "middle"}
    with pytest.raises(PropertyError) as caught:
        consumer_properties(user, prefetch_bytes=MIB)
    names = [refusal.name for refusal in caught.value.refusals]
    assert sorted(names) == sorted([*user, "bootstrap.servers", "group.id"])
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.refusals == caught.value.refusals
    assert "enable.auto.commit=1: must be false" in str(again)


def test_the_consumer_protocol_leaves_sessions_to_the_broker():
    """With group.protocol=consumer the client's session properties are refused, not dropped."""
    protocol = {"group.protocol": "consumer"}
    properties = consumer_properties(USER | protocol, prefetch_bytes=MIB)
    assert "partition.assignment.strategy" not in properties
    assert refused(
        {**protocol, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 1}
    ).keys() == {
        "session.timeout.ms",
        "heartbeat.interval.ms",
    }


def test_the_classic_session_must_fit_into_the_poll_interval():
    """A poll interval under the session timeout is refused with a value that would do."""
    reasons = refused({"max.poll.interval.ms": 30_000})
    assert "session.timeout.ms, which is 45000" in reasons["max.poll.interval.ms"]
    user = {**USER, "max.poll.interval.ms": "30000", "session.timeout.ms": "15000"}
    properties = consumer_properties(user, prefetch_bytes=MIB)
    assert max_poll_interval_seconds(properties) == 30.0
    assert session_timeout_seconds(properties) == 15.0


def test_strategies_of_both_kinds_cannot_be_mixed():
    """A list with an eager and a cooperative strategy is refused."""
    assert refused({"partition.assignment.strategy": "range,cooperative-sticky"}).keys() == {
        "partition.assignment.strategy"
    }


def test_incremental_rebalances_are_recognised():
    """Cooperative strategies and the consumer protocol give partitions one by one."""
    assert rebalance_is_incremental(consumer_properties(USER, prefetch_bytes=MIB))
    assert rebalance_is_incremental({"group.protocol": "consumer"})
    assert not rebalance_is_incremental({"partition.assignment.strategy": "range"})
    assert not rebalance_is_incremental({})


@given(
    prefetch_mib=st.integers(8, 512),
    brokers=st.integers(1, 12),
)
def test_the_allowance_is_kept_where_fetches_are_not_at_their_least(prefetch_mib, brokers):
    """What the client may hold is within the allowance, or its fetches are as small as can be."""
    properties = consumer_properties(USER, prefetch_bytes=prefetch_mib * MIB, brokers=brokers)
    bound = prefetch_bound_bytes(properties, brokers=brokers)
    assert bound <= prefetch_mib * MIB or properties["fetch.max.bytes"] == 1_000_000


def test_the_bound_counts_brokers_and_the_overhead_of_messages():
    """Each broker may have a fetch in flight; the user's own limits are counted as they are."""
    properties = consumer_properties(
        {**USER, "fetch.max.bytes": "2000000", "queued.min.messages": 1000}, prefetch_bytes=8 * MIB
    )
    least = prefetch_bound_bytes(properties, brokers=1)
    # 2 MiB queue, one fetch, and 400 bytes for 1,000 messages and for each 128 bytes of the fetch
    assert least == 2 * MIB + 2_000_000 + 400 * (1000 + 2_000_000 // 128)
    assert prefetch_bound_bytes(properties, brokers=2) == least + 2_000_000 + 400 * 15_625


@pytest.mark.parametrize(
    "extra", [{}, {"group.protocol": "consumer"}, {"max.poll.interval.ms": 60000}]
)
def test_the_client_takes_the_properties(extra):
    """The client accepts what comes out, for a consumer and for a producer."""
    properties = consumer_properties(USER | extra, prefetch_bytes=8 * MIB)
    Consumer({**properties, "log_level": 0}).close()
    Producer({**producer_properties(USER | extra), "log_level": 0})


def test_each_client_gets_only_its_own_properties():
    """A producer is not handed the group, nor a consumer the acknowledgements."""
    user = {**USER, "linger.ms": 50, "max.partition.fetch.bytes": 1000, "client.rack": "a"}
    assert "group.id" not in producer_properties(user)
    assert producer_properties(user)["linger.ms"] == 50
    consumer = consumer_properties(user, prefetch_bytes=MIB)
    assert "linger.ms" not in consumer
    assert consumer["fetch.message.max.bytes"] == 1000
    assert client_properties(user) == {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("acks", ["1", "0"])
def test_weaker_acknowledgements_are_refused(acks):
    """An offset is committed on the strength of acks=all, so nothing less is taken."""
    with pytest.raises(PropertyError, match="acks"):
        producer_properties({**USER, "acks": acks})
    assert producer_properties({**USER, "request.required.acks": "-1"})["acks"] == "all"


def test_the_settings_do_not_load_the_native_library():
    """Names and arithmetic need no client: a command that only shows help stays small."""
    code = "import sys, consumer.settings.reading; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
