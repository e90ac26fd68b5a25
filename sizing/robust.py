"""Robust figures of a few ratios: medians and quantiles that one outlier does not move.

Owns what a row of remembered ratios says as one number, and when recent ratios say that a
prediction has failed. Pure; knows no classes and no units: a ratio is observed / predicted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Sub-windows of the remembered ratios, filled in turn; the figure is their median.
SUB_WINDOWS = 5
#: An upper figure lets this share of the remembered ratios fit under it.
UPPER_SHARE = 0.9
#: Three of four recent ratios on one side of this are a failed prediction.
RATIO_RANGE = (0.5, 1.5)
RATIOS_RECENT = 4
#: In place of a zero that divides.
TINY = 1e-300

_FloatRows = NDArray[np.float64]


def failing(ratios: list[float]) -> bool:
    """Whether three of the four ratios lie on one side of 0.5 to 1.5.

    Three, and not their median: the median of four lies between the second and the third, and
    follows two outliers that happen to come together.

    Examples
    --------
    >>> failing([10.0, 1.0, 9.0, 11.0]), failing([10.0, 1.0, 1.0, 11.0]), failing([9.0, 9.0])
    (True, False, False)
    """
    if len(ratios) < RATIOS_RECENT:
        return False
    ordered = sorted(ratios)
    return ordered[1] > RATIO_RANGE[1] or ordered[2] < RATIO_RANGE[0]


def median_ratio(ratios: _FloatRows, shares: _FloatRows) -> NDArray[np.float64]:
    """Return the median over sub-windows of each row's weighted mean ratio.

    Parameters
    ----------
    ratios, shares : ndarray of float64, shape (n, m)
        Ratios and their weights, m a multiple of 5; a weight of 0 where there is none. Entries
        are filled from the left, at least one in each row.

    Returns
    -------
    ndarray of float64, shape (n,)

    Notes
    -----
    Entry i belongs to window i mod 5. A mean within a window, since sums are what matters; the
    median over windows, since one pause of the collector must not set the budget (article 000:
    "median, not mean").

    Examples
    --------
    >>> ratios = np.array([[1.0, 1.2, 0.8, 1.0, 50.0]])
    >>> median_ratio(ratios, np.ones((1, 5))).tolist()
    [1.0]
    """
    by_window = (len(ratios), ratios.shape[1] // SUB_WINDOWS, SUB_WINDOWS)
    weight = shares.reshape(by_window).sum(axis=1)
    mean = (ratios * shares).reshape(by_window).sum(axis=1) / np.maximum(weight, TINY)
    filled = (weight > 0.0).sum(axis=1)
    mean[weight <= 0.0] = np.inf
    mean.sort(axis=1)
    row = np.arange(len(ratios))
    middle: NDArray[np.float64] = 0.5 * (mean[row, (filled - 1) // 2] + mean[row, filled // 2])
    return middle


def upper_ratio(
    ratios: _FloatRows, shares: _FloatRows, newest: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return each row's 90th weighted percentile, or its newest entry if that is more.

    Parameters
    ----------
    ratios, shares : ndarray of float64, shape (n, m)
        Ratios and their weights; a weight of 0 where there is none.
    newest : ndarray of int, shape (n,)
        Where each row's newest entry is.

    Returns
    -------
    ndarray of float64, shape (n,)

    Notes
    -----
    A peak has to fit, and memory that did not is the end of the process: the first entry that
    is higher counts. The percentile keeps a peak that comes again for as long as it is remembered.

    Examples
    --------
    >>> ratios = np.array([[1.0] * 19 + [3.0]])
    >>> upper_ratio(ratios, np.ones((1, 20)), np.array([19])).tolist()
    [3.0]
    >>> upper_ratio(ratios, np.ones((1, 20)), np.array([0])).tolist()
    [1.0]
    """
    order = np.argsort(ratios, axis=1)
    row = np.arange(len(ratios))
    cumulated = np.cumsum(shares[row[:, None], order], axis=1)
    reached = cumulated >= UPPER_SHARE * cumulated[:, -1:]
    upper = ratios[row, order[row, reached.argmax(axis=1)]]
    figure: NDArray[np.float64] = np.maximum(upper, ratios[row, newest])
    return figure
