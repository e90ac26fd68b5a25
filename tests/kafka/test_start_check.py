"""What is said before the start, when something is missing."""

from __future__ import annotations

import pytest

from consumer.kafka.start_check import check_cluster


def test_everything_is_there(kafka, topic_factory):
    """Brokers are counted; a pattern stands for what it matches."""
    topic = topic_factory(3)
    check = check_cluster({"bootstrap.servers": kafka.bootstrap_servers}, [topic, f"^{topic}$"], 10)
    assert check.problems == ()
    assert check.brokers >= 1


def test_missing_topics_are_named(kafka, topic_factory):
    """Every topic that is not there is a problem of its own."""
    servers = kafka.bootstrap_servers
    topics = [topic_factory(1), "not-there", "^not-there-either"]
    check = check_cluster({"bootstrap.servers": servers}, topics, 10)
    assert check.problems == (
        f"topic not-there does not exist on {servers}",
        "no topic matches ^not-there-either",
    )


@pytest.mark.parametrize(
    ("properties", "cause"),
    [
        ({"bootstrap.servers": "127.0.0.1:1"}, "Connection refused"),
        ({"bootstrap.servers": "nowhere.invalid:9092"}, "cannot be resolved"),
    ],
)
def test_a_missing_broker_is_named_with_the_cause(properties, cause):
    """The text says which servers did not answer, and why."""
    check = check_cluster(properties, ["t"], 0.5)
    (problem,) = check.problems
    assert problem.startswith(f"no broker of {properties['bootstrap.servers']} answered in 0.5 s: ")
    assert cause in problem
    assert check.brokers == 0


def test_a_property_that_the_client_refuses_is_a_problem():
    """A bad value is reported in the client's own words."""
    (problem,) = check_cluster(
        {"bootstrap.servers": "x", "socket.timeout.ms": "no"}, [], 1
    ).problems
    assert "socket.timeout.ms" in problem
