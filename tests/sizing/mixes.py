"""Load rows and models for the tests of the sizing arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS, classes_of, sizes_units
from sizing.load import Load, load_rows
from sizing.model import CostModel


def load_of(vertices: Sequence[int], payload_bytes: Sequence[int]) -> Load:
    """Count records, given by their vertices and payload bytes, into one row."""
    counted = np.array(vertices, dtype=np.int64)
    sizes = np.array(payload_bytes, dtype=np.int64)
    units = sizes_units(counted, sizes)
    everything = np.zeros(len(units), dtype=np.int64)
    row: Load = load_rows(everything, 1, counted, sizes, units, classes_of(units))[0]
    return row


def flat_model(
    seconds_per_unit: float,
    working_bytes_per_unit: float,
    parent_seconds_per_message: float = 0.0,
    *,
    held_copies: float = 1.0,
    held_bytes_per_record: float = 0.0,
) -> CostModel:
    """One rate for every class, and nothing held but the payload unless told otherwise."""
    return CostModel(
        np.full(CLASS_COUNT, seconds_per_unit),
        np.full(CLASS_COUNT, working_bytes_per_unit),
        parent_seconds_per_message,
        held_copies,
        held_bytes_per_record,
    )


def class_row(units: Mapping[int, int]) -> Load:
    """Units by class, zero where none are named."""
    row = np.zeros(CLASS_COUNT, dtype=np.int64)
    for size_class, count in units.items():
        row[size_class] = count
    return row


def rates(least: float, most: float) -> st.SearchStrategy[np.ndarray]:
    """Rates of every class, each between two figures."""
    return st.lists(st.floats(least, most), min_size=CLASS_COUNT, max_size=CLASS_COUNT).map(
        np.array
    )


@st.composite
def loads(draw: st.DrawFn, most_records: int = 30) -> Load:
    """Mixes of records of every size, at least one."""
    records = draw(
        st.lists(
            st.tuples(st.integers(0, 10).map(lambda power: 4**power), st.integers(0, 40)),
            min_size=1,
            max_size=most_records,
        )
    )
    vertices = [size for size, _ in records]
    return load_of(vertices, [100 + size * text for size, text in records])


@st.composite
def models(draw: st.DrawFn) -> CostModel:
    """Cost models from fast to slow, from lean to fat."""
    return CostModel(
        draw(rates(1e-8, 1e-4)),
        draw(rates(1.0, 5_000.0)),
        draw(st.floats(0.0, 1e-3)),
        draw(st.floats(1.0, 3.0)),
        draw(st.floats(0.0, 1_000.0)),
    )


def edge_units(size_class: int) -> int:
    """Least size of a class."""
    return int(CLASS_EDGES_UNITS[size_class])
