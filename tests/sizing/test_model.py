"""The cost model: what sets of records are predicted to cost, and what people are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing.classes import CLASS_COUNT
from sizing.load import CLASS_UNITS, LOAD_WIDTH, VERTICES, Load
from sizing.model import (
    LEAST_BYTES_PER_VERTEX_OF_WKB,
    CostModel,
    coefficients,
    fit_line,
    implausible_bytes_factor,
    largest_units_of_class,
    prior_model,
)
from tests.sizing.mixes import flat_model, load_of, loads, models

ALL_KNOWN = np.ones(CLASS_COUNT, dtype=np.bool_)
PRIOR = (1e-3, 400.0)


def two_rates() -> CostModel:
    """2 us and 100 bytes a unit in class 0, 1 us and 80 bytes in class 2."""
    seconds, working = np.zeros(CLASS_COUNT), np.zeros(CLASS_COUNT)
    seconds[[0, 2]] = 2e-6, 1e-6
    working[[0, 2]] = 100.0, 80.0
    return CostModel(seconds, working, 3e-6)


#: 2 pings of 3 units each, and a parcel of 40 vertices
MIX = load_of([1, 1, 40], [179, 179, 1_500])


def test_each_class_is_valued_by_its_own_rate() -> None:
    """Seconds and working bytes by class; held bytes by payload and record."""
    # 6 units * 2 us + 40 * 1 us = 52 us; 6 * 100 + 40 * 80 = 3,800 bytes decoded; raw 1,858 bytes
    # of payload and 3 * 200 beside it.
    model = two_rates()
    assert model.seconds(MIX) == pytest.approx(52e-6)
    assert model.working_bytes(MIX) == 3_800
    assert model.held_bytes(MIX) == 1_858 + 600


def test_records_of_one_class_differ_by_their_size() -> None:
    """Class 0 at 3 and 2 units, class 2 at 40: 6, 4 and 40 us; 300, 200 and 3,200 bytes."""
    units, classes = np.array([3, 2, 40]), np.array([0, 0, 2])
    model = two_rates()
    assert model.seconds_of_records(units, classes) == pytest.approx([6e-6, 4e-6, 40e-6])
    assert model.working_bytes_of_records(units, classes).tolist() == [300, 200, 3_200]


def test_the_mean_record_is_weighted_by_the_time_it_is_worked_on() -> None:
    """What a busy process holds on average."""
    # Pings: 12 us of 52 at 300 bytes each; the parcel 40 us at 3,200:
    # (12 * 300 + 40 * 3,200) / 52 = 2,530.8.
    assert two_rates().mean_working_bytes(MIX) == pytest.approx((12 * 300 + 40 * 3_200) / 52)
    assert two_rates().mean_working_bytes(np.zeros(LOAD_WIDTH, dtype=np.int64)) == 0.0


@given(models(), loads(), loads())
def test_costs_of_two_sets_add_up(model: CostModel, one: Load, other: Load) -> None:
    """The cost of both is the sum of their costs, and of rows the same as of each alone."""
    for cost in (model.seconds, model.working_bytes, model.held_bytes):
        assert cost(one + other) == pytest.approx(cost(one) + cost(other))
    by_row = model.seconds_of_rows(np.stack([one, other]))
    assert by_row == pytest.approx([model.seconds(one), model.seconds(other)])


def test_before_anything_is_measured_the_prior_holds() -> None:
    """1 ms a message and 10 us a vertex at the least size of a class; 400 bytes a vertex."""
    # A ping of 3 units: 3 * (1 ms + 10 us) = 3.03 ms, 3 * 400 bytes.
    # A polygon of 256 vertices: 1 ms + 256 * 10 us = 3.56 ms, 256 * 400 bytes.
    model = prior_model()
    assert model.seconds(load_of([1], [179])) == pytest.approx(3.03e-3)
    assert model.working_bytes(load_of([1], [179])) == 1_200
    assert model.seconds(load_of([256], [9_000])) == pytest.approx(3.56e-3)
    assert model.working_bytes(load_of([256], [9_000])) == 102_400


def test_the_largest_size_of_a_class_is_below_the_next_edge() -> None:
    """4**(c + 1) - 1."""
    assert [largest_units_of_class(c) for c in (0, 1, 5, 15)] == [3, 15, 4_095, 4**16 - 1]


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.lists(st.floats(0.1, 10), min_size=4))
def test_a_line_is_found_again(a: float, b: float, weights: list[float]) -> None:
    """Costs that are a + b * size are given back, whatever the weights."""
    size = np.array([4.0**power for power in range(len(weights) % 8 + 2)])
    cost = a + b * size
    weight = np.resize(np.array(weights), len(size))
    fitted_a, fitted_b = fit_line(size, cost, weight)
    assert fitted_a + fitted_b * size == pytest.approx(cost, rel=1e-6)


def test_no_coefficient_is_negative() -> None:
    """Costs that grow faster than size go through 0; costs that fall with size are flat."""
    two = np.array([1.0, 4.0])
    # Least squares of the relative errors of b * size: b = (1/1 + 4/10) / (1/1 + 16/100).
    a, b = fit_line(two, np.array([1.0, 10.0]), np.ones(2))
    assert a == 0.0
    assert b == pytest.approx(1.4 / 1.16)
    # And of a alone: a = (1/10 + 1/1) / (1/100 + 1/1).
    a, b = fit_line(two, np.array([10.0, 1.0]), np.ones(2))
    assert b == 0.0
    assert a == pytest.approx((1 / 10 + 1) / (1 / 100 + 1))


def test_a_varied_sample_tells_messages_from_vertices() -> None:
    """With records of four sizes, both coefficients are found."""
    # Each class costs 50 us a message and 2 us a unit, 300 bytes and 90.
    mix = load_of([1, 20, 300, 5_000], [179, 1_000, 9_000, 150_000])
    records = np.maximum(mix[CLASS_UNITS], 1)
    model = CostModel(50e-6 / records + 2e-6, 300 / records + 90.0)
    fit = coefficients(model, mix, ALL_KNOWN, PRIOR)
    assert fit.separable
    assert fit.seconds_per_message == pytest.approx(50e-6)
    assert fit.seconds_per_vertex == pytest.approx(2e-6)
    assert (fit.bytes_per_message, fit.bytes_per_vertex) == pytest.approx((300.0, 90.0))


def test_a_uniform_sample_says_that_it_cannot_tell() -> None:
    """Pings alone: the message stays at its prior, and the vertex has all that was measured."""
    fit = coefficients(flat_model(2e-6, 150.0), load_of([1] * 9, [179] * 9), ALL_KNOWN, PRIOR)
    assert not fit.separable
    assert (fit.seconds_per_message, fit.bytes_per_message) == PRIOR
    assert (fit.seconds_per_vertex, fit.bytes_per_vertex) == pytest.approx((2e-6, 150.0))


def test_classes_at_their_prior_tell_nothing() -> None:
    """Two classes, one of them measured: as uniform as one class."""
    known = np.zeros(CLASS_COUNT, dtype=np.bool_)
    known[0] = True
    fit = coefficients(two_rates(), MIX, known, PRIOR)
    assert not fit.separable
    assert fit.seconds_per_vertex == pytest.approx(2e-6)


def test_a_sample_of_nothing_is_at_its_prior() -> None:
    """No records, no figures."""
    fit = coefficients(two_rates(), np.zeros(LOAD_WIDTH, dtype=np.int64), ALL_KNOWN, PRIOR)
    assert (fit.seconds_per_message, fit.bytes_per_message, fit.separable) == (*PRIOR, False)


def test_the_naive_figure_is_refused() -> None:
    """16 bytes for two doubles and 20 held as text are under 40: the working bytes are raised."""
    # (40 - 20) / 16 = 1.25; at 20 + 20 nothing is missing.
    mix = load_of([10_000], [200_000])
    assert implausible_bytes_factor(flat_model(1e-6, 16.0), mix) == pytest.approx(1.25)
    assert implausible_bytes_factor(flat_model(1e-6, 20.0), mix) == 1.0


def test_wkb_has_a_lower_limit() -> None:
    """16 bytes held and 4 worked in: 20 of 24, so (24 - 16) / 4 = 2."""
    mix = load_of([10_000], [160_000])
    factor = implausible_bytes_factor(
        flat_model(1e-6, 4.0), mix, least_bytes_per_vertex=LEAST_BYTES_PER_VERTEX_OF_WKB
    )
    assert factor == pytest.approx(2.0)


def test_brackets_that_are_no_vertices_need_no_bytes() -> None:
    """The limit holds for exact vertices, not for what was counted too much."""
    # 1,000 brackets in 5,000 bytes: (40 * 1,000 - 5,000) / 1,000. One in ten is a vertex: it has 50.
    mix = load_of([1_000], [5_000])
    model = flat_model(1e-6, 1.0)
    assert implausible_bytes_factor(model, mix) == pytest.approx(35.0)
    assert implausible_bytes_factor(model, mix, exact_ratio=0.1) == 1.0


@given(models(), loads(), st.floats(1.0, 500.0))
def test_what_is_charged_after_a_refusal_is_plausible(
    model: CostModel, mix: Load, least: float
) -> None:
    """Held and raised working bytes together reach the least, and never less than measured."""
    factor = implausible_bytes_factor(model, mix, least_bytes_per_vertex=least)
    assert factor >= 1.0
    charged = model.held_bytes(mix) + factor * model.working_bytes(mix)
    assert charged >= least * mix[VERTICES] * (1 - 1e-9)


def test_figures_at_the_ends_are_believed_or_raised() -> None:
    """Nothing worked in has no factor; half a byte has one; more exact than counted is no more."""
    mix = load_of([10_000], [200_000])
    assert implausible_bytes_factor(flat_model(1e-6, 0.0), mix) == 1.0
    assert implausible_bytes_factor(flat_model(1e-6, 16.0), mix, exact_ratio=1.5) == 1.25
    # One vertex without text: 40 bytes are missing, and half a byte was measured.
    assert implausible_bytes_factor(flat_model(1e-6, 0.5), load_of([1], [0])) == 80.0


def test_errors_are_relative_to_the_cost_however_small() -> None:
    """Thousandths of a second are weighed as seconds are."""
    a, b = fit_line(np.array([1.0, 4.0]), np.array([1e-3, 1e-2]), np.ones(2))
    assert (a, b) == pytest.approx((0.0, 1.4e-3 / 1.16))


def test_two_classes_are_enough_to_tell_messages_from_vertices() -> None:
    """8 pings of 3 units at 56 us and 4 polygons of 300 at 650 us: 50 us, and 2 us a unit."""
    mix = load_of([1] * 8 + [300] * 4, [179] * 8 + [9_000] * 4)
    seconds, working = np.zeros(CLASS_COUNT), np.zeros(CLASS_COUNT)
    seconds[[0, 4]] = 56e-6 / 3, 650e-6 / 300
    working[[0, 4]] = 570.0 / 3, 27_300.0 / 300
    fit = coefficients(CostModel(seconds, working), mix, ALL_KNOWN, PRIOR)
    assert fit.separable
    assert (fit.seconds_per_message, fit.seconds_per_vertex) == pytest.approx((50e-6, 2e-6))
    assert (fit.bytes_per_message, fit.bytes_per_vertex) == pytest.approx((300.0, 90.0))


def test_a_sample_of_classes_at_their_prior_is_taken_together() -> None:
    """6 units at 2 us and 40 at 1 us are 52 us of 46; 3,800 bytes of 46."""
    fit = coefficients(two_rates(), MIX, ~ALL_KNOWN, PRIOR)
    assert fit.separable is False
    assert fit.seconds_per_vertex == pytest.approx(52e-6 / 46)
    assert fit.bytes_per_vertex == pytest.approx(3_800 / 46)
    nothing = coefficients(two_rates(), np.zeros(LOAD_WIDTH, dtype=np.int64), ALL_KNOWN, PRIOR)
    assert (nothing.seconds_per_vertex, nothing.bytes_per_vertex) == (0.0, 0.0)
