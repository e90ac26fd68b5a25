"""What the Kafka adapters raise and report, as text that can be shown and pickled.

Owns the classes and the reading of a ``KafkaError``. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from consumer.core.ledger.columns import Partition

#: Errors kept until they are taken; more are dropped.
MOST_ERRORS_KEPT = 100

#: Codes after which a client never works again, whatever its ``fatal()`` says: a static member
#: whose old instance the broker still holds is told ``_FATAL`` with ``fatal()`` False.
FATAL_CODES = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.UNSUPPORTED_ASSIGNOR,
    }
)


@dataclass(frozen=True, slots=True)
class ClientError:
    """One thing that the client reported and from which it recovers by itself, or is waiting to."""

    #: Kafka's name of the code ("_TRANSPORT", "TOPIC_AUTHORIZATION_FAILED")
    code: str
    text: str
    partition: Partition | None = None


class ClientFatalError(Exception):
    """The consumer is dead, or its position is unknown: close it and make another."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(code, text)

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"

    @property
    def waits_for_instance_id(self) -> bool:
        """Whether the broker still holds this static member's earlier instance."""
        # The code may be _FATAL, and then only the text tells.
        return self.code == "UNRELEASED_INSTANCE_ID" or "instance ID is still used" in self.text


class CallbackFailedError(Exception):
    """Our own code failed inside a callback of the client; the cause is attached."""

    def __init__(self, callback: str, text: str) -> None:
        self.callback = callback
        self.text = text
        super().__init__(callback, text)

    def __str__(self) -> str:
        return f"{self.callback}: {self.text}"


class Reports:
    """What a client reported: kept until taken, the first fatal one for good."""

    def __init__(self) -> None:
        self.fatal: ClientFatalError | None = None
        self._kept: list[ClientError] = []

    def add(self, error: KafkaError, partition: Partition | None = None) -> None:
        """Keep what the client says."""
        if is_fatal(error) and self.fatal is None:
            self.fatal = ClientFatalError(error.name(), describe(error))
        self.keep(ClientError(error.name(), describe(error), partition))

    def add_thrown(self, thrown: object, partition: Partition | None = None) -> None:
        """Keep what a call of the client raised."""
        error = kafka_error(thrown)
        if error is not None:
            self.add(error, partition)
        else:
            self.keep(ClientError(type(thrown).__name__, describe(thrown), partition))

    def keep(self, error: ClientError) -> None:
        """Keep an error, unless too many wait already."""
        if len(self._kept) < MOST_ERRORS_KEPT:
            self._kept.append(error)

    def take(self) -> list[ClientError]:
        """Return what was kept since the last call."""
        taken, self._kept = self._kept, []
        return taken


def kafka_error(thrown: object) -> KafkaError | None:
    """Return the ``KafkaError`` inside whatever was thrown, if there is one.

    On Python 3.11 an exception of the client's own that crosses one of its callbacks arrives as
    a bare ``KafkaError``, which is no exception at all.
    """
    if isinstance(thrown, KafkaError):
        return thrown
    if isinstance(thrown, KafkaException) and thrown.args:
        first: Any = thrown.args[0]
        if isinstance(first, KafkaError):
            return first
    return None


def is_fatal(error: KafkaError) -> bool:
    """Whether a client that reported this error never works again."""
    return error.fatal() or error.code() in FATAL_CODES


def describe(thrown: object) -> str:
    """Return one line about whatever was thrown, with its code and what to check.

    Examples
    --------
    >>> describe(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"))
    'no (TOPIC_AUTHORIZATION_FAILED): does the user have the ACLs Read and Describe on the topic?'
    >>> describe(ValueError("x"))
    'ValueError: x'
    """
    error = kafka_error(thrown)
    if error is None:
        return f"{type(thrown).__name__}: {thrown}"
    text = f"{error.str()} ({error.name()})"
    hint = _HINTS.get(error.code())
    return f"{text}: {hint}" if hint else text


_HINTS = {
    KafkaError._TRANSPORT: "is bootstrap.servers right, and is the broker running?",  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN: "is bootstrap.servers right, and are the brokers running?",  # noqa: SLF001
    KafkaError._RESOLVE: "the name of a broker cannot be resolved; is it right?",  # noqa: SLF001
    KafkaError._SSL: "does the listener speak TLS, and is ssl.ca.location its authority?",  # noqa: SLF001
    KafkaError._AUTHENTICATION: "are sasl.mechanism, user and password the listener's?",  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "does the user have the ACLs Read and Describe on the topic?"
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: "does the user have the ACL Read on the group?",
    KafkaError._UNSUPPORTED_FEATURE: (  # noqa: SLF001
        "is the broker too old for this? group.protocol=consumer needs Kafka 4.0"
    ),
    KafkaError.UNSUPPORTED_VERSION: (
        "is the broker too old for this? group.protocol=consumer needs Kafka 4.0"
    ),
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "another member of the group uses another partition.assignment.strategy or protocol"
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is outside the broker's group.min/max.session.timeout.ms"
    ),
}
