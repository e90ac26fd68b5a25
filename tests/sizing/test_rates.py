"""Rates: priors, what a chunk teaches, failed predictions and the ramp."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing.rates import (
    CHUNKS_REMEMBERED,
    LEAST_OBSERVATIONS,
    Quantity,
    Rates,
    prior_per_unit,
)
from tests.sizing.mixes import class_row

#: what a unit of each class truly costs, in seconds
TRUE = np.full(16, 2e-6)
FIVE_CLASSES = {0: 2_000, 2: 1_000, 3: 1_000, 4: 1_000, 5: 1_000}


def sized(chunks: Mapping[int, int], true: np.ndarray = TRUE, count: int = 20) -> Rates:
    """Rates that have learned from the same chunk so often, with a sizing published."""
    rates = Rates(Quantity.SECONDS)
    for _ in range(count):
        show(rates, chunks, true)
    rates.end_exemption()
    return rates


def show(rates: Rates, units: Mapping[int, int], true: np.ndarray = TRUE) -> bool:
    """Let rates observe a chunk at its true cost."""
    row = class_row(units)
    return rates.observe(row, float(row @ true))


def test_the_prior_holds_until_the_fourth_chunk() -> None:
    """Three chunks prove nothing; the fourth puts the class's own figure in force."""
    rates = Rates(Quantity.SECONDS)
    prior = prior_per_unit(Quantity.SECONDS)[0]
    for seen in range(1, LEAST_OBSERVATIONS + 1):
        show(rates, {0: 1_000})
        assert rates.observations(0) == pytest.approx(seen)
        assert rates.in_force[0] == pytest.approx(prior if seen < LEAST_OBSERVATIONS else 2e-6)
    assert rates.established().tolist() == [True] + 15 * [False]


def test_two_chunks_may_say_more_than_the_prior() -> None:
    """A class that is dearer than its prior is not charged too little until the fourth chunk."""
    rates = Rates(Quantity.SECONDS)
    dear = 20 * prior_per_unit(Quantity.SECONDS)
    show(rates, {4: 1_000}, dear)
    assert rates.in_force[4] == prior_per_unit(Quantity.SECONDS)[4]
    show(rates, {4: 1_000}, dear)
    assert rates.in_force[4] == pytest.approx(dear[4])


def test_a_class_never_seen_costs_four_times_the_class_below() -> None:
    """Four times the nearest smaller class that is known, and at least the prior."""
    # Class 4 at 100 us: 5 and above at 400 us. Below 4 none is known: priors.
    rates = sized({4: 1_000}, np.full(16, 1e-4))
    assert rates.in_force[5:] == pytest.approx(4e-4)
    assert (rates.in_force[:4] == prior_per_unit(Quantity.SECONDS)[:4]).all()
    # Pings at 2 us: four times that is under the prior of every class, so theirs holds.
    rates = sized({0: 1_000})
    assert (rates.in_force[2:] == prior_per_unit(Quantity.SECONDS)[2:]).all()


def test_the_seconds_of_bytes_do_not_matter_to_the_prior_of_bytes() -> None:
    """400 bytes a unit in every class."""
    assert Rates(Quantity.BYTES).in_force.tolist() == 16 * [400.0]


def test_nothing_is_learned_from_nothing() -> None:
    """An empty chunk, or one that took no time, changes no rate."""
    rates = Rates(Quantity.SECONDS)
    assert not rates.observe(class_row({}), 1.0)
    assert not rates.observe(class_row({0: 10}), 0.0)
    assert rates.observations(0) == 0
    assert rates.spread_ratio(0) == 0.0


def test_parts_of_chunks_add_up() -> None:
    """A class with a quarter of each chunk is a quarter of an observation in each."""
    # All at 1 us; class 3 has 1,000 of 4,000 units. The first chunks share by the priors.
    true = np.full(16, 1e-6)
    rates = sized({3: 1_000, 6: 3_000}, true, count=40)
    before = rates.observations(3), rates.observations(6)
    show(rates, {3: 1_000, 6: 3_000}, true)
    added = rates.observations(3) - before[0], rates.observations(6) - before[1]
    assert sum(added) == pytest.approx(1.0)
    assert rates.in_force @ class_row({3: 1_000, 6: 3_000}) == pytest.approx(0.004)


def test_in_a_chunk_of_many_small_parts_the_largest_learns() -> None:
    """Twelve classes of a twelfth each are all under a tenth; none would ever be known."""
    rates = Rates(Quantity.SECONDS)
    prior = prior_per_unit(Quantity.SECONDS)
    units = {c: int(1e6 / prior[c]) for c in range(4, 16)}
    for _ in range(200):
        show(rates, units, 0.1 * prior)
    assert rates.estimate @ class_row(units) == pytest.approx(12 * 1e5, rel=0.25)


def test_a_class_that_is_charged_far_too_much_is_observed() -> None:
    """Pings at a five-hundredth of their prior, hardly a share of the truth, come to be known."""
    rates = Rates(Quantity.SECONDS)
    chunk = {0: 100, 5: 20_000}
    for _ in range(30):
        show(rates, chunk)
    assert rates.established()[[0, 5]].all()
    assert rates.in_force @ class_row(chunk) == pytest.approx(TRUE @ class_row(chunk), rel=0.02)


def test_little_evidence_is_not_believed_below_all_other() -> None:
    """A class that is never a tenth of a chunk is charged the least of the well-known rates."""
    rates = Rates(Quantity.SECONDS)
    for _ in range(40):
        show(rates, {0: 300, 3: 2_000, 7: 1_000_000})
    assert rates.estimate[3] >= rates.estimate[[0, 7]].min()
    row = class_row({0: 300, 3: 2_000, 7: 1_000_000})
    assert rates.estimate @ row == pytest.approx(TRUE @ row, rel=0.1)


def test_one_outlier_moves_nothing() -> None:
    """A pause of the collector, fifty times a chunk, sets no budget."""
    rates = sized({0: 1_000})
    assert not show(rates, {0: 1_000}, 50 * TRUE)
    assert rates.in_force[0] == pytest.approx(2e-6)


def test_two_outliers_together_are_no_failed_prediction() -> None:
    """The median of 1, 1, 10, 10 would be 5.5."""
    rates = sized({0: 1_000})
    assert not show(rates, {0: 1_000}, 10 * TRUE)
    assert not show(rates, {0: 1_000}, 10 * TRUE)
    assert not show(rates, {0: 1_000})
    assert rates.in_force[0] == pytest.approx(2e-6)


def test_ten_times_slower_is_right_after_three_chunks() -> None:
    """The third chunk of one side is the proof: everything known is corrected at once."""
    rates = sized(FIVE_CLASSES)
    failed = [show(rates, FIVE_CLASSES, 10 * TRUE) for _ in range(3)]
    assert failed == [False, False, True]
    row = class_row(FIVE_CLASSES)
    assert rates.in_force @ row == pytest.approx(10 * TRUE @ row, rel=0.01)


def test_ten_times_faster_is_held_up() -> None:
    """After n observations since the fall began at most to 1/n: by half per doubling."""
    rates = sized({0: 1_000})
    # Two chunks are outliers; the third begins the fall, and is the first since.
    assert [show(rates, {0: 1_000}, TRUE / 10) for _ in range(3)] == [False, False, True]
    for since in range(1, 13):
        assert rates.in_force[0] == pytest.approx(max(2e-6 / since, 2e-7))
        assert rates.held_up()[0] == (since < 10)
        assert rates.estimate[0] == pytest.approx(2e-7)
        show(rates, {0: 1_000}, TRUE / 10)


def test_a_long_quiet_time_does_not_shorten_the_ramp() -> None:
    """The fall is counted from where it began, not from the last rise, however long ago."""
    rates = sized({0: 1_000}, count=1_000)
    for _ in range(4):
        show(rates, {0: 1_000}, TRUE / 10)
    assert rates.in_force[0] == pytest.approx(2e-6 / 2)


def test_before_the_first_sizing_nothing_is_held_up() -> None:
    """What the warm-up has corrected is in force at once."""
    rates = Rates(Quantity.SECONDS)
    for _ in range(8):
        show(rates, {0: 1_000}, 10 * TRUE)
    for _ in range(3):
        show(rates, {0: 1_000})
    assert rates.in_force[0] == pytest.approx(2e-6)
    assert not rates.held_up().any()


def test_a_first_figure_replaces_its_prior_without_a_ramp() -> None:
    """A prior is no rate that has fallen."""
    rates = sized({6: 10_000})
    for _ in range(LEAST_OBSERVATIONS):
        show(rates, {0: 1_000})
    assert rates.in_force[0] == pytest.approx(2e-6)


def test_a_change_of_one_class_is_noticed_by_its_own_chunks() -> None:
    """Between chunks of others, three of a class's last four settle it; the others stay."""
    rates = sized({4: 1_000})
    for _ in range(20):
        show(rates, {6: 1_000})
    dear = np.where(np.arange(16) == 6, 5 * TRUE, TRUE)
    for _ in range(3):
        show(rates, {6: 1_000}, dear)
        show(rates, {4: 1_000}, dear)
        show(rates, {4: 1_000}, dear)
    assert rates.in_force[6] == pytest.approx(1e-5)
    assert rates.in_force[4] == pytest.approx(2e-6)


def test_what_was_not_seen_since_the_change_takes_the_common_factor() -> None:
    """Coastlines of an hour ago are ten times dearer too, until one says otherwise."""
    rates = sized({7: 50_000})
    for _ in range(8):
        show(rates, {0: 1_000})
    for _ in range(3):
        show(rates, {0: 1_000}, 10 * TRUE)
    assert rates.in_force[[0, 7]] == pytest.approx([2e-5, 2e-5])
    show(rates, {7: 50_000})
    assert rates.estimate[7] == pytest.approx(2e-6)


def test_a_common_fall_is_held_up_for_what_was_not_seen() -> None:
    """Cheaper pings do not make coastlines cheaper: none has come since."""
    rates = sized({7: 50_000})
    for _ in range(8):
        show(rates, {0: 1_000})
    for _ in range(50):
        show(rates, {0: 1_000}, TRUE / 10)
    assert rates.in_force[0] == pytest.approx(2e-7)
    assert rates.in_force[7] == pytest.approx(2e-6)


def test_a_rare_class_keeps_its_chunks() -> None:
    """Forgetting goes by a class's own work: a thousand chunks of pings take nothing from it."""
    rates = sized({7: 50_000})
    for _ in range(1_000):
        show(rates, {0: 1_000})
    assert rates.in_force[7] == pytest.approx(2e-6)
    assert rates.observations(7) == CHUNKS_REMEMBERED


def test_bytes_take_an_upper_figure() -> None:
    """Nine chunks of ten fit under it: one in twenty at half as much again does not count."""
    for every, figure in ((20, 100.0), (5, 150.0)):
        rates = Rates(Quantity.BYTES)
        for number in range(44):
            rates.observe(class_row({3: 1_000}), 150_000 if number % every == 0 else 100_000)
        assert rates.in_force[3] == pytest.approx(figure)


def test_bytes_rise_with_the_first_chunk() -> None:
    """The same vertices with 25 times the bytes: that is charged at once, and published."""
    rates = Rates(Quantity.BYTES)
    for _ in range(20):
        assert not rates.observe(class_row({3: 1_000}), 100_000)
    rates.end_exemption()
    assert rates.observe(class_row({3: 1_000}), 2_500_000)
    assert rates.in_force[3] == pytest.approx(2_500.0)
    assert not rates.observe(class_row({3: 1_000}), 2_500_000)


def test_spread_is_relative_to_the_median() -> None:
    """Chunks of 1, 2, 3, ... 11 times 100 bytes a unit: (10 - 2) / 6, and none when all are alike."""
    rates = Rates(Quantity.BYTES)
    for amount in range(1, 12):
        rates.observe(class_row({3: 100}), 10_000.0 * amount)
    assert rates.spread_ratio(3) == pytest.approx(8 / 6)
    assert sized({0: 1_000}).spread_ratio(0) == pytest.approx(0.0)


chunks = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 8), st.integers(1, 10_000), min_size=1, max_size=4),
        st.floats(1e-6, 10.0),
    ),
    max_size=60,
)


@given(chunks, chunks, st.sampled_from(Quantity))
def test_rates_rise_at_once_and_fall_by_half_at_most(
    first: list[tuple[dict[int, int], float]],
    then: list[tuple[dict[int, int], float]],
    quantity: Quantity,
) -> None:
    """What charges is never below the estimate, and one chunk never takes more than half of it."""
    rates = Rates(quantity)
    for units, amount in first:
        rates.observe(class_row(units), amount)
        assert (rates.in_force == rates.estimate).all()
    rates.end_exemption()
    for units, amount in then:
        known, before = rates.established(), rates.in_force.copy()
        rates.observe(class_row(units), amount)
        assert (rates.in_force >= rates.estimate).all()
        assert (rates.in_force <= np.maximum(before, rates.estimate) * (1 + 1e-12))[known].all()
        assert (rates.in_force >= 0.5 * before * (1 - 1e-12))[known].all()
        assert np.isfinite(rates.in_force).all()
        assert (rates.in_force > 0).all()


def test_before_the_first_chunk_the_prior_is_the_estimate() -> None:
    """And nothing is held up."""
    rates = Rates(Quantity.SECONDS)
    assert rates.estimate.tolist() == prior_per_unit(Quantity.SECONDS).tolist()
    assert not rates.held_up().any()


def test_spread_is_of_rates_and_needs_four_chunks() -> None:
    """Chunks of 1, 2, 3, 4 times 100 bytes a unit: (3.7 - 1.3) / 2.5; of three nobody can tell."""
    rates = Rates(Quantity.BYTES)
    for amount in (1, 2, 3):
        rates.observe(class_row({3: 100}), 10_000.0 * amount)
    assert rates.spread_ratio(3) == 0.0
    rates.observe(class_row({3: 100}), 40_000.0)
    assert rates.spread_ratio(3) == pytest.approx(2.4 / 2.5)
    # Larger chunks at the same rate are no spread.
    even = Rates(Quantity.BYTES)
    for units in (100, 200, 300, 400):
        even.observe(class_row({3: units}), 100.0 * units)
    assert even.spread_ratio(3) == pytest.approx(0.0)


def test_the_fifth_chunk_may_contradict_the_first_four() -> None:
    """Before a class is known, nothing that it does is a failed prediction; from then on it is."""
    for chunks, failed in ((3, False), (4, True)):
        rates = Rates(Quantity.BYTES)
        for _ in range(chunks):
            rates.observe(class_row({3: 1_000}), 100_000)
        rates.end_exemption()
        assert rates.observe(class_row({3: 1_000}), 2_500_000) is failed


def test_two_classes_of_equal_parts_are_both_what_a_chunk_is_about() -> None:
    """Half of 400 bytes a unit is true of both, and both are lowered."""
    rates = Rates(Quantity.BYTES)
    for _ in range(8):
        rates.observe(class_row({3: 100, 5: 100}), 40_000)
    assert rates.in_force[[3, 5]].tolist() == [200.0, 200.0]


def test_a_small_part_of_a_chunk_is_raised_with_it() -> None:
    """Half as much again as the prior: 600 bytes a unit, also for the class of a tenth."""
    rates = Rates(Quantity.BYTES)
    for _ in range(50):
        rates.observe(class_row({3: 110, 5: 890}), 600_000)
    assert rates.in_force[[3, 5]] == pytest.approx([600.0, 600.0])


def test_a_small_part_of_a_chunk_is_not_lowered_with_it() -> None:
    """Class 5 takes half as much as it did: that says nothing of a fifth that travels with it."""
    rates = Rates(Quantity.BYTES)
    for _ in range(6):
        rates.observe(class_row({3: 1_000}), 100_000)
        rates.observe(class_row({5: 1_000}), 100_000)
    for _ in range(40):
        rates.observe(class_row({3: 200, 5: 800}), 200 * 100 + 800 * 60)
    assert rates.in_force[3] == 100.0
    assert rates.in_force[5] == pytest.approx(60.0)


def test_a_class_on_little_evidence_is_charged_a_tenth_of_its_chunks() -> None:
    """Where the prior of one class was far too high, its figure sinks below what it may well be."""
    # 500 units at 2 us are 1 ms, a tenth of it 100 us for 100 units: 1 us each. Chunks cannot tell
    # the two apart, and by the priors alone class 0 would have less than a twelfth.
    rates = Rates(Quantity.SECONDS)
    for _ in range(30):
        show(rates, {0: 100, 3: 400})
    assert rates.estimate[0] == pytest.approx(1e-6)
    assert 2e-6 < rates.estimate[3] < 2.5e-6
    # Ten times dearer: its own figure, ten times what it was, is more than a tenth of the last four
    # chunks, 0.1 * (1 + 3 * 10) ms / 400 = 7.75 us, and is believed.
    for _ in range(3):
        show(rates, {0: 100, 3: 400}, 10 * TRUE)
    assert 7.75e-6 < rates.estimate[0] < 9e-6


def test_the_common_factor_is_the_middle_of_the_last_four() -> None:
    """Chunks at 1, 8, 10 and 12 times: what was not seen takes (8 + 10) / 2, the others their own."""
    rates = sized({7: 50_000})
    for _ in range(10):
        show(rates, {4: 1_000})
        show(rates, {0: 1_000})
    # Two chunks of class 6 are too few to be known, and too many to be under their own figure.
    dear = 20 * prior_per_unit(Quantity.SECONDS)
    show(rates, {6: 1}, dear)
    show(rates, {6: 1}, dear)
    show(rates, {0: 1_000})
    assert [show(rates, {4: 1_000}, factor * TRUE) for factor in (8, 12, 10)] == [
        False,
        False,
        True,
    ]
    assert rates.in_force[[0, 4, 7]] == pytest.approx([2e-6, 2e-5, 1.8e-5])
    assert rates.in_force[6] == pytest.approx(dear[6])


def test_all_classes_of_the_last_four_chunks_learn_anew() -> None:
    """Ratios of 1, 8, 10, 12 spread by (11.4 - 3.1) / 9, also in the class of a fifth."""
    rates = sized({0: 8_000, 3: 2_000}, count=40)
    for factor in (8, 12, 10):
        show(rates, {0: 8_000, 3: 2_000}, factor * TRUE)
    assert rates.spread_ratio(0) == pytest.approx(8.3 / 9)
    assert rates.spread_ratio(3) == pytest.approx(8.3 / 9)


@pytest.mark.parametrize("other_is_known", [False, True])
def test_a_change_is_noticed_beside_a_class_that_did_not_change(other_is_known: bool) -> None:
    """The third dear chunk of a class has a part of another, new or known: it counts all the same."""
    rates = sized({4: 1_000})
    for _ in range(20):
        show(rates, {6: 1_000})
        if other_is_known:
            show(rates, {0: 1_000})
    dear = np.where(np.arange(16) == 6, 5 * TRUE, TRUE)
    for chunk in ({6: 1_000}, {6: 1_000}, {0: 300 if other_is_known else 1, 6: 1_000}):
        for _ in range(2):
            show(rates, {4: 1_000})
        show(rates, chunk, dear)
    assert rates.in_force[6] > 4 * 2e-6
    show(rates, {6: 1_000}, dear)
    assert rates.in_force[6] == pytest.approx(1e-5, rel=0.1)
