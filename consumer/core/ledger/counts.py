"""What a set of records adds up to: its load, and its largest records.

Owns which records are heavy, and the rule for the others: a light record stands for the largest
of its class. What light records cost at most is then known from their counts alone; only the
sizes of heavy ones are kept. Holds nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from sizing.classes import CLASS_COUNT
from sizing.load import CLASS_RECORDS, Load, load_rows
from sizing.model import CostModel, largest_units_of_class

#: classes below this one are light in any setting
HEAVY_CLASS_FROM = 4
_LARGEST_UNITS = [largest_units_of_class(c) for c in range(CLASS_COUNT)]
_LARGEST_UNITS_ROW = np.array(_LARGEST_UNITS, dtype=np.int64)


def count_load(
    vertices: NDArray[np.int64],
    payload_bytes: NDArray[np.int64],
    units: NDArray[np.int64],
    classes: NDArray[np.int64],
) -> Load:
    """Count some records into one load row."""
    group = np.zeros(len(units), dtype=np.int64)
    row: Load = load_rows(group, 1, vertices, payload_bytes, units, classes)[0]
    return row


def heavy_units(units: NDArray[np.int64], classes: NDArray[np.int64]) -> dict[int, int]:
    """Return the largest size of each heavy class among some records; empty where all are light.

    Parameters
    ----------
    units, classes : ndarray of int64, shape (n,)
        Size in units and size class of each record, at least one.

    Examples
    --------
    >>> heavy_units(np.array([3, 300, 700, 2_000]), np.array([0, 4, 4, 5]))
    {4: 700, 5: 2000}
    """
    largest: dict[int, int] = {}
    if int(classes.max()) < HEAVY_CLASS_FROM:
        return largest
    heavy = classes >= HEAVY_CLASS_FROM
    for size_class, size in zip(classes[heavy].tolist(), units[heavy].tolist(), strict=True):
        if size > largest.get(size_class, 0):
            largest[size_class] = size
    return largest


def charged_units(units: NDArray[np.int64], classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the size that each record stands for where the largest of some is asked for.

    Examples
    --------
    Class 0 ends at 3 units, class 1 at 15; 300 units are heavy and stand for themselves.

    >>> charged_units(np.array([1, 3, 4, 300]), np.array([0, 0, 1, 4])).tolist()
    [3, 3, 15, 300]
    """
    return np.where(classes < HEAVY_CLASS_FROM, _LARGEST_UNITS_ROW[classes], units)


def heaviest_units(load: Load, heavy: Callable[[int], int]) -> dict[int, int]:
    """Return the size that the largest record of each class stands for, by size class.

    Parameters
    ----------
    load : Load
        Counts of the records.
    heavy : callable
        Given a heavy class that the load has: the largest size among its records.

    Examples
    --------
    >>> units, classes = np.array([1, 300]), np.array([0, 4])
    >>> load = count_load(np.array([1, 300]), np.array([64, 64]), units, classes)
    >>> heaviest_units(load, heavy_units(units, classes).__getitem__)
    {0: 3, 4: 300}
    """
    return {
        size_class: _LARGEST_UNITS[size_class]
        if size_class < HEAVY_CLASS_FROM
        else heavy(size_class)
        for size_class in np.flatnonzero(load[CLASS_RECORDS]).tolist()
    }


def heaviest_costs(largest: Mapping[int, int], model: CostModel) -> tuple[float, float]:
    """Return working bytes and seconds of the heaviest record; 0 for none.

    Parameters
    ----------
    largest : mapping of int to int
        Size class -> largest size, in units.
    model : CostModel
        Rates in force. The one that is most in bytes need not be the one that is most in seconds.

    Examples
    --------
    >>> seconds, working = np.full(16, 1e-6), np.full(16, 100.0)
    >>> working[0] = 9_000.0
    >>> heaviest_costs({0: 3, 4: 250}, CostModel(seconds, working))
    (27000.0, 0.00025)
    """
    most_bytes = most_seconds = 0.0
    for size_class, units in largest.items():
        most_bytes = max(most_bytes, units * float(model.working_bytes_per_unit[size_class]))
        most_seconds = max(most_seconds, units * float(model.seconds_per_unit[size_class]))
    return most_bytes, most_seconds
