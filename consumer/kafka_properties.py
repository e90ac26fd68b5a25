"""librdkafka properties: how they are named, which are secret, and whether the client takes them.

Owns the mapping ``KAFKA_SASL_PASSWORD_FILE`` -> ``sasl.password`` (read from that file), what must
never be printed, and the check of every property by the client itself, which knows its own names
and ranges and needs no broker for it. Connects to nothing. What the worker makes of properties is
``consumer.kafka.properties``.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

VARIABLE_PREFIX = "KAFKA_"
HIDDEN = "(hidden)"

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
