"""What ``--mix`` may say, and how a day changes it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from consumer.errors import ConfigError
from consumer.traffic.mix import BUSY_HOUR, DEFAULT_MIX_TEXT, KINDS, Day, parse_mix


def test_shares_are_made_to_sum_to_one():
    """People write percentages, counts or fractions."""
    assert parse_mix("pings=90, lines=10").shares == {"pings": 0.9, "lines": 0.1}
    assert parse_mix("lines=1,").shares == {"lines": 1.0}


def test_parcels_are_polygons():
    """Both words mean the same kind."""
    assert parse_mix("parcels=1").shares == {"polygons": 1.0}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "no kind has a share"),
        ("pings=0", "no kind has a share"),
        ("ships=1", "'ships' is no kind"),
        ("pings", "'pings' is not kind=share"),
        ("pings=x", "'x' is no share"),
        ("pings=-1", "'-1' is no share"),
        ("pings=nan", "'nan' is no share"),
        ("pings=inf", "'inf' is no share"),
        ("pings=1,pings=2", "pings is there twice"),
        ("polygons=1,parcels=2", "polygons is there twice"),
    ],
)
def test_a_wrong_mix_is_told_with_what_is_allowed(text, wrong):
    """The message has the value, what is wrong with it, and every kind."""
    with pytest.raises(ConfigError) as caught:
        parse_mix(text)

    assert wrong in str(caught.value)
    assert all(kind in str(caught.value) for kind in KINDS)


@given(at=st.floats(0, 10**6), seconds=st.floats(1, 10**5))
def test_a_day_keeps_shares_and_rates_in_bounds(at, seconds):
    """Shares always sum to one; the rate stays between 0.4 and 1.6 of the mean."""
    day, mix = Day(seconds), parse_mix(DEFAULT_MIX_TEXT)

    assert sum(day.mix(mix, at).shares.values()) == pytest.approx(1.0)
    assert 0.4 - 1e-9 <= day.rate_factor(at) <= 1.6 + 1e-9
    assert 0 <= day.hour(at) < 24


def test_the_night_is_pings_and_the_busy_hour_is_not():
    """The day's rhythm moves the rate and the mix together."""
    day, mix = Day(24.0), parse_mix(DEFAULT_MIX_TEXT)

    assert day.rate_factor(2.0) == pytest.approx(0.4)
    assert day.rate_factor(BUSY_HOUR) == pytest.approx(1.6)
    night, busy = day.mix(mix, 2.0).shares, day.mix(mix, BUSY_HOUR).shares
    assert busy["coastlines"] / busy["pings"] == pytest.approx(0.03 / 0.9)
    assert night["coastlines"] / night["pings"] == pytest.approx(0.001 / 0.9)
