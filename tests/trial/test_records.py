"""Files as chunks of one size class: what is cut, when, and what a handler sees of its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from consumer.traffic.files import FileError
from consumer.trial import records
from consumer.trial.records import Cutter, TriedRecord, chunk_of, read_files

POINT = b'{"type":"Point","coordinates":[1,2]}'
#: 40 positions are 40 units, of class 2 (16 to 63); 328 bytes are only 6.
LINE = b'{"type":"LineString","coordinates":[%b]}' % b",".join([b"[1,2]"] * 40)


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join([*lines, b""]))
    return path


def record(number: int, size_class: int = 0, value: bytes = b"v", file: int = 0) -> TriedRecord:
    return TriedRecord(file, number, f"line {number + 1}", None, value, 1, size_class)


def take_all(cutter: Cutter) -> list[list[TriedRecord]]:
    return list(iter(cutter.take, []))


def test_records_know_their_file_place_and_class(tmp_path):
    """Files follow one another; each record counts from 0 in its own."""
    first = write(tmp_path / "a.ndjson", POINT, b"", LINE)
    second = write(tmp_path / "b.ndjson", b'{"key":"k","value":{"a":1}}')

    found = list(read_files([first, second]))

    assert [(r.file, r.number, r.place, r.key) for r in found] == [
        (0, 0, "line 1", None),
        (0, 1, "line 3", None),
        (1, 0, "line 1", b"k"),
    ]
    # LINE opens a bracket more than it has positions: 41 units.
    assert [(r.vertices, r.size_class) for r in found] == [(1, 0), (41, 2), (0, 0)]
    assert found[2].payload_bytes == len(b"k") + len(b'{"a":1}')


def test_reading_stops_after_so_many_records(tmp_path):
    """The limit counts across files, and what follows is not read."""
    first = write(tmp_path / "a.ndjson", POINT, POINT)
    second = write(tmp_path / "b.ndjson", POINT, POINT)

    found = read_files([first, second, tmp_path / "gone"], 3)

    assert [(r.file, r.number) for r in found] == [(0, 0), (0, 1), (1, 0)]


def test_what_is_no_json_is_a_record_unless_it_is_the_first(tmp_path):
    """One bad line is the payload that a worker would find; a file of another kind is refused."""
    found = list(read_files([write(tmp_path / "a.ndjson", POINT, b"nope", b"[1]", POINT)]))
    assert [r.value for r in found] == [POINT, b"nope", b"[1]", POINT]

    with pytest.raises(FileError, match=r"line 1 is not JSON.*one a line, or a FeatureCollection"):
        list(read_files([write(tmp_path / "b.csv", b"id,lat,lon", b"1,2,3")]))


def test_a_chunk_has_one_class_and_keeps_the_order():
    """Records wait for others of their class; at the end what waits is taken as it is."""
    stream = [record(n, n % 2) for n in range(25)]

    chunks = take_all(Cutter(iter(stream), lambda size_class: None))

    # Of each class ten at a time as long as no cost is known: 0, 2, ... 18 are first.
    assert [[r.number for r in chunk] for chunk in chunks] == [
        list(range(0, 20, 2)),
        list(range(1, 21, 2)),
        [20, 22, 24],
        [21, 23],
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, 10),
        (0.001, 60),  # 0.06 s / 1 ms
        (1.0, 1),
        (1e-9, 1_000),
        (0.0, 1_000),
    ],
)
def test_a_chunk_is_as_long_as_its_class_costs(seconds, expected):
    """About 60 ms of work, from one record to a thousand."""
    cutter = Cutter(map(record, range(3_000)), lambda size_class: seconds)

    assert len(cutter.take()) == expected


def test_a_chunk_has_two_mebibytes_at_most_but_for_one_record():
    """A record that fills it up is its last."""
    sizes = [1 << 20, (1 << 20) - 1, 1, 5 << 20, 1]
    cutter = Cutter(
        iter([record(n, value=b"x" * size) for n, size in enumerate(sizes)]), lambda _: 0.0
    )

    assert [[r.number for r in chunk] for chunk in take_all(cutter)] == [[0, 1, 2], [3], [4]]


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 40)), max_size=200))
def test_every_record_is_taken_once(drawn):
    """Whatever comes, nothing is lost, no chunk is empty, and each has one class."""
    stream = [record(n, c, b"x" * size) for n, (c, size) in enumerate(drawn)]
    most = {0: 0.02, 1: 0.06}

    chunks = take_all(Cutter(iter(stream), most.get))

    assert Counter(r.number for chunk in chunks for r in chunk) == Counter(range(len(stream)))
    assert all(len({r.size_class for r in chunk}) == 1 for chunk in chunks)


def test_what_was_read_before_a_problem_is_taken(tmp_path, monkeypatch):
    """A file that cannot be read ends the reading, and is told when all else is taken."""
    good = write(tmp_path / "a.ndjson", POINT, POINT)
    cutter = Cutter(read_files([good, tmp_path / "gone", good]), lambda _: None)

    assert [len(chunk) for chunk in take_all(cutter)] == [2]
    assert "cannot be read: No such file" in str(cutter.problem)


def test_a_chunk_carries_places_and_keys():
    """A file is a partition, a record's number its offset; chunks of two files have two parts."""
    keyed = record(7, file=1)._replace(key=b"k")
    chunk = chunk_of(3, [record(4), record(6), keyed])

    assert (chunk.chunk_id, chunk.sample_bytes) == (3, True)
    first, second = chunk.parts
    assert (first.partition, second.partition) == (("try", 0), ("try", 1))
    assert first.columns.offsets.tolist() == [4, 6]
    assert (first.columns.keys, second.columns.keys) == (None, [b"k"])
    assert second.columns.payload_bytes.tolist() == [2]
    assert np.all(first.columns.timestamps_ms == -1)


def test_little_is_read_ahead():
    """Reading stops as soon as there is a chunk."""
    read: list[int] = []

    def stream():
        for number in range(100):
            read.append(number)
            yield record(number)

    Cutter(stream(), lambda _: None).take()

    assert read == list(range(records.FIRST_RECORDS))
