"""The sizing in one line."""

from __future__ import annotations

from dataclasses import replace

from sizing.report import SampleWindow
from tests.snapshots import SIZING


def test_the_line_says_why_how_much_what_binds_and_of_what() -> None:
    """Reason, budget, both bounds, and the sample with its offsets."""
    assert SIZING.line() == (
        "sized (warm-up): budget 2,100,000 vertices / 4,200 messages, the deadline binds"
        " (memory 9,000,000, deadline 2,100,000); sample 2,000 messages, 1,000,000 vertices"
        " of parcels[0] 10-1009, parcels[1] 5-1004"
    )


def test_the_line_says_memory_when_memory_binds() -> None:
    """The other of the two, in words that read."""
    assert "messages, memory binds (memory" in replace(SIZING, binding="memory").line()


def test_a_line_of_many_partitions_stays_a_line() -> None:
    """Four partitions are named and the others counted; none is nothing to say."""
    windows = tuple(SampleWindow("t", n, 0, 9) for n in range(30))
    line = replace(SIZING, sample=replace(SIZING.sample, windows=windows)).line()
    assert line.endswith("of t[0] 0-9, t[1] 0-9, t[2] 0-9, t[3] 0-9 and 26 more")
    line = replace(SIZING, sample=replace(SIZING.sample, windows=())).line()
    assert line.endswith("1,000,000 vertices")


def test_each_bound_has_names_of_its_own_in_plain_data() -> None:
    """What a page or a script reads: no list of bounds to search."""
    data = SIZING.as_data()
    assert data["memory_bound_vertices"] == 9_000_000
    assert data["memory_bound_messages"] == 18_000
    assert data["deadline_bound_vertices"] == 2_100_000
    assert data["deadline_bound_messages"] == 4_200
    assert "bounds" not in data
    assert data["sample"]["windows"][0]["topic"] == "parcels"
