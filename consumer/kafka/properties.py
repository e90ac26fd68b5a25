"""The client's properties: what the worker sets, what a user may set, and what that costs.

Owns the defaults, the refusals and the arithmetic over properties. Makes no client and reads no
environment: a mapping goes in, a mapping comes out. Names and units are librdkafka's own.
Callers: the composition root, and the client and producer adapters for their own limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from consumer.kafka.property_table import (
    ALIASES,
    BROKER_SIDE,
    CONSUMER_DEFAULTS,
    CONSUMER_FORCED,
    CONSUMER_ONLY,
    MAX_POLL_INTERVAL_MS,
    PRODUCER_DEFAULTS,
    PRODUCER_FORCED,
    PRODUCER_ONLY,
    REFUSED,
    RESETS,
    SESSION_TIMEOUT_MS,
    Default,
)
from consumer.kafka_properties import shown_property

#: The client keeps about this much beside every message that it holds.
MESSAGE_OVERHEAD_BYTES = 400
#: A fetch is assumed to hold no smaller records than this when its messages are counted.
LEAST_RECORD_BYTES = 128
#: What a fetch may not be smaller than: the client wants fetch.max.bytes >= message.max.bytes,
#: whose default is this.
LEAST_FETCH_BYTES = 1_000_000
#: The client refuses a smaller receive.message.max.bytes than fetch.max.bytes and this.
RECEIVE_MARGIN_BYTES = 512
#: Largest fetch.message.max.bytes that the worker sets by itself.
PARTITION_FETCH_BYTES = 1024 * 1024
#: Most messages that the client's queue is asked to hold.
MOST_QUEUED_MESSAGES = 100_000
#: Fewest; below this the queue runs empty between two fetches of light records.
FEWEST_QUEUED_MESSAGES = 2_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One property that cannot be used as it is."""

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.reason}"


class PropertyError(ValueError):
    """Kafka properties that cannot be used: all of them at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


def consumer_properties(
    user: Mapping[str, Any], *, prefetch_bytes: int, brokers: int = 3
) -> dict[str, Any]:
    """Return the consumer's properties.

    Parameters
    ----------
    user : mapping
        What the user set, by librdkafka's names. Properties of producers are left out.
    prefetch_bytes : int
        What the client may hold of records not yet asked for. Split into a queue, one fetch
        for each broker and the overhead of each message; a fetch cannot be smaller than
        ``LEAST_FETCH_BYTES``, so ask ``prefetch_bound_bytes`` what came of it.
    brokers : int
        Brokers that lead partitions, >= 1; each may have one fetch in flight.

    Raises
    ------
    PropertyError
        Names every property that cannot be used, with its reason.
    """
    given = _canonical(user)
    problems = _refusals(given, CONSUMER_FORCED)
    for name in ("bootstrap.servers", "group.id"):
        mock = name == "bootstrap.servers" and "test.mock.num.brokers" in given
        if not str(given.get(name, "")) and not mock:
            problems.append(Problem(name, "", "must be set"))
    chosen: dict[str, Any] = {name: d.value for name, d in CONSUMER_DEFAULTS.items()}
    chosen.update(_prefetch(given, prefetch_bytes, brokers))
    chosen.update({n: v for n, v in given.items() if n not in PRODUCER_ONLY})
    chosen.update({name: forced.value for name, forced in CONSUMER_FORCED.items()})
    problems += _group_problems(given, chosen)
    problems += _number_problems(chosen)
    reset = str(chosen["auto.offset.reset"])
    if reset not in RESETS:
        allowed = "must be earliest, latest or error"
        problems.append(Problem("auto.offset.reset", reset, allowed))
    else:
        chosen["auto.offset.reset"] = RESETS[reset]
    if problems:
        raise PropertyError(problems)
    return chosen


def producer_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of the producer of dead letters and outputs.

    Parameters
    ----------
    user : mapping
        What the user set, by librdkafka's names. Properties of consumers are left out.

    Raises
    ------
    PropertyError
        Names every property that cannot be used, with its reason.
    """
    given = _canonical(user)
    problems = _refusals(given, PRODUCER_FORCED)
    chosen: dict[str, Any] = {name: d.value for name, d in PRODUCER_DEFAULTS.items()}
    chosen.update({n: v for n, v in given.items() if n not in CONSUMER_ONLY})
    chosen.update({name: forced.value for name, forced in PRODUCER_FORCED.items()})
    if problems:
        raise PropertyError(problems)
    return chosen


def client_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return what any client needs to connect: nothing of consumers or producers."""
    given = _canonical(user)
    return {n: v for n, v in given.items() if n not in CONSUMER_ONLY and n not in PRODUCER_ONLY}


def prefetch_bound_bytes(
    properties: Mapping[str, Any],
    *,
    brokers: int,
    expansion_ratio: float = 1.0,
    largest_batch_bytes: int = 0,
) -> int:
    """Return what the client may hold of records that were not asked for yet.

    Parameters
    ----------
    properties : mapping
        As ``consumer_properties`` returned them.
    brokers : int
        Brokers that lead partitions, >= 1; each may have one fetch in flight when the queue's
        limit is reached, since the limit is checked before a fetch.
    expansion_ratio : float
        Bytes of records over bytes on the wire, >= 1. The client's limits count what was
        fetched before decompression.
    largest_batch_bytes : int
        Largest batch of the topic; a fetch returns at least one whole batch.

    Notes
    -----
    Units: bytes. Payload of queue and fetches, and 400 bytes beside each message.
    """
    queue_bytes = 1024 * int(properties.get("queued.max.messages.kbytes", 65_536))
    fetch_bytes = brokers * max(
        int(properties.get("fetch.max.bytes", 52_428_800)), largest_batch_bytes
    )
    fetched = int(fetch_bytes * max(1.0, expansion_ratio))
    messages = int(properties.get("queued.min.messages", 100_000)) + fetched // LEAST_RECORD_BYTES
    return queue_bytes + fetched + MESSAGE_OVERHEAD_BYTES * messages


def rebalance_is_incremental(properties: Mapping[str, Any]) -> bool:
    """Whether the group gives and takes partitions one by one (the client does not say)."""
    if str(properties.get("group.protocol", "classic")).lower() == "consumer":
        return True
    strategy = str(properties.get("partition.assignment.strategy", "range,roundrobin"))
    return "cooperative" in strategy


def max_poll_interval_seconds(properties: Mapping[str, Any]) -> float:
    """Return the time after which a silent member loses its partitions; a revoke's limit too."""
    return int(properties.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)) / 1000


def session_timeout_seconds(properties: Mapping[str, Any]) -> float:
    """Return how long a synchronous commit may block when the coordinator is away.

    With ``group.protocol=consumer`` the client uses its default of 45 s, whatever the broker's.
    """
    return int(properties.get("session.timeout.ms", SESSION_TIMEOUT_MS)) / 1000


def redacted(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties as text for people, without what must stay secret."""
    return {
        name: "(set)" if callable(value) else shown_property(name, str(value))
        for name, value in sorted(properties.items())
    }


def _canonical(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties under their main names."""
    return {ALIASES.get(name, name): value for name, value in user.items()}


def _refusals(given: Mapping[str, Any], forced: Mapping[str, Default]) -> list[Problem]:
    problems = [
        Problem(name, str(given[name]), f"must not be set: {reason}")
        for name, reason in REFUSED.items()
        if name in given
    ]
    for name, must in forced.items():
        if name in given and not _same(given[name], must.value):
            wanted = str(must.value).lower()
            problems.append(Problem(name, str(given[name]), f"must be {wanted}: {must.reason}"))
    return problems


def _same(given: object, wanted: object) -> bool:
    texts = {str(given).lower(), str(wanted).lower()}
    return len(texts) == 1 or texts <= {"true", "1", "yes"} or texts == {"all", "-1"}


def _prefetch(given: Mapping[str, Any], prefetch_bytes: int, brokers: int) -> dict[str, int]:
    """Split the allowance: a quarter each for the queue and its messages' overhead, half fetches.

    Messages in a fetch cost overhead as well, up to ``MESSAGE_OVERHEAD_BYTES`` for each
    ``LEAST_RECORD_BYTES``; that part of the half comes first.
    """
    quarter = max(1, prefetch_bytes // 4)
    beside = 1 + MESSAGE_OVERHEAD_BYTES / LEAST_RECORD_BYTES
    fetch_bytes = int(2 * quarter / beside / max(1, brokers))
    fetch_bytes = max(fetch_bytes, LEAST_FETCH_BYTES, _number(given, "message.max.bytes", 0))
    queued = quarter // MESSAGE_OVERHEAD_BYTES
    split = {
        "queued.max.messages.kbytes": max(1, quarter // 1024),
        "queued.min.messages": min(max(queued, FEWEST_QUEUED_MESSAGES), MOST_QUEUED_MESSAGES),
        "fetch.max.bytes": fetch_bytes,
        "fetch.message.max.bytes": min(PARTITION_FETCH_BYTES, fetch_bytes),
    }
    if fetch_bytes + RECEIVE_MARGIN_BYTES > 100_000_000:
        split["receive.message.max.bytes"] = fetch_bytes + RECEIVE_MARGIN_BYTES
    return split


def _number(properties: Mapping[str, Any], name: str, otherwise: int) -> int:
    try:
        return int(properties.get(name, otherwise))
    except (TypeError, ValueError):
        return otherwise


def _group_problems(given: Mapping[str, Any], chosen: dict[str, Any]) -> list[Problem]:
    """Check the group's protocol, and leave out of ``chosen`` what it does not take."""
    protocol = str(chosen.get("group.protocol", "classic")).lower()
    if protocol == "consumer":
        chosen.pop("partition.assignment.strategy", None)
        return [
            Problem(
                name,
                str(given[name]),
                f"cannot be set with group.protocol=consumer: the broker decides, by {instead}",
            )
            for name, instead in BROKER_SIDE.items()
            if name in given
        ]
    if protocol != "classic":
        return [Problem("group.protocol", protocol, "must be classic or consumer")]
    strategy = str(chosen["partition.assignment.strategy"])
    kinds = {"cooperative" in one for one in strategy.split(",") if one.strip()}
    if kinds == {True, False}:
        reason = "cooperative and eager strategies cannot be mixed in one list"
        return [Problem("partition.assignment.strategy", strategy, reason)]
    session_ms = _number(chosen, "session.timeout.ms", SESSION_TIMEOUT_MS)
    poll_ms = _number(chosen, "max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
    if session_ms > poll_ms:
        reason = (
            f"must be at least session.timeout.ms, which is {session_ms}: set that to "
            f"{poll_ms // 2} or so, or use group.protocol=consumer"
        )
        return [Problem("max.poll.interval.ms", str(poll_ms), reason)]
    return []


def _number_problems(chosen: Mapping[str, Any]) -> list[Problem]:
    """Check the numbers that the arithmetic here reads."""
    names = (
        "max.poll.interval.ms",
        "session.timeout.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
    )
    return [
        Problem(name, str(chosen[name]), "must be a whole number above 0")
        for name in names
        if name in chosen and _number(chosen, name, 0) <= 0
    ]
