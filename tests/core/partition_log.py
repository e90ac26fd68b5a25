"""A partition's log as the tests know it: every record, its true costs and what became of it.

Owns the per-record state and the rules about one record. Knows nothing of the core.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consumer.core.ledger.columns import Columns, FetchedRun, Partition

# Where a record is, in the order in which it gets there. From AWAITING_ACK on, the next record of
# its chain may start.
NOT_FETCHED = 0
WAITING = 1
INSIDE = 2
RETRYING = 3
AWAITING_ACK = 4
FINISHED = 5

SETTLED_FOR_ORDER = AWAITING_ACK


def previous_of_same(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each record the index of the one before it with its key; -1 without."""
    order = np.argsort(keys, kind="stable")
    previous = np.full(len(keys), -1, dtype=np.int64)
    same = keys[order][1:] == keys[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous


class PartitionLog:
    """One partition. Arrays are of shape (n,), in offset order."""

    def __init__(self, partition: Partition) -> None:
        none = np.zeros(0, dtype=np.int64)
        self.partition = partition
        self.offsets = none
        self.key_hashes = none
        self.is_null_key = np.zeros(0, dtype=np.bool_)
        self.vertices = none
        self.payload_bytes = none
        #: virtual time from which the broker has it
        self.arrived_at = np.zeros(0)
        #: hidden from the core
        self.true_seconds = np.zeros(0)
        #: the same where no record is an outlier
        self.typical_seconds = np.zeros(0)
        self.true_working_bytes = np.zeros(0)
        self.state = np.zeros(0, dtype=np.int8)
        self.previous = none
        #: chunk, part of it and position in it of the last dispatch
        self.chunk_id = none
        self.chunk_part = none
        self.chunk_position = none
        #: times that a handler finished it
        self.handled = none
        #: offset that follows the last record (a transaction marker may come after it)
        self.end_offset = 0
        #: index of the next record that a fetch returns
        self.position = 0
        #: index of the first record of this assignment
        self.first = 0
        #: records before it are settled, and what was committed covers them
        self.committed_index = 0
        self._values: list[bytes] | None = None
        self._keys: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def fill(
        self,
        offsets: NDArray[np.int64],
        key_hashes: NDArray[np.int64],
        vertices: NDArray[np.int64],
        payload_bytes: NDArray[np.int64],
        *,
        is_null_key: NDArray[np.bool_] | None = None,
        arrived_at: NDArray[np.float64] | None = None,
        true_seconds: NDArray[np.float64] | None = None,
        typical_seconds: NDArray[np.float64] | None = None,
        true_working_bytes: NDArray[np.float64] | None = None,
        distinct_values: bool = True,
    ) -> None:
        """Append records. ``distinct_values`` gives each a value that names its offset."""
        n = len(offsets)
        nothing = np.zeros(n, dtype=np.int64)
        null = np.zeros(n, dtype=np.bool_) if is_null_key is None else is_null_key
        self.offsets = np.concatenate([self.offsets, offsets])
        self.key_hashes = np.concatenate([self.key_hashes, key_hashes])
        self.is_null_key = np.concatenate([self.is_null_key, null])
        self.vertices = np.concatenate([self.vertices, vertices])
        self.payload_bytes = np.concatenate([self.payload_bytes, payload_bytes])
        for name, given in (
            ("arrived_at", arrived_at),
            ("true_seconds", true_seconds),
            ("typical_seconds", typical_seconds),
            ("true_working_bytes", true_working_bytes),
        ):
            more = np.zeros(n) if given is None else given
            setattr(self, name, np.concatenate([getattr(self, name), more]))
        self.state = np.concatenate([self.state, nothing.astype(np.int8)])
        self.chunk_id = np.concatenate([self.chunk_id, nothing])
        self.chunk_part = np.concatenate([self.chunk_part, nothing])
        self.chunk_position = np.concatenate([self.chunk_position, nothing])
        self.handled = np.concatenate([self.handled, nothing])
        keyed = np.flatnonzero(~self.is_null_key)
        before = previous_of_same(self.key_hashes[keyed])
        self.previous = np.full(len(self.offsets), -1, dtype=np.int64)
        self.previous[keyed] = np.where(before >= 0, keyed[before], -1)
        self.end_offset = int(self.offsets[-1]) + 1
        if distinct_values:
            self._values = [f"{self.partition}@{offset}".encode() for offset in self.offsets]
            self._keys = [str(key).encode() for key in self.key_hashes]

    def begin(self, first: int) -> None:
        """Begin an assignment at index ``first``: what comes from there is fetched again."""
        self.first = self.position = self.committed_index = first
        self.state[first:] = NOT_FETCHED

    def _payloads(
        self, start: int, stop: int
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
        """Return the values and keys of a range of records."""
        if self._values is None or self._keys is None:
            nothing = [b""] * (stop - start)
            return nothing, nothing
        null = self.is_null_key[start:stop].tolist()
        keys = [None if n else k for n, k in zip(null, self._keys[start:stop], strict=True)]
        return self._values[start:stop], keys

    def take(self, count: int) -> FetchedRun:
        """Return the next ``count`` records as a fetch does."""
        start, stop = self.position, self.position + count
        self.position = stop
        self.state[start:stop] = WAITING
        null = self.is_null_key[start:stop]
        every_key_null = bool(null.all())
        values, keys = self._payloads(start, stop)
        columns = Columns(
            values=values,
            keys=None if every_key_null else keys,
            offsets=self.offsets[start:stop],
            timestamps_ms=np.full(count, -1, dtype=np.int64),
            vertices=self.vertices[start:stop],
            payload_bytes=self.payload_bytes[start:stop],
        )
        return FetchedRun(
            self.partition,
            columns,
            None if every_key_null else self.key_hashes[start:stop],
            null if null.any() and not every_key_null else None,
        )

    def indices(self, parts: Sequence[Columns]) -> NDArray[np.int64]:
        """Return the indices of records that came back in a chunk, having compared them."""
        offsets = np.concatenate([columns.offsets for columns in parts])
        vertices = np.concatenate([columns.vertices for columns in parts])
        payload_bytes = np.concatenate([columns.payload_bytes for columns in parts])
        found = np.searchsorted(self.offsets, offsets)
        assert (self.offsets[found] == offsets).all(), "an offset that does not exist"
        assert (self.vertices[found] == vertices).all(), "vertices of other records"
        assert (self.payload_bytes[found] == payload_bytes).all(), "bytes of other records"
        if self._values is not None:
            values = [value for columns in parts for value in columns.values]
            assert values == [self._values[i] for i in found.tolist()], "values of other records"
        begins_part = np.zeros(len(found), dtype=np.bool_)
        begins_part[np.cumsum([0] + [len(columns) for columns in parts[:-1]])] = True
        rises = np.diff(found, prepend=-1) > 0
        assert (rises | begins_part).all(), "records out of order inside a part"
        return found

    def position_offset(self) -> int:
        """Return the offset that the client's position stands at."""
        if self.position == len(self):
            return self.end_offset
        return int(self.offsets[self.position])

    def is_unsettled(self) -> NDArray[np.bool_]:
        """Return which records were fetched in this assignment and are not finished."""
        state = self.state[self.first : self.position]
        return (state != FINISHED) & (state != NOT_FETCHED)
