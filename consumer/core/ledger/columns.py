"""Records as columns: what a fetch returns and what a chunk carries.

Owns the column layout and how to take a part of it. A record has no object of its own: that
would cost memory, and the cyclic collector would walk it. ``values``, ``keys`` and ``headers``
are opaque to the core, which never looks inside a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: (topic, partition number)
Partition: TypeAlias = tuple[str, int]
#: Kafka headers of one record.
Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclass(slots=True, eq=False)
class Columns:
    """Consecutive (not always contiguous) records of one partition, in offset order."""

    #: record values; None is a tombstone
    values: Sequence[bytes | None]
    #: record keys; None when every key is null
    keys: Sequence[bytes | None] | None
    #: shape (n,), strictly increasing; gaps are normal (compaction, transaction markers)
    offsets: NDArray[np.int64]
    #: shape (n,), milliseconds since 1970; -1 where the record has none
    timestamps_ms: NDArray[np.int64]
    #: counted vertices, shape (n,); never too low
    vertices: NDArray[np.int64]
    #: bytes of value, key and headers, shape (n,)
    payload_bytes: NDArray[np.int64]
    #: sparse: index -> headers
    headers: dict[int, Headers] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, indices: NDArray[np.int64]) -> Columns:
        """Return the records at ``indices`` (increasing, at least one), sharing the payloads."""
        chosen = indices.tolist()
        if len(chosen) == 1:
            only = chosen[0]
            values: Sequence[bytes | None] = [self.values[only]]
            keys = None if self.keys is None else [self.keys[only]]
        else:
            pick = itemgetter(*chosen)
            values = pick(self.values)
            keys = None if self.keys is None else pick(self.keys)
        headers = {}
        if self.headers:
            headers = {
                new: self.headers[old] for new, old in enumerate(chosen) if old in self.headers
            }
        return Columns(
            values,
            keys,
            self.offsets[indices],
            self.timestamps_ms[indices],
            self.vertices[indices],
            self.payload_bytes[indices],
            headers,
        )

    def part(self, start: int, stop: int) -> Columns:
        """Return records ``start`` to ``stop`` (exclusive), sharing the payloads."""
        headers = {}
        if self.headers:
            headers = {i - start: h for i, h in self.headers.items() if start <= i < stop}
        return Columns(
            self.values[start:stop],
            None if self.keys is None else self.keys[start:stop],
            self.offsets[start:stop],
            self.timestamps_ms[start:stop],
            self.vertices[start:stop],
            self.payload_bytes[start:stop],
            headers,
        )


@dataclass(slots=True, eq=False)
class FetchedRun:
    """Consecutive records of one partition, returned by one fetch."""

    partition: Partition
    columns: Columns
    #: a stable hash of each key, shape (n,); None when every key is null
    key_hashes: NDArray[np.int64] | None
    #: index of records whose key is null, when some are and some are not; None otherwise
    null_keys: NDArray[np.bool_] | None = None
