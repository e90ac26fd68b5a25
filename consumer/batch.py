"""What a handler gets and what it may say: the API of user code.

Owns ``Batch``, ``Record``, ``OutputRecord`` and ``Retry``. A handler is a function of one batch,
or a class with ``open()``, ``handle(batch)`` and ``close()`` of which only ``handle`` is needed;
each may be ``async``.

Rules: a record that the handler does not name is done when ``handle`` returns. What it has
settled with ``fail``, ``retry`` or ``done`` stays settled if it raises afterwards. The rest is
then given to it again in halves, down to the one record that raises alone, which goes to the
dead-letter topic; so a handler with side effects is idempotent, or settles what it has finished.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from consumer.core.columns import Headers
from consumer.core.events import Output, RecordFault
from consumer.core.reasons import Reason, RetryReason
from consumer.errors import HandlerContractError

#: Longest text that is kept of an error.
ERROR_TEXT_LIMIT = 1000
_CODE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_NO_PROPERTIES: Mapping[str, Any] = {}

#: Anything that can become the bytes of an output's key or value.
Payload: TypeAlias = bytes | bytearray | memoryview | str | None


class Retry(Exception):  # noqa: N818 - raised as a request, not as an error
    """Raised by a handler: try the records of this batch again later.

    ``ConnectionError`` and ``TimeoutError`` are understood in the same way.
    """


class Record(NamedTuple):
    """One Kafka record."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str
    partition: int
    offset: int
    #: milliseconds since 1970; -1 when the record has none
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One record for the output topic."""

    #: index in the batch of the record that it came from
    index: int
    value: Payload
    #: None: the key of that record
    key: Payload = None
    headers: Sequence[tuple[str, bytes | None]] = ()


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

    def record(self, index: int) -> Record:
        """Return one record."""
        topic, partition = self.partitions[bisect_right(self.starts, index) - 1]
        return Record(
            None if self.keys is None else self.keys[index],
            self.values[index],
            self.headers.get(index, []),
            topic,
            partition,
            int(self.offsets[index]),
            int(self.timestamps_ms[index]),
        )


class Records(Sequence[Record]):
    """The records of a batch; each becomes an object when it is asked for."""

    __slots__ = ("_columns", "_indices")

    def __init__(self, columns: RecordColumns, indices: Sequence[int]) -> None:
        self._columns = columns
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> Record | Records:
        if isinstance(index, slice):
            return Records(self._columns, self._indices[index])
        return self._columns.record(self._indices[index])

    def key(self, index: int) -> bytes | None:
        """Return the key of one record, without making an object of it."""
        keys = self._columns.keys
        return None if keys is None else keys[self._indices[index]]


@dataclass(slots=True, eq=False)
class Settlement:
    """What has been said of the records of one chunk, by index in the chunk."""

    failed: dict[int, RecordFault] = field(default_factory=dict)
    retry: dict[int, RecordFault] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    outputs: list[Output] = field(default_factory=list)

    def has(self, index: int) -> bool:
        """Whether a record has been settled."""
        return index in self.failed or index in self.retry or index in self.done


class Batch:
    """Records for one call of a handler, decoded.

    Attributes
    ----------
    geometries : ndarray of object, shape (n,)
        shapely geometries; None for a Feature whose geometry is null. Use it with shapely's
        vectorised functions: ``shapely.area(batch.geometries)``.
    records : Records
        Key, raw value, headers, topic, partition, offset and timestamp of each.
    """

    __slots__ = ("_columns", "_documents", "_indices", "_outputs", "_settlement", "geometries")

    def __init__(
        self,
        columns: RecordColumns,
        geometries: NDArray[np.object_],
        documents: Sequence[Any],
        indices: Sequence[int],
        settlement: Settlement,
    ) -> None:
        self.geometries = geometries
        self._columns = columns
        #: of the whole chunk
        self._documents = documents
        #: index in the chunk of each record
        self._indices = indices
        self._settlement = settlement
        self._outputs: list[Output] = []

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def records(self) -> Records:
        """The records."""
        return Records(self._columns, self._indices)

    def properties(self, index: int) -> Mapping[str, Any]:
        """Return the properties of a Feature; empty when it has none."""
        document = self._documents[self._indices[index]]
        return (document and document.get("properties")) or _NO_PROPERTIES

    def document(self, index: int) -> Mapping[str, Any]:
        """Return the GeoJSON object of a record as parsed, without its geometry."""
        return self._documents[self._indices[index]] or _NO_PROPERTIES

    def fail(self, index: int, reason: str, text: str = "") -> None:
        """Send one record to the dead-letter topic.

        Parameters
        ----------
        index : int
            Index in this batch.
        reason : str
            A code of lower-case letters, digits and dashes, at most 63: one of a few words, since
            it becomes a label of a metric. Anything else counts as ``handler-refused``, and its
            words go to the text.
        text : str, optional
            What varies from record to record.
        """
        at = self._chunk_index(index)
        if not _CODE.fullmatch(str(reason)):
            text = f"{reason}: {text}" if text else str(reason)
            reason = Reason.HANDLER_REFUSED
        self._settlement.retry.pop(at, None)
        self._settlement.failed[at] = RecordFault(at, str(reason), "", str(text)[:ERROR_TEXT_LIMIT])

    def retry(self, index: int, reason: str = "") -> None:
        """Try one record again later, with growing pauses and a bounded number of attempts.

        Where records have an order, the later ones of the same key (or partition) in this batch
        go again after it, although they were handled.
        """
        at = self._chunk_index(index)
        self._settlement.failed.pop(at, None)
        self._settlement.retry[at] = RecordFault(
            at, str(RetryReason.REQUESTED), "", str(reason)[:ERROR_TEXT_LIMIT]
        )

    def done(self, index: int) -> None:
        """Settle one record as done, with its outputs, even if the handler raises afterwards."""
        self._settlement.done.add(self._chunk_index(index))

    def output(
        self,
        index: int,
        value: Payload,
        key: Payload = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Send one record to the output topic.

        Parameters
        ----------
        index : int
            Index in this batch of the record that it came from. Its offset counts as done only
            when the broker has acknowledged the output.
        value : bytes, str or None
            Text is encoded as UTF-8; None is a tombstone.
        key : bytes, str or None, optional
            None: the key of the record that it came from.
        headers : sequence of (name, value), optional
        """
        at = self._chunk_index(index)
        if key is None:
            keys = self._columns.keys
            key_bytes = None if keys is None else keys[at]
        else:
            key_bytes = _bytes(key, "key")
        self._outputs.append(
            Output(
                at,
                key_bytes,
                _bytes(value, "value"),
                [(str(name), _bytes(item, "header")) for name, item in headers],
            )
        )

    def _chunk_index(self, index: int) -> int:
        at = operator.index(index)
        if not 0 <= at < len(self._indices):
            msg = f"index {at} is not in a batch of {len(self._indices)} records"
            raise HandlerContractError(msg)
        return self._indices[at]

    # What follows is for the code that calls the handler.

    def take_returned(self, returned: object) -> None:
        """Add what ``handle`` returned: None, or outputs."""
        if returned is None:
            return
        if isinstance(returned, (str, bytes, Mapping)) or not isinstance(returned, Iterable):
            msg = (
                f"handle returned {type(returned).__name__};"
                " expected None or an iterable of outputs: OutputRecord or (index, value)"
            )
            raise HandlerContractError(msg)
        for item in returned:
            if isinstance(item, OutputRecord):
                self.output(item.index, item.value, item.key, item.headers)
            elif isinstance(item, tuple) and len(item) == 2:
                self.output(*item)
            else:
                msg = (
                    f"handle returned an output of type {type(item).__name__};"
                    " expected OutputRecord or (index, value)"
                )
                raise HandlerContractError(msg)

    def accept(self) -> None:
        """Keep the outputs: the handler has returned."""
        self._settlement.outputs += self._outputs

    def accept_done(self) -> None:
        """Keep the outputs of records settled as done: the handler has raised."""
        done = self._settlement.done
        self._settlement.outputs += [output for output in self._outputs if output.index in done]

    def unsettled(self) -> list[int]:
        """Return the indices in this batch that nothing has been said of."""
        has = self._settlement.has
        return [at for at, index in enumerate(self._indices) if not has(index)]

    def part(self, chosen: Sequence[int]) -> Batch:
        """Return a batch of some of these records, with outputs of its own."""
        return Batch(
            self._columns,
            self.geometries[list(chosen)],
            self._documents,
            [self._indices[at] for at in chosen],
            self._settlement,
        )

    def fault_unsettled(self, reason: str, error_class: str, text: str, *, retry: bool) -> None:
        """Settle every record that nothing has been said of as failed, or to be tried again."""
        settlement = self._settlement
        where = settlement.retry if retry else settlement.failed
        for at in self.unsettled():
            index = self._indices[at]
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
