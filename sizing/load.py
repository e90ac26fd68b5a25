"""The load vector: integer counts of any set of records, in one row of int64.

Owns the layout. A set of records (a piece, a chunk, a chain, everything in flight) is counted
once; the sums of two sets are the sum of two rows, and every predicted cost is the product of a
row with a row of weights (see ``sizing.model``). Counts are kept and costs are not, so a new rate
values everything that is held anew, and a release subtracts exactly what was charged.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sizing.classes import CLASS_COUNT

#: One row: counts of a set of records, shape (LOAD_WIDTH,).
Load: TypeAlias = NDArray[np.int64]

RECORDS = 0  #: column: records
VERTICES = 1  #: column: counted vertices
PAYLOAD_BYTES = 2  #: column: bytes of value, key and headers
CLASS_RECORDS = slice(3, 3 + CLASS_COUNT)  #: columns: records by size class
CLASS_UNITS = slice(3 + CLASS_COUNT, 3 + 2 * CLASS_COUNT)  #: columns: units by size class
LOAD_WIDTH = 3 + 2 * CLASS_COUNT


def zero_load() -> Load:
    """Return the load of no records."""
    return np.zeros(LOAD_WIDTH, dtype=np.int64)


def sum_loads(loads: list[Load]) -> Load:
    """Return the sum of one or more loads.

    Examples
    --------
    >>> one = zero_load() + 1
    >>> int(sum_loads([one, one])[RECORDS])
    2
    """
    if len(loads) == 1:
        return loads[0]
    total: Load = np.array(loads).sum(axis=0)
    return total


def load_rows(  # noqa: PLR0917 -- the columns of one table, always given together
    group: NDArray[np.int64],
    groups: int,
    vertices: NDArray[np.int64],
    payload_bytes: NDArray[np.int64],
    units: NDArray[np.int64],
    classes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Count records by group: one load row for each.

    Parameters
    ----------
    group : ndarray of int64, shape (n,)
        The group of each record, in [0, groups).
    groups : int
        Number of groups.
    vertices, payload_bytes, units, classes : ndarray of int64, shape (n,)
        Counted vertices, payload bytes, size in units and size class of each record.

    Returns
    -------
    ndarray of int64, shape (groups, LOAD_WIDTH)

    Notes
    -----
    Sums are formed in float64, exact below 2**53.

    Examples
    --------
    >>> one = np.array([1])
    >>> row = load_rows(np.array([0]), 1, one, np.array([179]), np.array([3]), np.array([0]))[0]
    >>> int(row[RECORDS]), int(row[PAYLOAD_BYTES]), row[CLASS_UNITS].tolist()[:2]
    (1, 179, [3, 0])
    """
    rows = np.zeros((groups, LOAD_WIDTH), dtype=np.int64)
    rows[:, RECORDS] = np.bincount(group, minlength=groups)
    rows[:, VERTICES] = np.bincount(group, weights=vertices, minlength=groups)
    rows[:, PAYLOAD_BYTES] = np.bincount(group, weights=payload_bytes, minlength=groups)
    cell = group * CLASS_COUNT + classes
    cells = groups * CLASS_COUNT
    rows[:, CLASS_RECORDS] = np.bincount(cell, minlength=cells).reshape(groups, CLASS_COUNT)
    rows[:, CLASS_UNITS] = np.bincount(cell, weights=units, minlength=cells).reshape(
        groups, CLASS_COUNT
    )
    return rows
