"""What each prefix of a fetched run would add: the figures that the door judges by."""

from __future__ import annotations

import numpy as np
import pytest

from consumer.core.admission.costs import RunCosts
from consumer.core.config import Ordering
from consumer.core.ledger.columns import FetchedRun
from consumer.core.ledger.in_flight import PartitionState
from consumer.core.ledger.ledger import Candidate, Ledger
from consumer.core.ledger.pieces import Pieces, pending_run
from sizing.load import CLASS_RECORDS, PAYLOAD_BYTES, RECORDS, VERTICES
from sizing.model import CostModel
from tests.core.building import TOWN, ledger_of, run_of


def fetched(
    ledger: Ledger, *runs: FetchedRun, ordering: Ordering = Ordering.KEY
) -> tuple[PartitionState, RunCosts]:
    """Let all runs in but the last; return the costs of that one's prefixes."""
    state, pieces = PartitionState(TOWN, epoch=1), Pieces(ledger)
    for sequence, run in enumerate(runs):
        pending = pending_run(run, sequence=sequence, shard_count=16, ordering=ordering)
        pieces.queue(state, pending)
        if run is not runs[-1]:
            pieces.admit(state, len(run.columns))
    return state, RunCosts(ledger, state, state.pending[0])


def test_a_prefix_counts_its_own_records() -> None:
    """The first two of three, of 3 and 20 vertices; all of them are counted already."""
    state, costs = fetched(ledger_of(), run_of(0, [3, 20, 400]))
    two = costs.load(2)
    assert (two[RECORDS], two[VERTICES], two[PAYLOAD_BYTES]) == (2, 23, 128)
    assert np.flatnonzero(two[CLASS_RECORDS]).tolist() == [0, 2]
    assert costs.load(3) is state.pending[0].load


def test_the_heaviest_of_a_prefix_is_charged_as_it_will_be_when_it_waits() -> None:
    """A light record stands for the largest of its class: 3 and 63 units; a heavy one for itself."""
    _, costs = fetched(ledger_of(), run_of(0, [1, 20, 400, 5]))
    assert [costs.heaviest_bytes(n) for n in (1, 2, 3, 4)] == [300.0, 6_300.0, 40_000.0, 40_000.0]
    assert [round(costs.heaviest_seconds(n), 9) for n in (1, 2, 3, 4)] == [0.003, 0.063, 0.4, 0.4]


def test_the_heaviest_in_bytes_need_not_be_the_heaviest_in_seconds() -> None:
    """Pings of 9,000 bytes a unit are heavier to hold and quicker than 250 units of 100 bytes."""
    ledger = ledger_of()
    working = np.full(16, 100.0)
    working[0] = 9_000.0
    ledger.use_model(CostModel(np.full(16, 1e-3), working))
    _, costs = fetched(ledger, run_of(0, [3, 256]))
    assert (costs.heaviest_bytes(2), costs.heaviest_seconds(2)) == (27_000.0, 0.256)


def test_each_chain_grows_by_its_own_records() -> None:
    """Key 5 takes 0.1 + 0.3 s, key 7 takes 0.2 s; nothing else is in flight."""
    _, costs = fetched(ledger_of(), run_of(0, [100, 200, 300], [5, 7, 5]))
    assert [round(costs.longest_chain_seconds(n), 9) for n in (1, 2, 3)] == [0.1, 0.2, 0.4]


def test_a_chain_goes_on_from_what_it_holds() -> None:
    """Key 7 holds 0.5 s and key 5 0.1 s: 0.3 s more make 0.5 s still the longest, 0.5 s do not."""
    _, costs = fetched(ledger_of(), run_of(0, [500, 100], [7, 5]), run_of(2, [300, 200], [5, 5]))
    assert [round(costs.longest_chain_seconds(n), 9) for n in (1, 2)] == [0.5, 0.6]


def test_a_chain_that_gets_nothing_more_counts_as_it_is() -> None:
    """Key 3 is not in the run, and is longer than key 5 with its 0.3 s."""
    _, costs = fetched(ledger_of(), run_of(0, [400], [3]), run_of(1, [300], [5]))
    assert costs.longest_chain_seconds(1) == pytest.approx(0.4)


def test_another_partitions_chain_may_be_the_longest() -> None:
    """The same key elsewhere is another chain, and what it holds is not added."""
    ledger = ledger_of()
    fetched(ledger, run_of(0, [400], [5]), run_of(1, [1], [5]))
    _, costs = fetched(ledger, run_of(0, [300, 200], [5, 5]))
    assert [round(costs.longest_chain_seconds(n), 9) for n in (1, 2)] == [0.4, 0.5]


def test_records_without_order_are_in_no_chain() -> None:
    """Any process may take them; what is in flight stays the longest."""
    _, costs = fetched(ledger_of(), run_of(0, [400], [3]), run_of(1, [900, 900]))
    assert costs.longest_chain_seconds(2) == pytest.approx(0.4)


def test_records_without_a_key_are_in_no_chain_beside_others_that_are() -> None:
    """Of 0.9, 0.2, 0.9 and 0.3 s those without a key make no chain longer."""
    run = run_of(0, [900, 200, 900, 300], [0, 5, 0, 5])
    run.null_keys = np.array([True, False, True, False])
    _, costs = fetched(ledger_of(), run_of(10, [100], [3]), run)
    assert [round(costs.longest_chain_seconds(n), 9) for n in (1, 2, 3, 4)] == [0.1, 0.2, 0.2, 0.5]


@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_prefix_is_judged_by_the_very_charge_that_follows(ordering: Ordering, count: int) -> None:
    """Of what is in flight and the prefix; afterwards the same sums say the same."""
    ledger = ledger_of()
    state, costs = fetched(
        ledger,
        run_of(0, [30, 500, 7], [1, 2, 1]),
        run_of(3, [60, 2_000, 3, 800, 5], [1, 2, 3, 2, 1]),
        ordering=ordering,
    )
    load = costs.load(count)
    before = ledger.value(
        Candidate(
            load,
            pending_bytes=ledger.pending_cost(load),
            heaviest_bytes=costs.heaviest_bytes(count),
            heaviest_seconds=costs.heaviest_seconds(count),
            longest_chain_seconds=costs.longest_chain_seconds(count),
        )
    )
    Pieces(ledger).admit(state, count)
    after = ledger.value()
    assert before.held.tolist() == after.held.tolist()
    for figure in ("held_bytes", "room_bytes", "seconds", "longest_chain_seconds"):
        assert getattr(before, figure) == pytest.approx(getattr(after, figure))
    assert before.effective_processes == pytest.approx(after.effective_processes)
