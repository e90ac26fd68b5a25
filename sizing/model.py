"""The cost model in force: what any set of records is predicted to cost.

Owns the valuation of load rows in seconds, working bytes and held bytes, and the two-figure
summary for people (per message and per vertex). A model is immutable; new rates are a new model.
Learning lives in ``sizing.rates``, the bounds in ``sizing.bounds``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sizing.classes import CLASS_EDGES_UNITS, CLASS_RATIO
from sizing.load import (
    CLASS_RECORDS,
    CLASS_UNITS,
    LOAD_WIDTH,
    PAYLOAD_BYTES,
    RECORDS,
    VERTICES,
    Load,
)

#: Python bytes of one waiting record beside its payload: two bytes objects (33 each), their list
#: slots, five int64 columns, and its share of run and piece objects.
HELD_BYTES_PER_RECORD = 200.0
#: Copies of the payload that the parent holds while a record is in flight; the slots' copy is
#: part of the baseline.
HELD_COPIES = 1.0
#: The parent's own cost of one record until it is measured.
PRIOR_PARENT_SECONDS_PER_MESSAGE = 3e-6
#: Held and working bytes together below this are implausible: 16 bytes of two doubles, the text
#: and the intermediate objects coexist while a payload is parsed (article 000, last test).
LEAST_BYTES_PER_VERTEX_OF_TEXT = 40.0
#: The same for WKB, whose coordinates alone are 16 bytes and are held as they came.
LEAST_BYTES_PER_VERTEX_OF_WKB = 24.0


def _class_row(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    row = np.zeros(LOAD_WIDTH)
    row[CLASS_UNITS] = rates
    return row


@dataclass(frozen=True, eq=False)
class CostModel:
    """Rates in force.

    Parameters
    ----------
    seconds_per_unit : ndarray of float64, shape (CLASS_COUNT,)
        Handler seconds (decode and handle) of one unit, by size class.
    working_bytes_per_unit : ndarray of float64, shape (CLASS_COUNT,)
        Peak bytes in a handler process of one unit, by size class.
    parent_seconds_per_message : float
        The parent's own processor time for one record.

    Examples
    --------
    >>> from sizing.load import load_rows
    >>> model = CostModel(np.full(16, 1e-6), np.full(16, 100.0), 3e-6)
    >>> one = lambda n: np.array([n])
    >>> row = load_rows(one(0), 1, one(2001), one(40_000), one(2001), one(5))[0]
    >>> round(model.seconds(row), 6), model.working_bytes(row), model.held_bytes(row)
    (0.002001, 200100.0, 40200.0)
    """

    seconds_per_unit: NDArray[np.float64]
    working_bytes_per_unit: NDArray[np.float64]
    parent_seconds_per_message: float = PRIOR_PARENT_SECONDS_PER_MESSAGE
    held_copies: float = HELD_COPIES
    held_bytes_per_record: float = HELD_BYTES_PER_RECORD
    _seconds_row: NDArray[np.float64] = field(init=False, repr=False)
    _working_row: NDArray[np.float64] = field(init=False, repr=False)
    _held_row: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        held = np.zeros(LOAD_WIDTH)
        held[PAYLOAD_BYTES] = self.held_copies
        held[RECORDS] = self.held_bytes_per_record
        object.__setattr__(self, "_seconds_row", _class_row(self.seconds_per_unit))
        object.__setattr__(self, "_working_row", _class_row(self.working_bytes_per_unit))
        object.__setattr__(self, "_held_row", held)

    def seconds(self, load: Load) -> float:
        """Handler seconds of these records, one process."""
        return float(self._seconds_row @ load)

    def working_bytes(self, load: Load) -> float:
        """Bytes of these records decoded at once in a handler process."""
        return float(self._working_row @ load)

    def held_bytes(self, load: Load) -> float:
        """Bytes of these records raw, in the parent."""
        return float(self._held_row @ load)

    def seconds_of_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Handler seconds of each row, shape (n,)."""
        return rows @ self._seconds_row

    def working_bytes_of_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Working bytes of each row, shape (n,)."""
        return rows @ self._working_row

    def seconds_of_records(
        self, units: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Handler seconds of each record, shape (n,)."""
        return self.seconds_per_unit[classes] * units

    def working_bytes_of_records(
        self, units: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Working bytes of each record, shape (n,)."""
        return self.working_bytes_per_unit[classes] * units

    def mean_working_bytes(self, load: Load) -> float:
        """Working bytes of a record, averaged over these records by their seconds.

        The memory that one busy process holds on average: P_eff divides the room by it.
        0 for no records.
        """
        seconds = self.seconds_per_unit * load[CLASS_UNITS]
        total = float(seconds.sum())
        if total <= 0:
            return 0.0
        records = np.maximum(load[CLASS_RECORDS], 1)
        working = self.working_bytes_per_unit * load[CLASS_UNITS] / records
        return float((seconds * working).sum() / total)


def implausible_bytes_factor(
    model: CostModel,
    mix: Load,
    *,
    exact_ratio: float = 1.0,
    least_bytes_per_vertex: float = LEAST_BYTES_PER_VERTEX_OF_TEXT,
) -> float:
    """Return what working bytes must be multiplied by to be plausible; 1 where they are.

    A measurement that reports the serialised size, or growth where the allocator has kept free
    pages, makes every budget several times too large, and nothing else would notice.

    Parameters
    ----------
    model : CostModel
        Rates as measured.
    mix : Load
        The sample.
    exact_ratio : float
        Exact vertices / counted ones: brackets that are no vertices are no bytes of vertices.
    least_bytes_per_vertex : float
        Held and working bytes of a vertex together that are believed.

    Notes
    -----
    Units: bytes / vertex; the factor has none. Formula: (least * exact vertices - held) / working,
    at least 1. Source: article 000, last test; its 40 guards against the naive 16.

    Examples
    --------
    A vertex holds 20 bytes and is said to work in 4: four fifths of 20 are missing.

    >>> from sizing.load import load_rows
    >>> one = lambda n: np.array([n])
    >>> row = load_rows(one(0), 1, one(1000), one(19_800), one(1000), one(4))[0]
    >>> implausible_bytes_factor(CostModel(np.ones(16), np.full(16, 4.0)), row)
    5.0
    """
    working = model.working_bytes(mix)
    vertices = float(mix[VERTICES]) * min(exact_ratio, 1.0)
    missing = least_bytes_per_vertex * vertices - model.held_bytes(mix)
    return max(1.0, missing / working) if working > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Cost of a message and of a vertex, fitted across size classes, for people."""

    seconds_per_message: float
    seconds_per_vertex: float
    bytes_per_message: float
    bytes_per_vertex: float
    #: False when the sample is too uniform to tell the two apart
    separable: bool


def fit_line(
    size: NDArray[np.float64], cost: NDArray[np.float64], weight: NDArray[np.float64]
) -> tuple[float, float]:
    """Fit cost = a + b * size with a, b >= 0 by weighted least squares of relative errors.

    Returns
    -------
    tuple of float
        (a, b). Where the free fit has a negative coefficient, that one is 0.

    Examples
    --------
    >>> a, b = fit_line(np.array([1.0, 100.0]), np.array([3.0, 201.0]), np.ones(2))
    >>> round(a, 6), round(b, 6)
    (1.0, 2.0)
    """
    scale = np.sqrt(weight) / np.maximum(cost, 1e-300)
    target = cost * scale
    columns = np.stack([scale, size * scale], axis=1)
    (a, b), *_ = np.linalg.lstsq(columns, target, rcond=None)
    if a < 0:
        return 0.0, float((columns[:, 1] @ target) / (columns[:, 1] @ columns[:, 1]))
    if b < 0:
        return float((columns[:, 0] @ target) / (columns[:, 0] @ columns[:, 0])), 0.0
    return float(a), float(b)


def coefficients(
    model: CostModel, mix: Load, established: NDArray[np.bool_], prior: tuple[float, float]
) -> Coefficients:
    """Fit per-message and per-vertex cost over the classes of a mix.

    Parameters
    ----------
    model : CostModel
        Rates in force.
    mix : Load
        The sample.
    established : ndarray of bool, shape (CLASS_COUNT,)
        Classes with a measured rate.
    prior : tuple of float
        Seconds and bytes of a message, used where the sample cannot tell the two apart.

    Notes
    -----
    Units: seconds and bytes per message, per vertex (unit). Classes weigh by their seconds.
    """
    present = (mix[CLASS_RECORDS] > 0) & established
    records = np.maximum(mix[CLASS_RECORDS], 1)
    size = mix[CLASS_UNITS] / records
    seconds = model.seconds_per_unit * size
    working = model.working_bytes_per_unit * size
    if int(present.sum()) < 2:
        only = present if present.any() else mix[CLASS_RECORDS] > 0
        if not only.any():
            return Coefficients(prior[0], 0.0, prior[1], 0.0, separable=False)
        total = float(mix[CLASS_UNITS][only].sum())
        return Coefficients(
            prior[0],
            float((model.seconds_per_unit * mix[CLASS_UNITS])[only].sum()) / total,
            prior[1],
            float((model.working_bytes_per_unit * mix[CLASS_UNITS])[only].sum()) / total,
            separable=False,
        )
    weight = (model.seconds_per_unit * mix[CLASS_UNITS])[present]
    per_message, per_vertex = fit_line(size[present], seconds[present], weight)
    bytes_message, bytes_vertex = fit_line(size[present], working[present], weight)
    return Coefficients(per_message, per_vertex, bytes_message, bytes_vertex, separable=True)


def largest_units_of_class(size_class: int) -> int:
    """Return the largest size that falls into a class, in units.

    Examples
    --------
    >>> largest_units_of_class(0), largest_units_of_class(1)
    (3, 15)
    """
    return int(CLASS_EDGES_UNITS[size_class]) * CLASS_RATIO - 1


def prior_model() -> CostModel:
    """Return the model before anything was measured."""
    from sizing.rates import Quantity, prior_per_unit

    return CostModel(prior_per_unit(Quantity.SECONDS), prior_per_unit(Quantity.BYTES))
