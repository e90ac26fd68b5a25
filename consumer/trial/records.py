"""Records of files, cut into chunks that each hold one size class.

Owns how much of the files is in memory: of each class at most one chunk. A chunk of one class costs
what that class costs, so that nothing has to be divided up afterwards. For it, records of different
classes do not keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from consumer.core.commands import Chunk, ChunkPart
from consumer.core.ledger.columns import Columns
from consumer.payload.counting import counted_vertices
from consumer.traffic.files import FileError, PlacedRecord, read_placed_records
from sizing.classes import CLASS_COUNT, classes_of, sizes_units
from sizing.load import zero_load

#: Topic of every record; its partition is the file's place among the files, its offset the
#: record's in the file.
TOPIC = "try"
#: Raw bytes and work of one chunk, as in the worker.
CHUNK_BYTES = 2 * 1024 * 1024
CHUNK_SECONDS = 0.06
#: Records of a chunk: the first of a class, whose cost is not known, and at most.
FIRST_RECORDS = 10
MOST_RECORDS = 1_000


class TriedRecord(NamedTuple):
    """One record of a file."""

    #: among the files, from 0
    file: int
    #: in its file, from 0
    number: int
    #: in words: "line 12"
    place: str
    key: bytes | None
    value: bytes
    vertices: int
    size_class: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value)


def read_files(paths: Sequence[Path], most: int | None = None) -> Iterator[TriedRecord]:
    """Yield the records of files, one file after another.

    Parameters
    ----------
    paths : sequence of Path
    most : int, optional
        Records after which to stop.

    Raises
    ------
    FileError
        When a file cannot be read; nothing follows.
    """
    records = (
        _tried(file, number, record)
        for file, path in enumerate(paths)
        for number, record in enumerate(read_placed_records(path, keep_broken=True))
    )
    return islice(records, most)


def _tried(file: int, number: int, record: PlacedRecord) -> TriedRecord:
    vertices = counted_vertices([record.value])
    payload_bytes = np.array([len(record.key or b"") + len(record.value)], dtype=np.int64)
    (size_class,) = classes_of(sizes_units(vertices, payload_bytes)).tolist()
    return TriedRecord(file, number, *record, int(vertices[0]), size_class)


class Cutter:
    """Takes chunks of one size class out of a stream of records.

    Parameters
    ----------
    records : iterator of TriedRecord
    seconds_per_record : callable
        What a record of a class costs; None as long as nobody knows.
    """

    def __init__(
        self,
        records: Iterator[TriedRecord],
        seconds_per_record: Callable[[int], float | None],
    ) -> None:
        self._records = records
        self._seconds_per_record = seconds_per_record
        self._waiting: list[list[TriedRecord]] = [[] for _ in range(CLASS_COUNT)]
        self._waiting_bytes = [0] * CLASS_COUNT
        #: why reading ended before the end
        self.problem: FileError | None = None

    def take(self) -> list[TriedRecord]:
        """Return the records of the next chunk; none when everything that can be read was taken."""
        while (record := self._read()) is not None:
            size_class = record.size_class
            waiting = self._waiting[size_class]
            waiting.append(record)
            self._waiting_bytes[size_class] += record.payload_bytes
            if (
                len(waiting) >= self._most_records(size_class)
                or self._waiting_bytes[size_class] >= CHUNK_BYTES
            ):
                return self._take_class(size_class)
        for size_class, waiting in enumerate(self._waiting):
            if waiting:
                return self._take_class(size_class)
        return []

    def _read(self) -> TriedRecord | None:
        try:
            return next(self._records, None)
        except FileError as error:
            self.problem = error
            return None

    def _most_records(self, size_class: int) -> int:
        seconds = self._seconds_per_record(size_class)
        if seconds is None:
            return FIRST_RECORDS
        return max(1, min(MOST_RECORDS, int(CHUNK_SECONDS / max(seconds, 1e-9))))

    def _take_class(self, size_class: int) -> list[TriedRecord]:
        taken, self._waiting[size_class] = self._waiting[size_class], []
        self._waiting_bytes[size_class] = 0
        return taken


def chunk_of(chunk_id: int, records: Sequence[TriedRecord]) -> Chunk:
    """Return the chunk of some records, in the order in which they stand in their files."""
    parts = tuple(
        ChunkPart((TOPIC, file), _columns(list(group)))
        for file, group in groupby(records, key=lambda record: record.file)
    )
    return Chunk(chunk_id, parts, zero_load(), 0.0, 0, sample_bytes=True)


def _columns(records: Sequence[TriedRecord]) -> Columns:
    keys = [record.key for record in records]
    return Columns(
        [record.value for record in records],
        None if keys.count(None) == len(keys) else keys,
        np.array([record.number for record in records], dtype=np.int64),
        np.full(len(records), -1, dtype=np.int64),
        np.array([record.vertices for record in records], dtype=np.int64),
        np.array([record.payload_bytes for record in records], dtype=np.int64),
    )
