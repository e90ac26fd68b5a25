"""Rates learned from chunks: what one unit of each size class costs, and how sure that is.

Owns the observations of one quantity (seconds, or working bytes) by size class, their robust
figure, the prior of a class never seen, the common factor and the ramp. Pure: no clock.

A chunk holds several classes and is measured as a whole, so what each class took of it is a
question of all chunks together. Every class remembers the last chunks that it had a part in, as
counts and not as shares. With each new one, what a class remembers is explained again by the
rates as they are now: the ratio observed / predicted of a chunk belongs to each class by its
predicted share of that chunk (iterated: the Richardson-Lucy rule). A share that was fixed when
the chunk came in would keep the guesses of the first minute for as long as it is remembered. In
traffic that never varies the classes cannot be told apart: their sum is right, and each keeps
the place that its prior gave it.

Rules of the figure in force:

- below four observations a class takes its prior, or its own figure if two observations say more;
- a class that is hardly a tenth of its chunks is not believed to be the cheapest of all;
- a rise applies at once;
- a fall is held up: after n observations since it began, at most to 1/n (by half per doubling),
  so that one quiet minute does not open the gates; until the first sizing it is not, nor is a
  class's first figure of its own;
- when three of a class's last four chunks leave 0.5 to 1.5 of what it predicts, it forgets what
  was before them; when three of the last four of all do, every class is corrected at once.
  (Three of four, because the median of four follows two outliers.)
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS
from sizing.robust import RATIO_RANGE, RATIOS_RECENT, TINY, failing, median_ratio, upper_ratio

#: Observations that a class needs before its own rate counts.
LEAST_OBSERVATIONS = 4
#: A class that is less than this of its twenty remembered chunks proves little by itself.
LEAST_EVIDENCE = 2.0
#: Observations from which a class's own figure may exceed its prior.
LEAST_TO_EXCEED_PRIOR = 2
#: Chunks that a class remembers: forgetting goes by a class's own work, not by the clock.
CHUNKS_REMEMBERED = 20
#: A class with less than this share of a chunk's cost learns nothing from it, unless it has half
#: of the largest share or more.
LEAST_SHARE = 0.1
#: A class never seen costs this many times the nearest smaller class that was.
UNSEEN_FACTOR = 4.0
#: A class with this share of a chunk is what the chunk is about.
MAIN_SHARE = 0.5
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

    Notes
    -----
    Units: seconds / unit, bytes / unit. Source: DESIGN, "The arithmetic".

    Examples
    --------
    >>> prior_per_unit(Quantity.SECONDS)[:2].round(6).tolist()
    [0.00101, 0.00026]
    """
    if quantity is Quantity.BYTES:
        return np.full(CLASS_COUNT, PRIOR_BYTES_PER_VERTEX)
    return PRIOR_SECONDS_PER_MESSAGE / CLASS_EDGES_UNITS + PRIOR_SECONDS_PER_VERTEX


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

    Examples
    --------
    >>> rates = Rates(Quantity.SECONDS)
    >>> pings = np.zeros(CLASS_COUNT, dtype=np.int64)
    >>> pings[0] = 1000
    >>> for _ in range(3): _ = rates.observe(pings, 0.002)
    >>> float(rates.in_force[0]), float(rates.estimate[0])
    (0.00101, 0.00101)
    >>> _ = rates.observe(pings, 0.002)
    >>> round(float(rates.in_force[0]), 9)
    2e-06
    """

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity
        self._prior = prior_per_unit(quantity)
        # What explains the chunks: the prior, and from its first observation on a class's own.
        self._fitted = self._prior.copy()
        self._estimate = self._prior.copy()
        self.in_force = self._prior.copy()
        self._observations = np.zeros(CLASS_COUNT)
        # Of how many of its remembered chunks a class is, by its own figure: parts add up.
        self._evidence = np.zeros(CLASS_COUNT)
        # Its figure if it were a tenth of them.
        self._a_tenth = np.zeros(CLASS_COUNT)
        # Chunks remembered by each class: units of every class, and what the chunk took.
        self._units = np.zeros((CLASS_COUNT, CHUNKS_REMEMBERED, CLASS_COUNT))
        self._amounts = np.zeros((CLASS_COUNT, CHUNKS_REMEMBERED))
        self._remembered = [0] * CLASS_COUNT
        self._recent: deque[tuple[float, NDArray[np.int64], float]] = deque(maxlen=RATIOS_RECENT)
        self._ramp_exempt = True
        # The ramp: where a fall began, and the observations since.
        self._fell_from = self._prior.copy()
        self._since_fall = np.zeros(CLASS_COUNT)

    @property
    def estimate(self) -> _FloatRow:
        """Per-unit figures without the ramp: what the observations say now."""
        return self._estimate

    def observations(self, size_class: int) -> float:
        """Return how many chunks the class has been observed in (parts of chunks add up)."""
        return float(self._observations[size_class])

    def established(self) -> NDArray[np.bool_]:
        """Return which classes have observations enough for a rate of their own."""
        return self._observations >= LEAST_OBSERVATIONS

    def spread_ratio(self, size_class: int) -> float:
        """Return (90th - 10th percentile) / median of the remembered figures; 0 when unknown."""
        count = min(self._remembered[size_class], CHUNKS_REMEMBERED)
        if count < LEAST_OBSERVATIONS:
            return 0.0
        predicted = self._units[size_class, :count] @ self._fitted
        ratios = self._amounts[size_class, :count] / predicted
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        return float((high - low) / middle)

    def held_up(self) -> NDArray[np.bool_]:
        """Return which classes the ramp holds more than a tenth above their estimate."""
        return self.in_force > 1.1 * self._estimate

    def end_exemption(self) -> None:
        """Let the ramp apply from now on: the first sizing is published."""
        self._ramp_exempt = False

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
            True when the prediction has failed: the common factor corrected every class, or a
            known class is charged half as much again or more from now on.
        """
        fitted = class_units * self._fitted
        predicted = float(fitted.sum())
        if predicted <= 0 or amount <= 0:
            return False
        shares = fitted / predicted
        # A class that is charged far too much has hardly a share by its own figure: by what it
        # is charged, it is observed all the same, and stops being charged too much.
        charged = class_units * self.in_force
        charged /= charged.sum()
        weight = np.maximum(shares, charged)
        learning = _learning(weight)
        known = self._observations >= LEAST_OBSERVATIONS
        self._observations[learning] += weight[learning]
        self._since_fall[learning] += weight[learning]
        ratio = amount / predicted
        failed = False
        if min(shares[known].sum(), charged[known].sum()) >= 0.5:
            self._recent.append((ratio, class_units.copy(), amount))
            failed = failing([r for r, _, _ in self._recent]) and self._correct_all(known)
        if not failed:
            self._remember(learning, class_units, amount)
            self._fit(learning, surprised=not RATIO_RANGE[0] <= ratio <= RATIO_RANGE[1])
        before = self.in_force
        self._put_in_force(known)
        return failed or bool((self.in_force > RATIO_RANGE[1] * before)[known].any())

    def _remember(
        self, learning: NDArray[np.intp], units: NDArray[np.int64], amount: float
    ) -> None:
        for size_class in learning.tolist():
            place = self._remembered[size_class] % CHUNKS_REMEMBERED
            self._units[size_class, place] = units
            self._amounts[size_class, place] = amount
            self._remembered[size_class] += 1

    def _fit(self, learning: NDArray[np.intp], *, surprised: bool = False) -> None:
        """Explain again what these classes remember, and correct each by what is left over."""
        ratios, shares = self._explain(learning)
        if surprised and self._forget_before_change(learning, ratios, shares):
            ratios, shares = self._explain(learning)
        if self.quantity is Quantity.BYTES:
            newest = [(self._remembered[c] - 1) % CHUNKS_REMEMBERED for c in learning.tolist()]
            # A peak that is mostly another class's can raise this one, but not lower it: an
            # upper figure of the other would press this one towards nothing.
            telling = np.where((shares >= MAIN_SHARE) | (ratios > 1.0), shares, 0.0)
            told = telling.sum(axis=1) > 0.0
            factor = np.where(told, upper_ratio(ratios, telling, np.array(newest)), 1.0)
        else:
            factor = median_ratio(ratios, shares)
        self._fitted[learning] *= factor
        self._evidence[learning] = shares.sum(axis=1)
        own = self._units[learning, :, learning].sum(axis=1)
        self._a_tenth[learning] = LEAST_SHARE * self._amounts[learning].sum(axis=1) / own

    def _explain(self, learning: NDArray[np.intp]) -> tuple[_FloatRow, _FloatRow]:
        """Return observed / predicted and the class's share, of each chunk that it remembers.

        Both of shape (n, CHUNKS_REMEMBERED); the share is 0 where nothing is remembered.
        """
        units = self._units[learning]
        predicted = np.maximum(units @ self._fitted, TINY)
        own = units[np.arange(len(learning)), :, learning] * self._fitted[learning][:, None]
        return self._amounts[learning] / predicted, own / predicted

    def _forget_before_change(
        self, learning: NDArray[np.intp], ratios: _FloatRow, shares: _FloatRow
    ) -> bool:
        """Keep the last four chunks of a class where three of them contradict its figure."""
        changed = False
        for row, size_class in enumerate(learning.tolist()):
            count = self._remembered[size_class]
            if count <= RATIOS_RECENT:
                continue
            places = [(count - 1 - i) % CHUNKS_REMEMBERED for i in range(RATIOS_RECENT)]
            # A chunk that is mostly another's says nothing about this one.
            if min(shares[row, places]) < 0.5 or not failing(ratios[row, places].tolist()):
                continue
            kept = self._units[size_class, places], self._amounts[size_class, places]
            self._units[size_class] = 0.0
            self._amounts[size_class] = 0.0
            self._units[size_class, :RATIOS_RECENT], self._amounts[size_class, :RATIOS_RECENT] = (
                kept
            )
            self._remembered[size_class] = RATIOS_RECENT
            changed = True
        return changed

    def _correct_all(self, known: NDArray[np.bool_]) -> bool:
        """Multiply every known class by the common factor, and learn anew from the last four.

        What has not been seen since the change keeps the factor until it is.
        """
        recent = [(units, amount) for _, units, amount in self._recent]
        ratios = sorted(amount / float(units @ self._fitted) for units, amount in recent)
        self._fitted[known] *= (ratios[1] + ratios[2]) / 2.0
        self._units[:] = 0.0
        self._amounts[:] = 0.0
        self._remembered = [0] * CLASS_COUNT
        self._recent.clear()
        for units, amount in recent:
            shares = units * self._fitted
            self._remember(_learning(shares / shares.sum()), units, amount)
        self._fit(np.flatnonzero(self._remembered))
        return True

    def _put_in_force(self, was_known: NDArray[np.bool_]) -> None:
        known = self._observations >= LEAST_OBSERVATIONS
        fitted, before = self._believed(), self.in_force
        if self._ramp_exempt:
            in_force = fitted.copy()
        else:
            falling = known & was_known & (fitted < before)
            begins = falling & (before <= self._estimate)
            if begins.any():
                self._fell_from[begins] = before[begins]
                self._since_fall[begins] = 1.0
            ramp = self._fell_from / np.maximum(self._since_fall, 1.0)
            in_force = np.where(falling, np.maximum(fitted, np.minimum(ramp, before)), fitted)
        estimate = fitted.copy()
        below = below_in_force = 0.0
        for size_class, is_known in enumerate(known.tolist()):
            if is_known:
                below, below_in_force = float(fitted[size_class]), float(in_force[size_class])
                continue
            least = self._prior[size_class]
            observations = self._observations[size_class]
            if observations >= LEAST_TO_EXCEED_PRIOR:
                least = max(least, fitted[size_class])
            estimate[size_class] = max(least, UNSEEN_FACTOR * below)
            in_force[size_class] = max(least, UNSEEN_FACTOR * below_in_force)
        self._estimate = estimate
        self.in_force = in_force

    def _believed(self) -> _FloatRow:
        """Return the fitted figures, those on little evidence raised to what they may well be.

        Chunks say next to nothing of a class that is hardly a tenth of them: its figure sinks
        with the prior of what it travels with. It is not believed to be cheaper than every class
        with more evidence, as far as a tenth of its chunks allows. Only below a larger such class,
        since the unit of a small record has to pay for the whole message.
        """
        figure = self._fitted.copy()
        strong = np.flatnonzero(self._evidence >= LEAST_EVIDENCE)
        if len(strong):
            doubtful = slice(0, strong[-1])
            least = np.minimum(self._a_tenth[doubtful], figure[strong].min())
            # Those with more evidence are above it anyway.
            np.maximum(figure[doubtful], least, out=figure[doubtful])
        return figure


def _learning(shares: _FloatRow) -> NDArray[np.intp]:
    """Return the classes that have enough of a chunk to learn from it."""
    return np.flatnonzero(shares >= min(LEAST_SHARE, 0.5 * float(shares.max())))
