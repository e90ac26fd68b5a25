"""One call of a handler, from the side of the code that calls it.

Owns the records of a chunk as columns, what was said of each, and the part of both that one call
is about. ``consumer.batch`` is the handler's view of a call; when a handler is called, and what
follows when it raises, is ``consumer.processes.attempts``'.

Rules: a record is named by its index in the call by those who speak of it, and by its index in
the chunk in what is kept. Of ``fail`` and ``retry`` the later holds.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consumer.core.events import Output, RecordFault
from consumer.core.ledger.columns import Headers
from consumer.core.reasons import Reason, RetryReason
from consumer.errors import HandlerContractError

#: Longest text that is kept of an error.
ERROR_TEXT_LIMIT = 1000
_CODE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

#: Anything that can become the bytes of an output's key or value.
Payload: TypeAlias = bytes | bytearray | memoryview | str | None


@dataclass(slots=True, eq=False)
class RecordColumns:
    """The records of one chunk, as columns."""

    values: Sequence[bytes | None]
    #: None when every key is null
    keys: Sequence[bytes | None] | None
    #: sparse: index -> headers
    headers: Mapping[int, Headers]
    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    #: of each part of the chunk: its topic and partition, and the index of its first record
    partitions: Sequence[tuple[str, int]]
    starts: Sequence[int]


@dataclass(slots=True, eq=False)
class RecordOutcomes:
    """What was said of the records of one chunk, by index in the chunk."""

    failed: dict[int, RecordFault] = field(default_factory=dict)
    retry: dict[int, RecordFault] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    outputs: list[Output] = field(default_factory=list)

    def has(self, index: int) -> bool:
        """Whether something was said of a record."""
        return index in self.failed or index in self.retry or index in self.done


class Call:
    """Some records of a chunk, decoded, for one call of the handler.

    Parameters
    ----------
    columns : RecordColumns
        Of the whole chunk.
    geometries : ndarray of object, shape (n,)
        Of the records of this call.
    documents : sequence
        Of the whole chunk: each parsed document without its geometry; None where there is none.
    indices : sequence of int
        Index in the chunk of each record of this call.
    outcomes : RecordOutcomes
        Of the whole chunk.
    """

    __slots__ = ("columns", "documents", "geometries", "indices", "outcomes", "outputs")

    def __init__(
        self,
        columns: RecordColumns,
        geometries: NDArray[np.object_],
        documents: Sequence[Any],
        indices: Sequence[int],
        outcomes: RecordOutcomes,
    ) -> None:
        self.columns = columns
        self.geometries = geometries
        self.documents = documents
        self.indices = indices
        self.outcomes = outcomes
        #: of this call, until it is known how it ends
        self.outputs: list[Output] = []

    def __len__(self) -> int:
        return len(self.indices)

    # What the handler says.

    def fail(self, index: int, reason: str, text: str) -> None:
        """Fail one record; a reason that is no code becomes text."""
        at = self._chunk_index(index)
        if not _CODE.fullmatch(str(reason)):
            text = f"{reason}: {text}" if text else str(reason)
            reason = Reason.HANDLER_REFUSED
        self.outcomes.retry.pop(at, None)
        self.outcomes.failed[at] = RecordFault(at, str(reason), "", str(text)[:ERROR_TEXT_LIMIT])

    def retry(self, index: int, text: str) -> None:
        """Ask for another attempt of one record."""
        at = self._chunk_index(index)
        self.outcomes.failed.pop(at, None)
        self.outcomes.retry[at] = RecordFault(
            at, str(RetryReason.REQUESTED), "", str(text)[:ERROR_TEXT_LIMIT]
        )

    def done(self, index: int) -> None:
        """Settle one record as done."""
        self.outcomes.done.add(self._chunk_index(index))

    def output(
        self,
        index: int,
        value: Payload,
        key: Payload = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add one output; without a key of its own it has that of its record."""
        at = self._chunk_index(index)
        if key is None:
            keys = self.columns.keys
            key_bytes = None if keys is None else keys[at]
        else:
            key_bytes = _bytes(key, "key")
        self.outputs.append(
            Output(
                at,
                key_bytes,
                _bytes(value, "value"),
                [(str(name), _bytes(item, "header")) for name, item in headers] if headers else [],
            )
        )

    def _chunk_index(self, index: int) -> int:
        at = operator.index(index)
        if not 0 <= at < len(self.indices):
            msg = f"index {at} is not in a batch of {len(self.indices)} records"
            raise HandlerContractError(msg)
        return self.indices[at]

    # How the call ends.

    def accept(self) -> None:
        """Keep the outputs: the handler has returned."""
        self.outcomes.outputs += self.outputs

    def accept_done(self) -> None:
        """Keep the outputs of records settled as done: the handler has raised."""
        done = self.outcomes.done
        self.outcomes.outputs += [output for output in self.outputs if output.index in done]

    def unsettled(self) -> list[int]:
        """Return the indices in this call that nothing was said of."""
        has = self.outcomes.has
        return [at for at, index in enumerate(self.indices) if not has(index)]

    def part(self, chosen: Sequence[int]) -> Call:
        """Return a call of some of these records, with outputs of its own."""
        return Call(
            self.columns,
            self.geometries[list(chosen)],
            self.documents,
            [self.indices[at] for at in chosen],
            self.outcomes,
        )

    def fault_unsettled(self, reason: str, error_class: str, text: str, *, retry: bool) -> None:
        """Settle every record that nothing was said of as failed, or to be tried again."""
        where = self.outcomes.retry if retry else self.outcomes.failed
        for at in self.unsettled():
            index = self.indices[at]
            where[index] = RecordFault(index, str(reason), error_class, text[:ERROR_TEXT_LIMIT])


def _bytes(item: object, what: str) -> bytes | None:
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    msg = f"the {what} of an output is {type(item).__name__}; expected bytes, str or None"
    raise HandlerContractError(msg)
