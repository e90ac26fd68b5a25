"""The checks before the start: is there a broker, are there the topics, may we read them.

Owns one question to the cluster and its answer in words. Joins no group and reads no record.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from consumer.kafka.errors import Reports, describe, kafka_error
from consumer.kafka.tokens import with_guarded_token


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """What the cluster says of itself and of the topics asked for."""

    #: brokers; 0 when none answered
    brokers: int
    #: what is wrong, a sentence each; empty when the worker can start
    problems: tuple[str, ...] = ()


def check_cluster(
    properties: Mapping[str, Any], topics: Iterable[str], timeout_seconds: float
) -> ClusterCheck:
    """Ask the cluster about topics.

    Parameters
    ----------
    properties : mapping
        As ``client_properties`` returns them.
    topics : iterable of str
        Names; one that begins with ``^`` is a pattern and must match at least one topic.
    timeout_seconds : float
        Longest wait for a broker's answer.
    """
    reported: list[KafkaError] = []
    reports = Reports()
    # Silent: the answer says it, once.
    config = with_guarded_token(properties, reports)
    config |= {"error_cb": reported.append, "log_level": 0}
    try:
        admin = AdminClient(config)
    except KafkaException as thrown:
        return ClusterCheck(0, (describe(thrown),))
    servers = properties.get("bootstrap.servers", "")
    try:
        found = _topics(admin, timeout_seconds)
    except KafkaException as thrown:
        admin.poll(0)
        cause = describe(_most_telling([*reported, kafka_error(thrown)]))
        for failed in reports.take()[:1]:
            cause = failed.text
        wait = f"{timeout_seconds:g} s"
        return ClusterCheck(0, (f"no broker of {servers} answered in {wait}: {cause}",))
    brokers, every = found
    problems: list[str] = []
    for topic in topics:
        if topic.startswith("^"):
            if not any(re.match(topic, name) and e is None for name, e in every.items()):
                problems.append(f"no topic matches {topic}")
            continue
        error = every[topic] if topic in every else _topic_error(admin, topic, timeout_seconds)
        if error is None:
            continue
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            problems.append(f"topic {topic} does not exist on {servers}")
        else:
            problems.append(f"topic {topic}: {describe(error)}")
    return ClusterCheck(brokers, tuple(problems))


def _topics(admin: AdminClient, timeout_seconds: float) -> tuple[int, dict[str, KafkaError | None]]:
    """Return the number of brokers, and each visible topic's error."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        # The answer may come from a broker that has not registered itself yet.
        answer = admin.list_topics(timeout=max(0.1, deadline - time.monotonic()))
        if answer.brokers or time.monotonic() > deadline:
            return len(answer.brokers), {name: t.error for name, t in answer.topics.items()}


def _topic_error(admin: AdminClient, topic: str, timeout_seconds: float) -> KafkaError | None:
    """Return what is wrong with one topic: the list of all leaves out what may not be read."""
    try:
        return admin.list_topics(topic=topic, timeout=timeout_seconds).topics[topic].error
    except KafkaException as thrown:
        return kafka_error(thrown)


def _most_telling(errors: Iterable[KafkaError | None]) -> KafkaError | None:
    """Return the error that says most: a refused password before "all brokers are down"."""
    vague = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)  # noqa: SLF001
    unspecific = (*vague, KafkaError._TRANSPORT)  # noqa: SLF001
    known = [error for error in errors if error is not None]
    return min(known, key=lambda e: (e.code() in vague) + (e.code() in unspecific), default=None)
