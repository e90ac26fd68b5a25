"""Why one partition alone is paused: its longest chain, its retries, or what it cannot commit.

The deadline is 15 s unless a test says otherwise: a chain may hold 7.5 s.
"""

from __future__ import annotations

import pytest

from consumer.core.admission.own_pauses import RETRYING_RECORDS, find_own_reasons
from consumer.core.config import Ordering
from consumer.core.ledger.in_flight import Chain, PartitionState, PieceState
from consumer.core.ledger.pieces import Pieces, pending_run
from consumer.core.reasons import PauseReason
from tests.core.building import HELD, TOWN, ledger_of, run_of


class Partition:
    """One partition, and what it is paused for."""

    def __init__(self, *, available_bytes: int = 100_000_000) -> None:
        self.ledger = ledger_of(available_bytes=available_bytes)
        self.pieces = Pieces(self.ledger)
        self.state = PartitionState(TOWN, epoch=1)
        self.next_offset = 0

    def hold(
        self, seconds: float, key: int | None = 5, *, records: int = 1, payload_bytes: int = 64
    ) -> None:
        """Let records of one key in that take so long together."""
        vertices = [round(1_000 * seconds / records)] * records
        keys = None if key is None else [key] * records
        run = run_of(self.next_offset, vertices, keys, payload_bytes=payload_bytes)
        pending = pending_run(run, sequence=1, shard_count=16, ordering=Ordering.KEY)
        self.next_offset += records
        self.pieces.queue(self.state, pending)
        self.pieces.admit(self.state, records)

    def finish(self, key: int) -> None:
        """Have the first piece of a key done."""
        piece = self.pieces.take(self.state.chains[key])
        self.pieces.enter([piece])
        self.pieces.settle_chunk([piece], piece.load)

    def retry(self, key: int) -> Chain:
        """Have the first piece of a key wait for a retry."""
        piece = self.pieces.take(self.state.chains[key])
        self.pieces.enter([piece])
        self.pieces.leave(piece)
        (part,) = self.pieces.replace(piece, [(list(range(len(piece))), PieceState.RETRYING)])
        return self.pieces.retry(part, 9.0)

    def reasons(
        self, deadline_seconds: float | None = 15.0, most_uncommitted: int = 100
    ) -> dict[PauseReason, str]:
        find_own_reasons(self.state, self.ledger, deadline_seconds, most_uncommitted)
        return dict(self.state.own_pauses)


# -- one chain ------------------------------------------------------------------------------------


def test_one_chain_may_fill_half_of_the_deadline() -> None:
    """7.5 of 15 s are let in; with 0.1 s more its partition is paused, and says so."""
    town = Partition()
    town.hold(7.5)
    assert town.reasons() == {}
    town.hold(0.1)
    assert town.reasons() == {
        PauseReason.ORDERING: "one chain of town[0] holds 7.6 s of work; half of what may be in"
        " flight (15.0 s) is the most for one chain"
    }


def test_it_is_one_chain_and_not_the_partition_that_may() -> None:
    """Two keys of 5 s, or 60 s without any order, are not one after another."""
    town = Partition()
    town.hold(5.0, key=5)
    town.hold(5.0, key=6)
    town.hold(60.0, key=None)
    assert town.reasons() == {}


@pytest.mark.parametrize(
    ("deadline_seconds", "paused_above", "goes_on_at"),
    [
        # A quarter of the deadline, where the way down is longer than 6.5 s anyway.
        (40.0, 20.0, 10.0),
        # 6.5 s below where it was paused: it is paused at most ten times a minute.
        (16.0, 8.0, 1.5),
        # But never less than a second, so that its process does not run dry ...
        (15.0, 7.5, 1.0),
        # ... and never more than a quarter.
        (2.0, 1.0, 0.5),
    ],
)
def test_a_partition_goes_on_when_its_chain_has_become_short(
    deadline_seconds: float, paused_above: float, goes_on_at: float
) -> None:
    """It is paused above half of the deadline, and goes on well below it."""
    town = Partition()
    town.hold(goes_on_at - 0.005)
    town.hold(0.01)
    town.hold(paused_above - goes_on_at)
    assert PauseReason.ORDERING in town.reasons(deadline_seconds)
    town.pieces.let_go_above(town.state, 1)
    assert PauseReason.ORDERING in town.reasons(deadline_seconds)
    town.pieces.let_go_above(town.state, 0)
    assert town.reasons(deadline_seconds) == {}


def test_without_a_deadline_no_chain_is_too_long() -> None:
    """In shadow mode, and under a fixed budget; a pause that was made before ends."""
    town = Partition()
    town.hold(8.0)
    assert town.reasons(None) == {}
    assert PauseReason.ORDERING in town.reasons(15.0)
    assert town.reasons(None) == {}


# -- a chain that waits for a retry ---------------------------------------------------------------


def test_a_chain_that_waits_for_a_retry_may_hold_a_tenth_of_the_memory() -> None:
    """Ten records of 264 bytes are exactly a tenth of 26,400; with one more it is over."""
    town = Partition(available_bytes=100 * HELD)
    town.hold(0.01, records=10)
    town.retry(5)
    assert town.reasons() == {}
    town.hold(0.001)
    assert town.reasons() == {
        PauseReason.RETRY: "a chain of town[0] waits for a retry and holds all that such a chain may"
    }


def test_it_may_hold_ten_thousand_records() -> None:
    """However much memory there is."""
    town = Partition()
    town.hold(10.0, records=RETRYING_RECORDS)
    town.retry(5)
    assert town.reasons() == {}
    town.hold(0.001)
    assert list(town.reasons()) == [PauseReason.RETRY]


def test_one_of_several_chains_is_enough() -> None:
    """The others are worked on, and do not end the pause."""
    town = Partition(available_bytes=100 * HELD)
    town.hold(0.011, records=11)
    town.retry(5)
    town.hold(0.001, key=6)
    town.retry(6)
    town.hold(0.001, key=7)
    assert list(town.reasons()) == [PauseReason.RETRY]


def test_what_waits_for_its_turn_and_for_no_retry_may_hold_more() -> None:
    """That is what the memory is for."""
    town = Partition(available_bytes=100 * HELD)
    town.hold(0.02, records=20)
    assert town.reasons() == {}


def test_the_pause_ends_when_the_chain_goes_again() -> None:
    """It is work again, and counts as such."""
    town = Partition(available_bytes=100 * HELD)
    town.hold(8.0, records=20)
    chain = town.retry(5)
    # While it waits it is no seconds of work.
    assert list(town.reasons()) == [PauseReason.RETRY]
    town.pieces.wake(chain)
    assert list(town.reasons()) == [PauseReason.ORDERING]


# -- what cannot be committed ---------------------------------------------------------------------


def blocked(finished: int) -> Partition:
    """So many records are finished above offset 0, which is not."""
    town = Partition()
    town.hold(0.001, key=1)
    town.hold(0.001 * finished, key=2, records=finished)
    town.hold(0.001, key=1)
    town.finish(2)
    return town


def test_so_many_records_may_be_finished_above_one_that_is_not() -> None:
    """Ninety-nine of a hundred go on; a hundred are named with what holds them up."""
    assert blocked(99).reasons() == {}
    assert blocked(100).reasons() == {
        PauseReason.UNCOMMITTED: "100 records of town[0] are finished above offset 0, which is not"
    }


def test_the_words_group_large_numbers() -> None:
    """1,200 records."""
    assert blocked(1_200).reasons()[PauseReason.UNCOMMITTED].startswith("1,200 records of")


def test_a_pause_for_it_ends_at_half() -> None:
    """Sixty above the gap are still too many for one that was paused at a hundred; fifty are not."""
    town = blocked(100)
    town.reasons()
    town.state.settled_above = 51
    assert list(town.reasons()) == [PauseReason.UNCOMMITTED]
    town.state.settled_above = 50
    assert town.reasons() == {}
    # Not paused any more, it takes a hundred again.
    town.state.settled_above = 99
    assert town.reasons() == {}


def test_what_fills_the_gap_ends_the_pause() -> None:
    """All below is committed; nothing is left above a gap."""
    town = blocked(100)
    town.reasons()
    town.finish(1)
    assert town.reasons() == {}
