"""How long to wait before another attempt."""

from __future__ import annotations

import pytest

from consumer.core.backoff import backoff_seconds


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 16.0), (7, 30.0), (8, 30.0)],
)
def test_the_wait_doubles_up_to_the_limit(failures: int, expected: float) -> None:
    """Half a second doubled five times is 16 s; doubled six times it would be 32, over the limit."""
    assert backoff_seconds(failures, 0.5, 30.0) == expected


def test_a_first_wait_above_the_limit_is_the_limit() -> None:
    """No wait is longer than the limit, the first one included."""
    assert backoff_seconds(1, 5.0, 2.0) == 2.0


@pytest.mark.parametrize("failures", [1_025, 1_000_000, 10**30])
def test_any_number_of_failures_has_a_wait(failures: int) -> None:
    """A topic that refuses for days is tried again and again; 2.0 ** 1024 would be no number."""
    assert backoff_seconds(failures, 0.5, 30.0) == 30.0
    assert backoff_seconds(failures, 0.0, 30.0) == 0.0
