"""What the parent and a handler process say to each other.

Owns the messages on the socket and the packing of chunks and outcomes. Messages are short (one
datagram, no longer than ``MESSAGE_BYTES``) and name the memory in which the rest lies; a short
outcome travels in the message itself.

Rules: packed with ``marshal``, never pickle: it is several times as fast on columns of bytes, and
cannot run code. Both sides are the same interpreter, so its format cannot differ. Version 2 of
the format: later ones remember every object, which costs more than it saves.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np

from consumer.calls import RecordColumns
from consumer.core.commands import Chunk
from consumer.core.events import ChunkOutcome, Output, RecordFault

#: PIPE_BUF on Linux: what is sent at once and whole.
MESSAGE_BYTES: Final = 4096
#: An outcome this short needs no slot.
INLINE_BYTES: Final = 3072
#: Longest text in a message.
TEXT_BYTES: Final = 3000
#: In place of a slot's number: memory of its own, whose descriptor comes with the message.
LARGE: Final = -1
#: In place of a slot's number: the outcome is in the message itself.
INLINE: Final = -2
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Work:
    """To the child: handle the chunk that lies in a slot."""

    chunk_id: int
    records: int
    slot: int
    length_bytes: int
    sample_bytes: bool
    trace_allocations: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """To the child: close the handler and exit."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From the child: the handler is open."""

    baseline_bytes: int


@dataclass(frozen=True, slots=True)
class NotOpened:
    """From the child: the handler could not be imported or opened; the child exits."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """From the child: a chunk is finished, and where its outcome lies."""

    chunk_id: int
    slot: int
    length_bytes: int
    inline: bytes = b""


Message = Work | Finish | Ready | NotOpened | Done
_KINDS: Final[tuple[type[Any], ...]] = (Work, Finish, Ready, NotOpened, Done)


def dump_message(message: Message) -> bytes:
    """Return a message as one datagram.

    Examples
    --------
    >>> load_message(dump_message(Ready(1000)))
    Ready(baseline_bytes=1000)
    """
    fields = tuple(getattr(message, name) for name in message.__slots__)
    return marshal.dumps((_KINDS.index(type(message)), *fields), _VERSION)


def load_message(data: bytes) -> Message:
    """Return the message of one datagram."""
    kind, *fields = marshal.loads(data)  # noqa: S302 - from our own child
    message: Message = _KINDS[kind](*fields)
    return message


def cut_text(text: str) -> str:
    """Return as much of a text as fits into a message."""
    return text.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore")


def pack_chunk(chunk: Chunk) -> bytes:
    """Pack the records of a chunk.

    Parameters
    ----------
    chunk : Chunk
        Values and keys are bytes or None.
    """
    parts = []
    for part in chunk.parts:
        columns = part.columns
        parts.append(
            (
                *part.partition,
                _plain(columns.values),
                None if columns.keys is None else _plain(columns.keys),
                columns.headers,
                columns.offsets.tobytes(),
                columns.timestamps_ms.tobytes(),
            )
        )
    return marshal.dumps(parts, _VERSION)


def _plain(items: Any) -> list[Any] | tuple[Any, ...]:
    return items if type(items) in (list, tuple) else list(items)


def unpack_chunk(data: memoryview) -> RecordColumns:
    """Return the records of a packed chunk; nothing refers to ``data`` afterwards."""
    parts = marshal.loads(data)  # noqa: S302 - from our own parent
    if len(parts) == 1:
        topic, partition, values, keys, headers, offsets, timestamps = parts[0]
        starts = [0]
        partitions = [(topic, partition)]
    else:
        counts = [len(part[2]) for part in parts]
        starts = list(accumulate(counts[:-1], initial=0))
        partitions = [(part[0], part[1]) for part in parts]
        values = list(chain.from_iterable(part[2] for part in parts))
        keys = None
        if any(part[3] is not None for part in parts):
            keys = list(chain.from_iterable(part[3] or [None] * len(part[2]) for part in parts))
        headers = {
            start + index: item
            for start, part in zip(starts, parts, strict=True)
            for index, item in part[4].items()
        }
        offsets = b"".join([part[5] for part in parts])
        timestamps = b"".join([part[6] for part in parts])
    return RecordColumns(
        values,
        keys,
        headers,
        np.frombuffer(offsets, np.int64),
        np.frombuffer(timestamps, np.int64),
        partitions,
        starts,
    )


def pack_outcome(outcome: ChunkOutcome) -> bytes:
    """Pack an outcome."""
    return marshal.dumps(
        (
            outcome.seconds,
            outcome.cpu_seconds,
            outcome.working_bytes,
            outcome.resident_bytes,
            outcome.exact_vertices,
            outcome.growth_bytes,
            [_fault_fields(fault) for fault in outcome.failed],
            [_fault_fields(fault) for fault in outcome.retry],
            outcome.skipped,
            [(item.index, item.key, item.value, item.headers) for item in outcome.outputs],
        ),
        _VERSION,
    )


def _fault_fields(fault: RecordFault) -> tuple[int, str, str, str]:
    # A code may be an enumeration member, which marshal refuses.
    return fault.index, str(fault.reason), fault.error_class, fault.error_text


def unpack_outcome(data: bytes | memoryview) -> ChunkOutcome:
    """Return a packed outcome; nothing refers to ``data`` afterwards."""
    (
        seconds,
        cpu_seconds,
        working_bytes,
        resident_bytes,
        exact_vertices,
        growth_bytes,
        failed,
        retry,
        skipped,
        outputs,
    ) = marshal.loads(data)  # noqa: S302 - from our own child
    return ChunkOutcome(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        working_bytes=working_bytes,
        resident_bytes=resident_bytes,
        exact_vertices=exact_vertices,
        growth_bytes=growth_bytes,
        failed=tuple(RecordFault(*fields) for fields in failed),
        retry=tuple(RecordFault(*fields) for fields in retry),
        skipped=tuple(skipped),
        outputs=tuple(Output(*fields) for fields in outputs),
    )
