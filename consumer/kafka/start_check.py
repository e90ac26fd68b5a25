"""The checks before the start: is there a broker, are there the topics, may we read them.

Owns one question to the cluster and its answer in words. Joins no group and reads no record.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    #: topic -> number of partitions, of the topics that exist and may be read
    partitions: Mapping[str, int] = field(default_factory=dict)
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
        return ClusterCheck(0, problems=(describe(thrown),))
    servers = properties.get("bootstrap.servers", "")
    try:
        found = _topics(admin, timeout_seconds)
    except KafkaException as thrown:
        admin.poll(0)
        cause = describe(_most_telling([*reported, kafka_error(thrown)]))
        for failed in reports.take()[:1]:
            cause = failed.text
        wait = f"{timeout_seconds:g} s"
        return ClusterCheck(0, problems=(f"no broker of {servers} answered in {wait}: {cause}",))
    brokers, every = found
    partitions: dict[str, int] = {}
    problems: list[str] = []
    for topic in topics:
        if topic.startswith("^"):
            matching = {
                name: n for name, (n, e) in every.items() if re.match(topic, name) and not e
            }
            partitions.update(matching)
            if not matching:
                problems.append(f"no topic matches {topic}")
            continue
        count, error = every.get(topic) or _topic(admin, topic, timeout_seconds)
        if error is None:
            partitions[topic] = count
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            problems.append(f"topic {topic} does not exist on {servers}")
        else:
            problems.append(f"topic {topic}: {describe(error)}")
    return ClusterCheck(brokers, partitions, tuple(problems))


def _topics(
    admin: AdminClient, timeout_seconds: float
) -> tuple[int, dict[str, tuple[int, KafkaError | None]]]:
    """Return the number of brokers, and each visible topic's partitions and error."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        # The answer may come from a broker that has not registered itself yet.
        answer = admin.list_topics(timeout=max(0.1, deadline - time.monotonic()))
        if answer.brokers or time.monotonic() > deadline:
            every = {name: (len(t.partitions), t.error) for name, t in answer.topics.items()}
            return len(answer.brokers), every


def _topic(admin: AdminClient, topic: str, timeout_seconds: float) -> tuple[int, KafkaError | None]:
    """Return one topic's partitions and error: the list of all leaves out what may not be read."""
    try:
        answer = admin.list_topics(topic=topic, timeout=timeout_seconds).topics[topic]
    except KafkaException as thrown:
        return 0, kafka_error(thrown)
    return len(answer.partitions), answer.error


def _most_telling(errors: Iterable[KafkaError | None]) -> KafkaError | None:
    """Return the error that says most: a refused password before "all brokers are down"."""
    vague = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)  # noqa: SLF001
    unspecific = (*vague, KafkaError._TRANSPORT)  # noqa: SLF001
    known = [error for error in errors if error is not None]
    return min(known, key=lambda e: (e.code() in vague) + (e.code() in unspecific), default=None)
