"""What a dead letter looks like on its topic: the record as it was, and why it is there.

Owns the names of the headers. Pure; sends nothing.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

from consumer.core.commands import Produce
from consumer.core.ledger.columns import Headers

PREFIX = "dlq."
REASON = "dlq.reason"
ERROR_CLASS = "dlq.error.class"
ERROR_TEXT = "dlq.error.text"
SOURCE_TOPIC = "dlq.source.topic"
SOURCE_PARTITION = "dlq.source.partition"
SOURCE_OFFSET = "dlq.source.offset"
ATTEMPTS = "dlq.attempts"
WORKER_VERSION = "dlq.worker.version"
#: only where the value was left out
VALUE_BYTES = "dlq.value.bytes"
VALUE_SHA256 = "dlq.value.sha256"

MOST_ERROR_TEXT = 1_000


class Left(IntEnum):
    """What was left out of a dead letter to make it small enough."""

    NOTHING = 0
    VALUE = 1
    #: key and original headers as well
    EVERYTHING = 2


def dead_letter_topic(source: str, configured: str | None = None) -> str:
    """Return the topic for dead letters of a topic.

    Examples
    --------
    >>> dead_letter_topic("parcels")
    'parcels.dlq'
    """
    return configured or f"{source}.dlq"


def dead_letter_headers(command: Produce, *, worker_version: str, left: Left) -> Headers:
    """Return the headers of a dead letter: the original ones, then why it is here.

    Parameters
    ----------
    command : Produce
        A dead letter. Headers of an earlier one (a record that was sent round again) are
        replaced.
    worker_version : str
        Who wrote it.
    left : Left
        What was left out; without its value a dead letter says what that was.
    """
    headers: Headers = []
    if left < Left.EVERYTHING:
        headers += [pair for pair in command.headers if not pair[0].startswith(PREFIX)]
    topic, partition = command.source
    said = {
        REASON: command.reason,
        ERROR_CLASS: command.error_class,
        ERROR_TEXT: command.error_text[:MOST_ERROR_TEXT],
        SOURCE_TOPIC: topic,
        SOURCE_PARTITION: str(partition),
        SOURCE_OFFSET: str(command.source_offset),
        ATTEMPTS: str(command.attempts),
        WORKER_VERSION: worker_version,
    }
    if left > Left.NOTHING and command.value is not None:
        said[VALUE_BYTES] = str(len(command.value))
        said[VALUE_SHA256] = hashlib.sha256(command.value).hexdigest()
    headers += [(name, text.encode(errors="replace")) for name, text in said.items()]
    return headers
