"""Sizes and size classes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS, classes_of, sizes_units
from sizing.model import largest_units_of_class

counts = st.integers(0, 10**12)


def sizes(vertices: int, payload_bytes: int) -> int:
    return int(sizes_units(np.array([vertices]), np.array([payload_bytes]))[0])


def test_the_size_is_the_larger_of_vertices_and_bytes() -> None:
    """Whichever is more: the vertices, or the bytes at 64 to a unit."""
    # ceil(179 / 64) = 3; 40,000 bytes are 625 units, under 2,001; ceil(900,000 / 64) = 14,063.
    assert sizes(1, 179) == 3
    assert sizes(2_001, 40_000) == 2_001
    assert sizes(1, 900_000) == 14_063


def test_bytes_are_rounded_up() -> None:
    """64 bytes are one unit, 65 are two."""
    assert [sizes(0, n) for n in (63, 64, 65, 128, 129)] == [1, 1, 2, 2, 3]


def test_a_tombstone_has_a_size() -> None:
    """Nothing at all weighs one unit, so that no record is free."""
    assert sizes(0, 0) == 1


def test_classes_are_powers_of_four() -> None:
    """Edges 1, 4, 16, 64, ...: 3 is below the second, 4 on it."""
    assert CLASS_EDGES_UNITS[:5].tolist() == [1, 4, 16, 64, 256]
    assert classes_of(np.array([1, 3, 4, 15, 16, 255, 256])).tolist() == [0, 0, 1, 1, 2, 3, 4]


def test_the_last_class_has_no_end() -> None:
    """4**15 = 1,073,741,824 begins class 15, and what is larger stays there."""
    assert classes_of(np.array([4**15 - 1, 4**15, 4**16, 10**12])).tolist() == [14, 15, 15, 15]


@given(counts, counts, counts, counts)
def test_a_larger_record_is_never_of_a_smaller_size(v: int, b: int, dv: int, db: int) -> None:
    """More vertices or more bytes never lower the size, nor its class."""
    small, large = sizes(v, b), sizes(v + dv, b + db)
    assert small <= large
    assert classes_of(np.array([small]))[0] <= classes_of(np.array([large]))[0]


@given(st.integers(1, 4**16 - 1))
def test_a_size_lies_between_the_edges_of_its_class(units: int) -> None:
    """From the edge on, up to the largest size of the class."""
    size_class = int(classes_of(np.array([units]))[0])
    assert 0 <= size_class < CLASS_COUNT
    assert CLASS_EDGES_UNITS[size_class] <= units <= largest_units_of_class(size_class)


def test_edges_are_classified_exactly() -> None:
    """Each edge is in its class, and one unit less is in the class below."""
    edges = CLASS_EDGES_UNITS
    assert classes_of(edges).tolist() == list(range(CLASS_COUNT))
    assert classes_of(edges[1:] - 1).tolist() == list(range(CLASS_COUNT - 1))
