"""The lag in records and in seconds, by hand-computed figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer.telemetry.lag import Lag, lag_seconds
from tests.snapshots import SNAPSHOT

#: what the snapshot for tests has assigned
FIRST, SECOND = ("pings", 0), ("pings", 1)


def test_lag_is_the_end_of_the_log_less_what_is_done() -> None:
    """A partition whose end is not known has no figure; one that was taken away has none left."""
    picture = replace(SNAPSHOT, assigned=(FIRST, SECOND), committed_end={FIRST: 60, SECOND: 7})
    lag = Lag()
    lag.note({FIRST: 100})
    assert lag.messages(picture) == {FIRST: 40}
    lag.note({SECOND: 7})
    assert lag.messages(picture) == {FIRST: 40, SECOND: 0}
    gone = replace(picture, assigned=(SECOND,), committed_end={SECOND: 7})
    assert lag.messages(gone) == {SECOND: 0}
    assert lag.messages(picture) == {SECOND: 0}


def test_seconds_go_by_the_mix_and_the_rate_of_the_last_sizing() -> None:
    """10 records of 50 vertices each, at 100 vertices a second: 5 s; 0 before there is a size."""
    sizing = SNAPSHOT.sizing
    assert sizing is not None
    sizing = replace(
        sizing,
        vertices_per_second=100.0,
        sample=replace(sizing.sample, messages=4, vertices=200),
    )
    assert lag_seconds(replace(SNAPSHOT, sizing=sizing), 10) == pytest.approx(5.0)
    assert lag_seconds(replace(SNAPSHOT, sizing=None), 10) == 0.0
