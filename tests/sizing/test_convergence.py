"""Rates find hidden true costs from noisy chunks of several classes.

The noise is of 15 %, and one chunk in a hundred takes ten times as long. Examples are the same in
every run: what is judged is a distribution, and its tail is no bug.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS
from sizing.rates import Quantity, Rates

CHUNKS = 80
#: one chunk in so many takes ten times as long
OUTLIER_EVERY = 100


class Hidden:
    """True rates of some classes, and chunks of them with noise."""

    def __init__(self, seed: int, classes: list[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.classes = classes
        self.true = np.zeros(CLASS_COUNT)
        # From pings at 2 us to a slow handler's 10 ms a message, by the least size of the class.
        per_message = 10 ** self.random.uniform(-6, -2)
        per_unit = 10 ** self.random.uniform(-7, -5, len(classes))
        self.true[classes] = per_message / CLASS_EDGES_UNITS[classes] + per_unit

    def chunk(self, shares: np.ndarray, seconds: float = 0.06) -> tuple[np.ndarray, float]:
        """A chunk in which each class has its share of so many seconds, in whole records."""
        units = np.zeros(CLASS_COUNT, dtype=np.int64)
        least = CLASS_EDGES_UNITS[self.classes]
        records = seconds * shares / (self.true[self.classes] * least)
        records = np.floor(records + self.random.uniform(0, 1, len(records)))
        if not records.any():
            records[np.argmax(shares)] = 1
        units[self.classes] = records.astype(np.int64) * least
        noise = float(np.exp(self.random.normal(0, 0.15)))
        if self.random.integers(OUTLIER_EVERY) == 0:
            noise *= 10.0
        return units, float(units @ self.true) * noise

    def error(self, rates: Rates, shares: np.ndarray) -> float:
        """Predicted / true seconds of a chunk of these shares."""
        units, _ = self.chunk(shares)
        return float(units @ rates.in_force) / float(units @ self.true)


seeds = st.integers(0, 2**32)
some_classes = st.lists(st.integers(0, 6), min_size=2, max_size=5, unique=True).map(sorted)


@settings(max_examples=30, derandomize=True)
@given(seeds, some_classes)
def test_varied_chunks_teach_every_class(seed: int, classes: list[int]) -> None:
    """Chunks of any composition: an even mix is within a quarter, each class within a half."""
    hidden, rates = Hidden(seed, classes), Rates(Quantity.SECONDS)
    for _ in range(CHUNKS * len(classes)):
        rates.observe(*hidden.chunk(hidden.random.dirichlet([0.3] * len(classes))))
    assert 0.75 < hidden.error(rates, np.full(len(classes), 1 / len(classes))) < 1.25
    for alone in np.eye(len(classes)):
        assert 0.5 < hidden.error(rates, alone) < 1.5


@settings(max_examples=30, derandomize=True)
@given(seeds, some_classes)
def test_chunks_that_never_vary_teach_their_sum(seed: int, classes: list[int]) -> None:
    """The classes cannot be told apart, and their sum is within a quarter."""
    hidden, rates = Hidden(seed, classes), Rates(Quantity.SECONDS)
    mix = hidden.random.dirichlet([3.0] * len(classes))
    for _ in range(CHUNKS):
        rates.observe(*hidden.chunk(mix))
    assert 0.75 < hidden.error(rates, mix) < 1.25


@settings(max_examples=30, derandomize=True)
@given(seeds)
def test_no_class_needs_half_of_a_chunk(seed: int) -> None:
    """Four classes of 15 to 35 per cent each: mixes of that kind are within a quarter."""
    hidden, rates = Hidden(seed, [0, 3, 5, 7]), Rates(Quantity.SECONDS)
    for _ in range(CHUNKS):
        shares = hidden.random.uniform(0.15, 0.35, 4)
        rates.observe(*hidden.chunk(shares / shares.sum()))
    assert 0.75 < hidden.error(rates, np.full(4, 0.25)) < 1.25


@settings(max_examples=30, derandomize=True)
@given(seeds)
def test_a_rare_class_is_learned_from_few_chunks(seed: int) -> None:
    """A heavy record every thirtieth chunk, alone: right after six of them."""
    hidden, rates = Hidden(seed, [0, 3, 8]), Rates(Quantity.SECONDS)
    heavy = np.array([0.0, 0.0, 1.0])
    for number in range(180):
        light = np.append(hidden.random.dirichlet([1.0, 1.0]), 0.0)
        rates.observe(*hidden.chunk(heavy if number % 30 == 29 else light))
    assert rates.established()[8]
    assert 0.7 < hidden.error(rates, heavy) < 1.4
    assert 0.75 < hidden.error(rates, np.array([0.5, 0.5, 0.0])) < 1.25


@settings(max_examples=20, derandomize=True)
@given(seeds)
def test_bytes_lie_above_the_truth_and_not_far(seed: int) -> None:
    """With 15 % noise nine chunks of ten fit under 1.21 of the truth."""
    random = np.random.default_rng(seed)
    true = np.zeros(CLASS_COUNT)
    true[[0, 3, 6]] = random.uniform(60, 200, 3)
    rates = Rates(Quantity.BYTES)
    for _ in range(120):
        units = np.zeros(CLASS_COUNT, dtype=np.int64)
        units[[0, 3, 6]] = 1 + 5_000 * random.dirichlet([0.5, 0.5, 0.5])
        rates.observe(units, float(units @ true) * float(np.exp(random.normal(0, 0.15))))
    assert rates.in_force[[0, 3, 6]].sum() == pytest.approx(1.25 * true.sum(), rel=0.25)
