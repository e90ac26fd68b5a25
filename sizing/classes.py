"""Size classes: records of one order of magnitude share one measured rate.

Owns the *size* of a record (in units) and the class that a size falls into.
Knows nothing of rates, bytes in memory or time. Every function is pure and vectorised.

Cost is not linear in vertices (a validity test of a jittered ring of 1 M vertices takes more
than twenty times that of 200 k), and bytes without vertices cost too (one long text property).
So the size is the larger of the two, and each power of four has a rate of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: A record of this many payload bytes weighs as much as one vertex (a GeoJSON position with
#: its share of the text around it is 20 to 60 bytes).
PAYLOAD_BYTES_PER_UNIT = 64
#: Ratio between the edges of neighbouring classes.
CLASS_RATIO = 4
#: Classes 0..15 cover sizes up to 4**16 - 1 units; a larger size stays in the last class.
CLASS_COUNT = 16
#: Least size of each class, in units.
CLASS_EDGES_UNITS: NDArray[np.int64] = CLASS_RATIO ** np.arange(CLASS_COUNT, dtype=np.int64)


def sizes_units(vertices: NDArray[np.int64], payload_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the size of each record.

    Parameters
    ----------
    vertices : ndarray of int64, shape (n,)
        Counted vertices, >= 0. The count may be too high, never too low.
    payload_bytes : ndarray of int64, shape (n,)
        Bytes of value, key and headers, >= 0.

    Returns
    -------
    ndarray of int64, shape (n,)
        max(vertices, ceil(payload_bytes / 64), 1), in units.

    Examples
    --------
    >>> sizes_units(np.array([1, 2001, 0]), np.array([179, 40_000, 0])).tolist()
    [3, 2001, 1]
    """
    by_bytes = -(-payload_bytes // PAYLOAD_BYTES_PER_UNIT)
    return np.maximum(np.maximum(vertices, by_bytes), 1)


def classes_of(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the size class of each size: floor(log4(units)), at most ``CLASS_COUNT - 1``.

    Parameters
    ----------
    units : ndarray of int64, shape (n,)
        Sizes, >= 1.

    Examples
    --------
    >>> classes_of(np.array([1, 3, 4, 15, 16, 4**20])).tolist()
    [0, 0, 1, 1, 2, 15]
    """
    return np.searchsorted(CLASS_EDGES_UNITS, units, side="right") - 1
