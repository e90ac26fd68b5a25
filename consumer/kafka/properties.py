"""librdkafka's properties: their names, the worker's own, and what is made of a user's.

Owns, in this order:

1. how properties are named (``KAFKA_SASL_PASSWORD_FILE`` is ``sasl.password``, read from that
   file), which are secret, and whether the client itself takes one;
2. the table: defaults with their reasons, what is forced or refused, and whose each is;
3. the properties of each kind of client, made of a user's, and the arithmetic over them.

Connects to nothing and reads no environment: a mapping goes in, a mapping comes out. Names and
units are librdkafka's own. The settings import this, so the native library is loaded only for the
one question that the client itself answers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from consumer.redaction import HIDDEN

# -- names and secrets ---------------------------------------------------------------------------

VARIABLE_PREFIX = "KAFKA_"

#: Properties whose own names end in what otherwise says "read the value from this file".
_FILE_PROPERTIES = frozenset(
    {
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
    }
)
_SECRET = re.compile(r"password|passphrase|secret|\.pem$|sasl\.oauthbearer\.config$")
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")

#: other spelling -> main name
_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "compression.type": "compression.codec",
    "queue.buffering.max.ms": "linger.ms",
    "retries": "message.send.max.retries",
}

#: What people set, for suggestions; the client knows some two hundred.
_COMMON = (
    "auto.offset.reset",
    "bootstrap.servers",
    "broker.address.family",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "compression.type",
    "debug",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "linger.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.max.bytes",
    "metadata.max.age.ms",
    "partition.assignment.strategy",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "session.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "statistics.interval.ms",
)


def property_of(variable: str) -> str:
    """Return the property that an environment variable names.

    Examples
    --------
    >>> property_of("KAFKA_BOOTSTRAP_SERVERS")
    'bootstrap.servers'
    """
    return variable.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".")


def variable_of(name: str) -> str:
    """Return the environment variable that names a property.

    Examples
    --------
    >>> variable_of("bootstrap.servers")
    'KAFKA_BOOTSTRAP_SERVERS'
    """
    return VARIABLE_PREFIX + name.upper().replace(".", "_")


def main_name(name: str) -> str:
    """Return the name under which the table has a property that has two.

    Examples
    --------
    >>> main_name("metadata.broker.list"), main_name("client.id")
    ('bootstrap.servers', 'client.id')
    """
    return _ALIASES.get(name, name)


def is_secret(name: str) -> bool:
    """Whether the property's value must not be shown."""
    return _SECRET.search(name) is not None


def shown_property(name: str, value: str) -> str:
    """Return the value as it may be printed: secrets and passwords in addresses are hidden.

    Examples
    --------
    >>> shown_property("sasl.password", "hunter2")
    '(hidden)'
    >>> shown_property("client.id", "worker-1")
    'worker-1'
    """
    return HIDDEN if is_secret(name) else _USER_INFO.sub(HIDDEN, value)


def read_property(name: str, value: str) -> tuple[str, str]:
    """Return property and value, the value read from the file when ``name`` ends in ``.file``.

    Raises
    ------
    ValueError
        If the file cannot be read as text.
    """
    if not name.endswith(".file") or name in _FILE_PROPERTIES:
        return name, value
    try:
        # Files of secrets end in a newline more often than not; passwords do not.
        text = Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        msg = f"cannot read {value!r}: {why}"
        raise ValueError(msg) from None
    return name.removesuffix(".file"), text


def client_refusal(name: str, value: str) -> str | None:
    """Return why the client refuses this property, or None when it takes it.

    The client checks properties in the order given, before it creates anything: one that does not
    exist, put last, ends the check and is the only complaint when the first is good.
    """
    # Loading the native library takes memory that reading settings alone need not have.
    from confluent_kafka import Consumer, KafkaException

    sentinel = "end.of.check"
    try:
        Consumer({"group.id": "check", name: value, sentinel: ""}).close()
    except KafkaException as error:
        text = str(error.args[0].str()).strip()
    except (ValueError, TypeError) as error:
        text = str(error)
    else:
        return None
    if sentinel in text:
        return None
    if text.startswith("No such configuration property"):
        close = difflib.get_close_matches(name, _COMMON, n=1, cutoff=0.7)
        return "no such property of the Kafka client" + (
            f"; did you mean {close[0]}?" if close else ""
        )
    return "refused by the Kafka client" if is_secret(name) else text


# -- the table ---------------------------------------------------------------------------------

#: The largest dead letter that is tried with its value; the topic's own limit decides.
DEAD_LETTER_LIMIT_BYTES = 100_000_000


#: The client's own defaults.
SESSION_TIMEOUT_MS = 45_000
MAX_POLL_INTERVAL_MS = 300_000


class Default(NamedTuple):
    """A property that the worker sets unless the user does, and why."""

    value: str | int | bool
    reason: str


#: What differs from librdkafka's own defaults.
CONSUMER_DEFAULTS: Mapping[str, Default] = {
    "auto.offset.reset": Default(
        "earliest", "latest skips records on the first start and on partitions added later"
    ),
    "partition.assignment.strategy": Default(
        "cooperative-sticky", "partitions that stay with a member keep flowing in a rebalance"
    ),
    "fetch.queue.backoff.ms": Default(
        15, "with the client's 1,000 a small queue stands empty for most of the time"
    ),
    "fetch.wait.max.ms": Default(100, "a resume waits for the fetch in flight to be answered"),
    "max.poll.interval.ms": Default(
        MAX_POLL_INTERVAL_MS, "the client's own; written out since the drain deadline rests on it"
    ),
    "socket.keepalive.enable": Default(True, "firewalls drop idle connections without a word"),
    "log.connection.close": Default(False, "brokers close idle connections; that is no error"),
    "client.id": Default("vertex-budget", "names the worker in the broker's logs and quotas"),
}

PRODUCER_DEFAULTS: Mapping[str, Default] = {
    "enable.idempotence": Default(True, "a retried dead letter or output is written once"),
    "acks": Default("all", "an offset is committed on the strength of this acknowledgement"),
    "linger.ms": Default(5, "an offset waits for the acknowledgement; batches fill anyway"),
    "topic.metadata.propagation.max.ms": Default(
        5_000, "a topic that was deleted is noticed, and made again, after this"
    ),
    "message.max.bytes": Default(
        DEAD_LETTER_LIMIT_BYTES, "whether a record is too large is the topic's to decide"
    ),
    "socket.keepalive.enable": CONSUMER_DEFAULTS["socket.keepalive.enable"],
    "log.connection.close": CONSUMER_DEFAULTS["log.connection.close"],
    "client.id": CONSUMER_DEFAULTS["client.id"],
}

#: Forced values; a user who sets another is told why not.
CONSUMER_FORCED: Mapping[str, Default] = {
    "enable.auto.commit": Default(
        False, "it commits what was handed out, not what was finished, so a crash loses records"
    ),
    "enable.auto.offset.store": Default(
        False, "the worker commits the lowest unfinished offset itself"
    ),
    "enable.partition.eof": Default(
        True, "the end of a partition is committed, so that the lag of a compacted topic reaches 0"
    ),
}
PRODUCER_FORCED: Mapping[str, Default] = {
    "enable.idempotence": PRODUCER_DEFAULTS["enable.idempotence"],
    "acks": PRODUCER_DEFAULTS["acks"],
    "queue.buffering.max.kbytes": Default(
        2_097_151, "the worker counts what it hands over, and lets one record of any size pass"
    ),
    "delivery.report.only.error": Default(
        False, "an offset is committed only when its dead letter or output is acknowledged"
    ),
}

#: Properties that nobody may set, and why.
REFUSED: Mapping[str, str] = {
    "transactional.id": "the worker promises at-least-once and uses no transactions",
    "enable.gapless.guarantee": "one failed dead letter would end the producer",
    "group.protocol.type": "it is the group's own business",
}
#: Refused with group.protocol=consumer: these are the broker's to set.
BROKER_SIDE: Mapping[str, str] = {
    "session.timeout.ms": "group.consumer.session.timeout.ms",
    "heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "group.consumer.assignors (or group.remote.assignor here)",
}
RESETS = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
    "error": "error",
}

CONSUMER_ONLY = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "client.rack",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.poll.interval.ms",
        "offset.store.method",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    }
)

PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "msg_order_cmp",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queuing.strategy",
        "request.timeout.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)


# -- what is made of them ------------------------------------------------------------------------

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
class Refusal:
    """One property that cannot be used as it is."""

    name: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.reason}"


class PropertyError(ValueError):
    """Kafka properties that cannot be used: all of them at once."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__(self.refusals)

    def __str__(self) -> str:
        return "; ".join(map(str, self.refusals))


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
    refusals = _refusals(given, CONSUMER_FORCED)
    for name in ("bootstrap.servers", "group.id"):
        mock = name == "bootstrap.servers" and "test.mock.num.brokers" in given
        if not str(given.get(name, "")) and not mock:
            refusals.append(Refusal(name, "", "must be set"))
    chosen: dict[str, Any] = {name: d.value for name, d in CONSUMER_DEFAULTS.items()}
    chosen.update(_prefetch(given, prefetch_bytes, brokers))
    chosen.update({n: v for n, v in given.items() if n not in PRODUCER_ONLY})
    chosen.update({name: forced.value for name, forced in CONSUMER_FORCED.items()})
    refusals += _group_refusals(given, chosen)
    refusals += _number_refusals(chosen)
    reset = str(chosen["auto.offset.reset"])
    if reset not in RESETS:
        allowed = "must be earliest, latest or error"
        refusals.append(Refusal("auto.offset.reset", reset, allowed))
    else:
        chosen["auto.offset.reset"] = RESETS[reset]
    if refusals:
        raise PropertyError(refusals)
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
    refusals = _refusals(given, PRODUCER_FORCED)
    chosen: dict[str, Any] = {name: d.value for name, d in PRODUCER_DEFAULTS.items()}
    chosen.update({n: v for n, v in given.items() if n not in CONSUMER_ONLY})
    chosen.update({name: forced.value for name, forced in PRODUCER_FORCED.items()})
    if refusals:
        raise PropertyError(refusals)
    return chosen


def client_properties(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return what any client needs to connect: nothing of consumers or producers."""
    given = _canonical(user)
    return {n: v for n, v in given.items() if n not in CONSUMER_ONLY and n not in PRODUCER_ONLY}


def prefetch_bound_bytes(properties: Mapping[str, Any], *, brokers: int) -> int:
    """Return what the client may hold of records that were not asked for yet.

    Parameters
    ----------
    properties : mapping
        As ``consumer_properties`` returned them.
    brokers : int
        Brokers that lead partitions, >= 1; each may have one fetch in flight when the queue's
        limit is reached, since the limit is checked before a fetch.

    Notes
    -----
    Units: bytes. Payload of queue and fetches, and 400 bytes beside each message. Bytes on the
    wire: what a compressed batch becomes, and a batch larger than a fetch, come on top.
    """
    queue_bytes = 1024 * int(properties.get("queued.max.messages.kbytes", 65_536))
    fetched = brokers * int(properties.get("fetch.max.bytes", 52_428_800))
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


def _canonical(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties under their main names."""
    return {main_name(name): value for name, value in user.items()}


def _refusals(given: Mapping[str, Any], forced: Mapping[str, Default]) -> list[Refusal]:
    refusals = [
        Refusal(name, str(given[name]), f"must not be set: {reason}")
        for name, reason in REFUSED.items()
        if name in given
    ]
    for name, must in forced.items():
        if name in given and not _same(given[name], must.value):
            wanted = str(must.value).lower()
            refusals.append(Refusal(name, str(given[name]), f"must be {wanted}: {must.reason}"))
    return refusals


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


def _group_refusals(given: Mapping[str, Any], chosen: dict[str, Any]) -> list[Refusal]:
    """Check the group's protocol, and leave out of ``chosen`` what it does not take."""
    protocol = str(chosen.get("group.protocol", "classic")).lower()
    if protocol == "consumer":
        chosen.pop("partition.assignment.strategy", None)
        return [
            Refusal(
                name,
                str(given[name]),
                f"cannot be set with group.protocol=consumer: the broker decides, by {instead}",
            )
            for name, instead in BROKER_SIDE.items()
            if name in given
        ]
    if protocol != "classic":
        return [Refusal("group.protocol", protocol, "must be classic or consumer")]
    strategy = str(chosen["partition.assignment.strategy"])
    kinds = {"cooperative" in one for one in strategy.split(",") if one.strip()}
    if kinds == {True, False}:
        reason = "cooperative and eager strategies cannot be mixed in one list"
        return [Refusal("partition.assignment.strategy", strategy, reason)]
    session_ms = _number(chosen, "session.timeout.ms", SESSION_TIMEOUT_MS)
    poll_ms = _number(chosen, "max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
    if session_ms > poll_ms:
        reason = (
            f"must be at least session.timeout.ms, which is {session_ms}: set that to "
            f"{poll_ms // 2} or so, or use group.protocol=consumer"
        )
        return [Refusal("max.poll.interval.ms", str(poll_ms), reason)]
    return []


def _number_refusals(chosen: Mapping[str, Any]) -> list[Refusal]:
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
        Refusal(name, str(chosen[name]), "must be a whole number above 0")
        for name in names
        if name in chosen and _number(chosen, name, 0) <= 0
    ]
