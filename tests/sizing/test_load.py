"""Load rows: counts that add up, whatever the grouping."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sizing.classes import CLASS_COUNT, classes_of, sizes_units
from sizing.load import (
    CLASS_RECORDS,
    CLASS_UNITS,
    LOAD_WIDTH,
    PAYLOAD_BYTES,
    RECORDS,
    VERTICES,
    load_rows,
    sum_loads,
    zero_load,
)
from tests.sizing.mixes import load_of

record = st.tuples(st.integers(0, 10**6), st.integers(0, 10**8), st.integers(0, 3))


def rows_of(records: list[tuple[int, int, int]], groups: int) -> np.ndarray:
    vertices, payload_bytes, group = (np.array(column) for column in zip(*records, strict=True))
    units = sizes_units(vertices, payload_bytes)
    return load_rows(group, groups, vertices, payload_bytes, units, classes_of(units))


def test_three_records_by_hand() -> None:
    """Two pings and a parcel, counted in every column."""
    # Pings of 179 bytes weigh 3 units each (class 0); the parcel of 40 vertices in 1,500 bytes
    # weighs 40 (class 2, from 16 to 63). Vertices 2 + 40, bytes 358 + 1,500.
    row = load_of([1, 1, 40], [179, 179, 1_500])
    assert (row[RECORDS], row[VERTICES], row[PAYLOAD_BYTES]) == (3, 42, 1_858)
    assert row[CLASS_RECORDS].tolist()[:4] == [2, 0, 1, 0]
    assert row[CLASS_UNITS].tolist()[:4] == [6, 0, 40, 0]


def test_columns_do_not_overlap_and_fill_the_row() -> None:
    """Three totals, then sixteen classes twice."""
    columns = [RECORDS, VERTICES, PAYLOAD_BYTES]
    columns += range(LOAD_WIDTH)[CLASS_RECORDS]
    columns += range(LOAD_WIDTH)[CLASS_UNITS]
    assert columns == list(range(LOAD_WIDTH))
    assert len(zero_load()) == LOAD_WIDTH == 3 + 2 * CLASS_COUNT


def test_a_group_without_records_is_a_row_of_zeros() -> None:
    """Group 1 of three has nothing."""
    rows = rows_of([(5, 300, 0), (7, 300, 2)], 3)
    assert rows[:, RECORDS].tolist() == [1, 0, 1]
    assert not rows[1].any()


@given(st.lists(record, min_size=1, max_size=50))
def test_groups_add_up_to_everything(records: list[tuple[int, int, int]]) -> None:
    """The rows of the groups sum to the row of all, exactly, in every column."""
    together = rows_of([(v, b, 0) for v, b, _ in records], 1)[0]
    assert (rows_of(records, 4).sum(axis=0) == together).all()


@given(st.lists(record, min_size=1, max_size=50))
def test_a_row_counts_each_record_once(records: list[tuple[int, int, int]]) -> None:
    """Classes add up to everything, and what is taken away again leaves exactly nothing."""
    row = load_of([v for v, _, _ in records], [b for _, b, _ in records])
    assert row[CLASS_RECORDS].sum() == row[RECORDS] == len(records)
    assert row[VERTICES] == sum(v for v, _, _ in records)
    assert row[PAYLOAD_BYTES] == sum(b for _, b, _ in records)
    assert row[CLASS_UNITS].sum() == sum(max(v, -(-b // 64), 1) for v, b, _ in records)
    assert not (zero_load() + row - row).any()


def test_sums_of_large_sizes_are_exact() -> None:
    """Three times 2**50 + 1 is 3,377,699,720,527,875: below 2**53 no bit is lost."""
    size = 2**50 + 1
    row = load_of([size] * 3, [0] * 3)
    assert int(row[VERTICES]) == 3 * size == int(row[CLASS_UNITS].sum())


def test_counts_are_whole_numbers() -> None:
    """What is added and taken away a million times leaves nothing only in integers."""
    assert zero_load().dtype == np.int64
    assert load_of([1], [179]).dtype == np.int64


def test_groups_at_the_end_may_be_empty() -> None:
    """There are as many rows as groups, whatever the records name."""
    rows = rows_of([(5, 300, 0), (7, 300, 0)], 3)
    assert rows[:, VERTICES].tolist() == [12, 0, 0]
    assert rows[:, PAYLOAD_BYTES].tolist() == [600, 0, 0]
    assert rows[:, RECORDS].tolist() == [2, 0, 0]


def test_loads_add_up_column_by_column() -> None:
    """One is its own sum; three are added in every column."""
    one = load_of([5], [300])
    assert sum_loads([one]).tolist() == one.tolist()
    assert (
        sum_loads([one, one, load_of([1], [179])]).tolist()
        == load_of([5, 5, 1], [300, 300, 179]).tolist()
    )
