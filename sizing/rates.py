"""Rates learned from chunks: what one unit of each size class costs, and how sure that is.

Owns the observations of one quantity (seconds, or working bytes) by size class, their
robust figure, the prior of a class never seen, the common factor and the ramp. Pure: no clock.
A handler process measures chunks, and a chunk holds several classes; its ratio
observed / predicted is shared among them by their predicted share of it.

Rules of the figure in force:

- below four observations a class takes its prior;
- a rise applies at once;
- a fall is held up: at most to 1/n of the last peak after n further observations (by half per
  doubling), so that one quiet minute does not open the gates;
- when the median of four recent ratios leaves 0.5 to 1.5, every class is corrected at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS

#: Observations that a class needs before its own rate counts.
LEAST_OBSERVATIONS = 4
#: Chunks that a class remembers: forgetting goes by a class's own work, not by the clock.
CHUNKS_REMEMBERED = 20
#: Sub-windows of the remembered chunks; the figure is their median.
SUB_WINDOWS = 5
#: A class with less than this share of a chunk's predicted cost learns nothing from it.
LEAST_SHARE = 0.1
#: A class never seen costs this many times the nearest smaller class that was.
UNSEEN_FACTOR = 4.0
#: Four recent ratios whose median lies outside are a failed prediction.
RATIO_RANGE = (0.5, 1.5)
RATIOS_RECENT = 4
#: Absolute priors (see ``prior_per_unit``).
PRIOR_SECONDS_PER_MESSAGE = 1e-3
PRIOR_SECONDS_PER_VERTEX = 1e-5
PRIOR_BYTES_PER_VERTEX = 400.0

_FloatRow = NDArray[np.float64]


class Quantity(StrEnum):
    """What a rate measures."""

    SECONDS = "seconds"
    BYTES = "bytes"


def prior_per_unit(quantity: Quantity) -> _FloatRow:
    """Return the absolute prior of each size class, per unit.

    Returns
    -------
    ndarray of float64, shape (CLASS_COUNT,)
        Seconds or bytes per unit: 1 ms a message and 10 us a vertex at the least size of the
        class; 400 bytes a vertex. Never the per-vertex rate of pings.

    Examples
    --------
    >>> prior_per_unit(Quantity.SECONDS)[:2].round(6).tolist()
    [0.00101, 0.00026]
    """
    if quantity is Quantity.BYTES:
        return np.full(CLASS_COUNT, PRIOR_BYTES_PER_VERTEX)
    return PRIOR_SECONDS_PER_MESSAGE / CLASS_EDGES_UNITS + PRIOR_SECONDS_PER_VERTEX


@dataclass(slots=True)
class _ClassRate:
    """One class: remembered (per-unit figure, weight) pairs and the figure in force."""

    remembered: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=CHUNKS_REMEMBERED)
    )
    observations: float = 0.0
    since_rise: float = 0.0
    peak: float = 0.0


class Rates:
    """Per-unit rates of one quantity for every size class.

    Parameters
    ----------
    quantity : Quantity
        Seconds take the median of sub-windows (sums matter, one pause of the collector must
        not set the budget); bytes take an upper quantile (a peak must fit).

    Attributes
    ----------
    in_force : ndarray of float64, shape (CLASS_COUNT,)
        What charges, per unit.
    """

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity
        self._prior = prior_per_unit(quantity)
        self._classes = [_ClassRate() for _ in range(CLASS_COUNT)]
        self._estimate = self._prior.copy()
        self._ratios: deque[float] = deque(maxlen=RATIOS_RECENT)
        self._ramp_exempt = True
        self.in_force = self._prior.copy()

    @property
    def estimate(self) -> _FloatRow:
        """Per-unit figures without the ramp: what the observations say now."""
        return self._estimate

    def observations(self, size_class: int) -> float:
        """Return how many chunks the class has been observed in (parts of chunks add up)."""
        return self._classes[size_class].observations

    def established(self) -> NDArray[np.bool_]:
        """Return which classes have observations enough for a rate of their own."""
        return np.array([c.observations >= LEAST_OBSERVATIONS for c in self._classes])

    def spread_ratio(self, size_class: int) -> float:
        """Return (90th - 10th percentile) / median of the remembered figures; 0 when unknown."""
        figures = [figure for figure, _ in self._classes[size_class].remembered]
        if len(figures) < LEAST_OBSERVATIONS:
            return 0.0
        low, middle, high = np.quantile(figures, (0.1, 0.5, 0.9))
        return float((high - low) / middle) if middle > 0 else 0.0

    def held_up(self) -> NDArray[np.bool_]:
        """Return which classes the ramp holds more than a tenth above their estimate."""
        return self.in_force > 1.1 * self._estimate

    def end_exemption(self) -> None:
        """Let the ramp apply from now on: the first sizing is published."""
        self._ramp_exempt = False
        for rate, value in zip(self._classes, self.in_force, strict=True):
            rate.peak = float(value)
            rate.since_rise = 0.0

    def observe(self, class_units: NDArray[np.int64], amount: float) -> bool:
        """Learn from one chunk.

        Parameters
        ----------
        class_units : ndarray of int64, shape (CLASS_COUNT,)
            Units of each class in the chunk.
        amount : float
            Seconds or bytes that the chunk took, > 0.

        Returns
        -------
        bool
            True when the prediction has failed: the common factor corrected every class.
        """
        predicted_by_class = class_units * self._estimate
        predicted = float(predicted_by_class.sum())
        if predicted <= 0 or amount <= 0:
            return False
        ratio = amount / predicted
        shares = predicted_by_class / predicted
        known = self.established()
        for size_class in np.flatnonzero(shares >= LEAST_SHARE).tolist():
            self._learn(size_class, ratio, float(shares[size_class]))
        failed = False
        if float(shares[known].sum()) >= 0.5:
            self._ratios.append(ratio)
            failed = self._maybe_correct_all()
        self._refresh_unseen()
        self._put_in_force()
        return failed

    def _learn(self, size_class: int, ratio: float, share: float) -> None:
        rate = self._classes[size_class]
        rate.remembered.append((float(self._estimate[size_class]) * ratio, share))
        rate.observations += share
        rate.since_rise += share
        if rate.observations >= LEAST_OBSERVATIONS:
            self._estimate[size_class] = self._figure(rate.remembered)

    def _figure(self, remembered: deque[tuple[float, float]]) -> float:
        figures = np.array([figure for figure, _ in remembered])
        weights = np.array([weight for _, weight in remembered])
        if self.quantity is Quantity.BYTES:
            return _upper_figure(figures, weights)
        parts = np.array_split(np.arange(len(figures)), min(SUB_WINDOWS, len(figures)))
        return float(np.median([np.average(figures[p], weights=weights[p]) for p in parts]))

    def _maybe_correct_all(self) -> bool:
        if len(self._ratios) < RATIOS_RECENT:
            return False
        factor = float(np.median(self._ratios))
        if RATIO_RANGE[0] <= factor <= RATIO_RANGE[1]:
            return False
        self._ratios.clear()
        for size_class, rate in enumerate(self._classes):
            if rate.observations < LEAST_OBSERVATIONS:
                continue
            # What was learnt before the change is worth one observation of the new figure.
            corrected = float(self._estimate[size_class]) * factor
            recent = self._recent_figure(rate, corrected)
            rate.remembered.clear()
            rate.remembered.append((recent, 1.0))
            self._estimate[size_class] = recent
        return True

    @staticmethod
    def _recent_figure(rate: _ClassRate, corrected: float) -> float:
        """Take the newest observations of the class itself where they agree on the change."""
        newest = [figure for figure, _ in list(rate.remembered)[-RATIOS_RECENT // 2 :]]
        if newest and all(0.5 <= figure / corrected <= 2.0 for figure in newest):
            return float(np.mean(newest))
        return corrected

    def _refresh_unseen(self) -> None:
        below = 0.0
        for size_class, rate in enumerate(self._classes):
            if rate.observations >= LEAST_OBSERVATIONS:
                below = float(self._estimate[size_class])
            else:
                prior = float(self._prior[size_class])
                self._estimate[size_class] = max(prior, UNSEEN_FACTOR * below)

    def _put_in_force(self) -> None:
        for size_class, rate in enumerate(self._classes):
            estimate = float(self._estimate[size_class])
            if self._ramp_exempt or rate.observations < LEAST_OBSERVATIONS or estimate >= rate.peak:
                rate.peak = estimate
                rate.since_rise = 0.0
                self.in_force[size_class] = estimate
            else:
                self.in_force[size_class] = max(estimate, rate.peak / max(1.0, rate.since_rise))


def _upper_figure(figures: _FloatRow, weights: _FloatRow) -> float:
    """Return the 90th weighted percentile, or the median of the newest three if that is more.

    The second makes a rise count after two chunks; the first keeps a peak for twenty.
    """
    order = np.argsort(figures)
    cumulated = np.cumsum(weights[order])
    position = int(np.searchsorted(cumulated, 0.9 * cumulated[-1]))
    upper = float(figures[order][min(position, len(figures) - 1)])
    return max(upper, float(np.median(figures[-3:])))
