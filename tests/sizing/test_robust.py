"""Medians and quantiles that one outlier does not move, by hand."""

from __future__ import annotations

import numpy as np

from sizing.robust import failing, median_ratio, upper_ratio


def test_a_prediction_has_failed_when_three_of_four_are_outside() -> None:
    """Half and half as much again are still inside; two outside are outliers."""
    assert failing([1.6, 1.0, 1.6, 1.6])
    assert not failing([1.6, 1.0, 1.0, 1.6])
    assert not failing([1.5, 1.5, 1.5, 1.5])
    assert failing([0.4, 0.4, 1.0, 0.4])
    assert not failing([0.4, 1.0, 1.0, 0.4])
    assert not failing([0.5, 0.5, 0.5, 0.5])


def test_the_median_is_over_the_windows_that_have_something() -> None:
    """Entries 0 and 5 are one window: (1 * 1 + 3 * 3) / 4 = 2.5; of 2.5 and 9 the middle is 5.75."""
    ratios = np.array([[1.0, 9.0, 0, 0, 0, 3.0, 0, 0, 0, 0], [7.0] + 9 * [0.0]])
    shares = np.array([[1.0, 1.0, 0, 0, 0, 3.0, 0, 0, 0, 0], [0.1] + 9 * [0.0]])
    assert median_ratio(ratios, shares).tolist() == [5.75, 7.0]


def test_nine_tenths_fit_under_the_upper_figure() -> None:
    """Of ten alike in weight it is the ninth, each row by itself, and the newest if that is more."""
    rows = np.array([[10.0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [20.0, 30, 30, 30, 30, 30, 30, 30, 30, 40]])
    assert upper_ratio(rows, np.ones((2, 10)), np.array([1, 1])).tolist() == [9.0, 30.0]
    assert upper_ratio(rows, np.ones((2, 10)), np.array([0, 9])).tolist() == [10.0, 40.0]


def test_an_entry_counts_by_its_weight() -> None:
    """The two largest have 11 of 100, so the larger share ends with the second of them."""
    ratios, shares = np.array([[1.0, 5.0, 9.0]]), np.array([[89.0, 10.0, 1.0]])
    assert upper_ratio(ratios, shares, np.array([0])).tolist() == [5.0]
