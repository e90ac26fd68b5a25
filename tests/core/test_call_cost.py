"""What one call of the handler costs beside its records."""

from __future__ import annotations

import pytest

from consumer.core.measuring.call_cost import CallCost


def call_of(residual_seconds: float, chunks: int = 9) -> CallCost:
    """Learnt from small chunks, each 10 ms of records and a residual."""
    cost = CallCost(chunk_seconds=0.06, most_chunk_seconds=1.5)
    for _ in range(chunks):
        cost.observe(0.010 + residual_seconds, 0.010)
    return cost


def test_it_is_the_median_residual_of_small_chunks() -> None:
    """One pause of the collector, and one chunk that was lucky, do not move it."""
    cost = call_of(0.050)
    cost.observe(3.0, 0.010)
    cost.observe(0.010, 0.010)
    assert cost.seconds == pytest.approx(0.050)


def test_a_chunk_of_half_its_target_says_nothing_of_calls() -> None:
    """30 ms of 60: what is over there is the records' doing."""
    cost = CallCost(0.06, 1.5)
    cost.observe(0.500, 0.030)
    assert cost.seconds == 0.0
    cost.observe(0.500, 0.0299)
    assert cost.seconds == pytest.approx(0.4701)


def test_a_call_is_never_a_gain() -> None:
    """Chunks cheaper than predicted are a matter of rates."""
    assert call_of(-0.005).seconds == 0.0


def test_chunks_grow_to_three_calls_and_no_further_than_allowed() -> None:
    """50 ms a call: 150 ms of records; 10 s a call: the most there may be."""
    assert call_of(0.001).chunk_seconds == 0.06
    assert call_of(0.050).chunk_seconds == pytest.approx(0.150)
    assert call_of(10.0).chunk_seconds == 1.5


def test_what_a_call_hides_is_not_learnt_from() -> None:
    """Records predicted under half a call: 24 ms of 50."""
    cost = call_of(0.050)
    assert cost.hides(0.024)
    assert not cost.hides(0.026)


def test_a_full_chunk_pays_for_its_call_and_a_small_one_does_not() -> None:
    """Of chunks of 150 ms, a third full misses two thirds of the call; at least a fifth stays."""
    cost = call_of(0.050)
    assert cost.net(0.200, 0.150) == pytest.approx(0.200)
    assert cost.net(0.100, 0.050) == pytest.approx(0.100 - 2 / 3 * 0.050)
    assert cost.net(0.040, 0.0) == pytest.approx(0.008)
