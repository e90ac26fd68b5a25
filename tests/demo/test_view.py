"""The view says in words and numbers what the worker says of itself."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from consumer.core.reasons import SizingReason
from consumer.demo.account import Account
from consumer.demo.broker import Place
from consumer.demo.feed import Feed
from consumer.demo.scenario import phases
from consumer.demo.summary import summary
from consumer.demo.view import Plain, Scene, drawn
from consumer.demo.watch import Picture, Sizing, Watch
from consumer.telemetry.explanations import explained
from tests.snapshots import SNAPSHOT

SCENE = Scene("http://127.0.0.1:9464", 160 << 20, real_kafka=False)
SIZINGS = [
    Sizing(
        2.0, "warm-up", 40_000, 39_000, "memory", "none", {"memory": 40_000, "deadline": 190_000}
    ),
    Sizing(
        12.5,
        "mix-drift",
        67_000,
        250,
        "deadline",
        "deadline",
        {"memory": 275_000, "deadline": 67_000},
    ),
]


@pytest.fixture
def feed() -> Feed:
    return Feed(Place("127.0.0.1:1", 1_000), phases(giants=False), 20.0, 1)


@pytest.fixture
def watch() -> Watch:
    watch = Watch(1, os.getpid())
    watch._take(explained(SNAPSHOT))
    watch.sizings = list(SIZINGS)
    return watch


def text_of(renderable, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 96])
def test_both_bounds_and_what_binds_are_there_in_a_usual_terminal(watch, feed, width):
    """Nothing that matters is cut off in 80 columns."""
    text = text_of(drawn(SCENE, "traffic", watch, feed, width), width)

    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    for bound, vertices in SNAPSHOT.bound_vertices.items():
        (line,) = (line for line in lines if f"{bound} bound" in line)
        assert f"{vertices:,}" in line
        assert f"{SNAPSHOT.used_ratio[bound]:.0%}" in line
        assert ("◀ binds" in line) == (SNAPSHOT.binding == bound)
    assert f"{SNAPSHOT.budget_vertices:,}" in text
    assert SNAPSHOT.state in text
    assert "night: buses and lorries" in text
    assert "127.0.0.1:9464/metrics" in text
    assert "67,000  deadline  the traffic has another mix" in text


def test_before_the_first_answer_it_says_that_it_starts(feed):
    """No number is shown that has not been measured."""
    text = text_of(drawn(SCENE, "starting", Watch(1, os.getpid()), feed, 96), 96)

    assert "starting the worker" in text
    assert text.count("unmeasured") == 2
    assert "◀ binds" not in text


def test_lines_for_a_log_say_each_sizing_once(watch, feed):
    """A pipe gets lines, each sizing once, each phase once."""
    out = io.StringIO()
    console = Console(file=out, width=60)
    view = Plain(console, SCENE)

    for _ in range(3):
        view.show("traffic", watch, feed)

    text = out.getvalue()
    assert text.count("--- night") == 1
    assert text.count(f"sized: {SizingReason.MIX_DRIFT.headline}") == 1
    assert text.count("produced, ") == 1


@pytest.mark.parametrize(
    ("account", "words"),
    [
        (Account(produced=9, handled=9), ["9 were handled; none was lost, none twice"]),
        (Account(produced=9, handled=7, lost=2), ["2 were lost"]),
        (Account(produced=9, handled=9, duplicates=3), ["3 were handled twice"]),
        (Account(produced=9, handled=5, unfinished=4), ["4 were not handled in time"]),
        (Account(produced=9, handled=9, uncommitted=1), ["1 are not committed"]),
    ],
)
def test_the_summary_says_what_became_of_the_records(watch, account, words):
    """In words, good or bad."""
    out = io.StringIO()
    console = Console(file=out, width=60)

    summary(console, SCENE, watch, account, worker_code=0, interrupted=False)

    text = out.getvalue()
    assert all(word in text for word in words)
    assert "Both bounds had their turn" in text
    assert "left its group in order" in text


def test_a_partition_that_goes_is_an_eviction_and_a_drain_is_none(watch):
    """Partitions that are given back before leaving were not taken away."""
    watch.picture = Picture(partitions=5)
    said = explained(SNAPSHOT)
    kept = len(said["partitions"])
    watch._take(said | {"state": "draining"})
    assert watch.evictions == 0
    watch.picture = Picture(partitions=kept + 2)
    watch._take(said | {"state": "running"})
    assert watch.evictions == 2
