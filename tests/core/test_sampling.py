"""Windows of traffic: what a sample adds up to, and which part of it is recent."""

from __future__ import annotations

import numpy as np
import pytest

from consumer.core.config import Ordering
from consumer.core.ledger.columns import Columns, FetchedRun, Partition
from consumer.core.ledger.in_flight import PartitionState, Run
from consumer.core.ledger.ledger import Ledger
from consumer.core.ledger.pieces import Pieces, pending_run
from consumer.core.measuring.sampling import RECENT_RECORDS, Sampling
from consumer.core.measuring.window import Window
from sizing.load import RECORDS, VERTICES
from sizing.model import CostModel

TOWN, VILLAGE = ("town", 0), ("village", 3)
#: 1 ms and 100 bytes a unit
MODEL = CostModel(np.full(16, 1e-3), np.full(16, 100.0))


class Traffic:
    """Runs that are admitted one after another; keys are hashes."""

    def __init__(self, ordering: Ordering = Ordering.KEY) -> None:
        self.ordering = ordering
        self.ledger = Ledger(2, 0.06)
        self.ledger.use_model(MODEL)
        self.pieces = Pieces(self.ledger)
        self.states: dict[Partition, PartitionState] = {}
        self.fetches = 0

    def run(
        self, vertices: list[int], keys: list[int], partition: Partition = TOWN, first: int = 0
    ) -> Run:
        """Admit records of so many vertices, in little text."""
        state = self.states.setdefault(partition, PartitionState(partition, epoch=1))
        count = len(vertices)
        columns = Columns(
            [b"."] * count,
            None,
            np.arange(first, first + count),
            np.zeros(count, dtype=np.int64),
            np.array(vertices),
            np.full(count, 64),
        )
        self.fetches += 1
        fetched = FetchedRun(partition, columns, np.array(keys))
        self.pieces.queue(
            state,
            pending_run(fetched, sequence=self.fetches, shard_count=16, ordering=self.ordering),
        )
        return self.pieces.admit(state, count)


def test_a_window_counts_what_it_is_given() -> None:
    """Two runs of one partition and one of another: sums, first and last offsets, times."""
    traffic, window = Traffic(), Window()
    window.add(traffic.run([10, 20], [1, 2], first=5), MODEL, 1_000.0)
    window.add(traffic.run([30], [1], first=9), MODEL, 1_001.0)
    window.add(traffic.run([40], [1], VILLAGE, first=70), MODEL, 1_002.0)
    assert window.messages == 4
    assert int(window.load[VERTICES]) == 100
    assert window.offsets == {TOWN: (5, 9), VILLAGE: (70, 70)}
    assert (window.first_wall, window.last_wall) == (1_000.0, 1_002.0)


def test_the_largest_chain_is_one_of_one_partition() -> None:
    """Key 1 of the town has 40 of 100 ms; the village's records of key 1 are another chain."""
    traffic, window = Traffic(), Window()
    window.add(traffic.run([10, 20, 30], [1, 2, 1]), MODEL, 0.0)
    window.add(traffic.run([40], [1], VILLAGE), MODEL, 0.0)
    assert window.largest_chain_ratio(MODEL) == pytest.approx(0.4)


def test_records_without_order_are_no_chain() -> None:
    """Nothing has to wait for anything: the largest chain is nothing."""
    traffic, window = Traffic(Ordering.UNORDERED), Window()
    window.add(traffic.run([10, 20], [1, 1]), MODEL, 0.0)
    assert window.largest_chain_ratio(MODEL) == 0.0
    assert Window().largest_chain_ratio(MODEL) == 0.0


def test_the_heaviest_of_each_class_is_kept() -> None:
    """A light record stands for the largest of its class, 15 units; heavy ones for themselves."""
    traffic, window = Traffic(), Window()
    window.add(traffic.run([10, 700, 300], [1, 2, 3]), MODEL, 0.0)
    assert window.heaviest_units == {1: 15, 4: 700}
    window.add(traffic.run([500], [1]), MODEL, 0.0)
    assert window.heaviest_units == {1: 15, 4: 700}


def test_windows_are_joined_in_the_order_of_time() -> None:
    """Sums of both, the first times of the earlier, the last of the later; nothing adds nothing."""
    traffic, earlier, later = Traffic(), Window(), Window()
    earlier.add(traffic.run([10], [1], first=5), MODEL, 1_000.0)
    later.add(traffic.run([20], [1], first=6), MODEL, 1_001.0)
    later.add(traffic.run([30], [1], VILLAGE, first=7), MODEL, 1_002.0)
    joined = Window()
    for part in (Window(), earlier, Window(), later):
        joined.add_window(part)
    assert joined.messages == 3
    assert joined.offsets == {TOWN: (5, 6), VILLAGE: (7, 7)}
    assert (joined.first_wall, joined.last_wall) == (1_000.0, 1_002.0)
    assert joined.largest_chain_ratio(MODEL) == pytest.approx(0.5)


def test_few_dear_records_make_a_mean_uncertain() -> None:
    """Sizes within a class add 12 %: of 100 alike the mean errs by sqrt(1.12 / 100)."""
    traffic, window = Traffic(), Window()
    window.add(traffic.run([10] * 100, list(range(100))), MODEL, 0.0)
    assert window.relative_error(MODEL) == pytest.approx(np.sqrt(1.12 / 100))
    # One of 1,000 beside them: 1,000 of 2,000 ms rest on one record, 1,000 on a hundred.
    window.add(traffic.run([1_000], [1]), MODEL, 0.0)
    error = np.sqrt(1.12 * (1_000**2 / 1 + 1_000**2 / 100)) / 2_000
    assert window.relative_error(MODEL) == pytest.approx(error)
    assert Window().relative_error(MODEL) == 1.0


def test_a_window_knows_its_classes() -> None:
    """Records of 10 units are of class 1."""
    traffic, window = Traffic(), Window()
    window.add(traffic.run([10], [1]), MODEL, 0.0)
    classes = np.zeros(16, dtype=bool)
    classes[2] = True
    assert not window.holds_any_of(classes)
    classes[1] = True
    assert window.holds_any_of(classes)


def recorded(sampling: Sampling, traffic: Traffic, records: int, now: float) -> None:
    sampling.admitted(traffic.run([10] * records, [1] * records), MODEL, now, 1_000.0 + now)


def test_the_recent_part_is_a_second_and_some_hundred_records() -> None:
    """A half is full with both; then the half before it is no longer recent."""
    sampling, traffic = Sampling(), Traffic()
    recorded(sampling, traffic, RECENT_RECORDS, 0.0)
    recorded(sampling, traffic, 1, 0.9)
    assert sampling.recent().messages == RECENT_RECORDS + 1
    recorded(sampling, traffic, 1, 1.0)
    assert sampling.recent().messages == RECENT_RECORDS + 2
    recorded(sampling, traffic, 100, 5.0)
    recorded(sampling, traffic, 100, 6.5)
    # Two seconds and 200 records: long enough, and too few.
    assert sampling.recent().messages == RECENT_RECORDS + 202
    recorded(sampling, traffic, RECENT_RECORDS, 7.0)
    assert sampling.recent().messages == RECENT_RECORDS + 200
    assert sampling.whole().messages == 2 * RECENT_RECORDS + 202


def test_a_sizing_is_of_something_that_came() -> None:
    """The recent part if there is one, else everything, else what the last sizing was of."""
    sampling, traffic = Sampling(), Traffic()
    assert sampling.to_size(only_recent=True) is sampling.sized
    recorded(sampling, traffic, 3, 0.0)
    assert sampling.to_size(only_recent=True).messages == 3
    assert sampling.to_size(only_recent=False).messages == 3
    sampling.sized = sampling.whole()
    sampling.begin(keep_newest=False)
    assert sampling.whole().messages == 0
    assert sampling.to_size(only_recent=False).messages == 3


def test_after_a_sizing_of_the_recent_part_its_newer_half_counts_on() -> None:
    """What came last belongs to the next sizing as well."""
    sampling, traffic = Sampling(), Traffic()
    recorded(sampling, traffic, RECENT_RECORDS, 0.0)
    recorded(sampling, traffic, 1, 1.0)
    recorded(sampling, traffic, 7, 2.0)
    sampling.begin(keep_newest=True)
    assert int(sampling.whole().load[RECORDS]) == 7
