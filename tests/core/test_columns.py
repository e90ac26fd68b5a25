"""A part of some records has the values, keys, numbers and headers of its own records."""

from __future__ import annotations

import numpy as np
import pytest

from consumer.core.ledger.columns import Columns


def four(*, keys: bool = True, headers: bool = True) -> Columns:
    """Records at 10, 12, 13 and 20, of 1 to 4 vertices."""
    return Columns(
        values=[b"a", None, b"c", b"d"],
        keys=[b"k", b"l", None, b"k"] if keys else None,
        offsets=np.array([10, 12, 13, 20]),
        timestamps_ms=np.array([100, -1, 300, 400]),
        vertices=np.array([1, 2, 3, 4]),
        payload_bytes=np.array([11, 12, 13, 14]),
        headers={0: [("h", b"0")], 2: [("h", None)], 3: [("h", b"3")]} if headers else {},
    )


def told(columns: Columns) -> list[tuple[object, ...]]:
    """Return the records, one by one."""
    keys = columns.keys if columns.keys is not None else [None] * len(columns)
    return [
        (value, key, offset, timestamp, vertices, size, columns.headers.get(index))
        for index, (value, key, offset, timestamp, vertices, size) in enumerate(
            zip(
                columns.values,
                keys,
                columns.offsets.tolist(),
                columns.timestamps_ms.tolist(),
                columns.vertices.tolist(),
                columns.payload_bytes.tolist(),
                strict=True,
            )
        )
    ]


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("indices", [[0], [1], [0, 2], [1, 3], [0, 1, 2, 3]])
def test_some_records_are_taken_by_their_index(
    indices: list[int], keys: bool, headers: bool
) -> None:
    """One as several; no keys stay no keys, and a header stays with its record."""
    columns = four(keys=keys, headers=headers)
    taken = columns.take(np.array(indices))
    everything = told(columns)
    assert len(taken) == len(indices)
    assert told(taken) == [everything[index] for index in indices]
    assert (taken.keys is None) is not keys


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, 3), (2, 4), (0, 4)])
def test_records_from_one_to_another_are_a_part(
    start: int, stop: int, keys: bool, headers: bool
) -> None:
    """The last one is not in it."""
    columns = four(keys=keys, headers=headers)
    part = columns.part(start, stop)
    assert len(part) == stop - start
    assert told(part) == told(columns)[start:stop]
    assert (part.keys is None) is not keys
    assert set(part.headers) <= set(range(stop - start))


def test_payloads_are_shared() -> None:
    """A part holds the same bytes, not copies of them."""
    columns = four()
    columns.values = [b"payload" * 100, b"x", b"y", b"z"]
    assert columns.take(np.array([0, 2])).values[0] is columns.values[0]
    assert columns.part(0, 2).values[0] is columns.values[0]
