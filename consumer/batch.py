"""What a handler gets and what it may say: the API of user code.

Owns ``Batch``, ``Record``, ``OutputRecord`` and ``Retry``; what keeps the words that a handler
says is ``consumer.calls``. A handler is a function of one batch, or a class with ``open()``,
``handle(batch)`` and ``close()`` of which only ``handle`` is needed; each may be ``async``.

Rules: a record that the handler does not name is done when ``handle`` returns. What it has
settled with ``fail``, ``retry`` or ``done`` stays settled if it raises afterwards. The rest is
then given to it again in halves, down to the one record that raises alone, which goes to the
dead-letter topic; so a handler with side effects is idempotent, or settles what it has finished.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from consumer.calls import Call, Payload, RecordColumns
from consumer.core.ledger.columns import Headers

__all__ = ["Batch", "OutputRecord", "Payload", "Record", "Records", "Retry"]

_NO_PROPERTIES: Mapping[str, Any] = {}


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
        at, columns = self._indices[index], self._columns
        topic, partition = columns.partitions[bisect_right(columns.starts, at) - 1]
        return Record(
            None if columns.keys is None else columns.keys[at],
            columns.values[at],
            columns.headers.get(at, []),
            topic,
            partition,
            int(columns.offsets[at]),
            int(columns.timestamps_ms[at]),
        )

    def key(self, index: int) -> bytes | None:
        """Return the key of one record, without making an object of it."""
        keys = self._columns.keys
        return None if keys is None else keys[self._indices[index]]


class Batch:
    """Records for one call of a handler, decoded. The worker makes it.

    In a test of a handler, ``consumer.testing.batch_of`` does.

    Attributes
    ----------
    geometries : ndarray of object, shape (n,)
        shapely geometries; None for a Feature whose geometry is null. Use it with shapely's
        vectorised functions: ``shapely.area(batch.geometries)``.
    records : Records
        Key, raw value, headers, topic, partition, offset and timestamp of each.
    """

    __slots__ = ("_call", "_documents", "_indices", "geometries")

    geometries: NDArray[np.object_]

    def __init__(self, call: Call) -> None:
        self.geometries = call.geometries
        self._call = call
        self._documents = call.documents
        self._indices = call.indices

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def records(self) -> Records:
        """The records."""
        return Records(self._call.columns, self._indices)

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
        self._call.fail(index, reason, text)

    def retry(self, index: int, reason: str = "") -> None:
        """Try one record again later, with growing pauses and a bounded number of attempts.

        Where records have an order, the later ones of the same key (or partition) in this batch
        go again after it, although they were handled.
        """
        self._call.retry(index, reason)

    def done(self, index: int) -> None:
        """Settle one record as done, with its outputs, even if the handler raises afterwards."""
        self._call.done(index)

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
        self._call.output(index, value, key, headers)
