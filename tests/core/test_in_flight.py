"""What may be committed, and which chain may go."""

from __future__ import annotations

import pytest

from consumer.core.config import Ordering
from consumer.core.ledger.in_flight import FREE_SHARD, Chain, PartitionState
from consumer.core.ledger.pieces import Pieces, pending_run
from tests.core.building import TOWN, costs, ledger_of, run_of


class Desk:
    """One partition of which runs are fetched, let in and finished."""

    def __init__(self) -> None:
        self.pieces = Pieces(ledger_of())
        self.state = PartitionState(TOWN, epoch=1)

    def fetch(self, first_offset: int, keys: list[int]) -> None:
        run = run_of(first_offset, [1] * len(keys), keys)
        self.pieces.queue(
            self.state, pending_run(run, sequence=1, shard_count=16, ordering=Ordering.KEY)
        )

    def admit(self, first_offset: int, keys: list[int]) -> None:
        self.fetch(first_offset, keys)
        self.pieces.admit(self.state, len(keys))

    def finish(self, key: int) -> None:
        piece = self.pieces.take(self.state.chains[key])
        self.pieces.enter([piece])
        self.pieces.settle_chunk([piece], piece.load)


# -- the committed end ----------------------------------------------------------------------------


def test_nothing_may_be_committed_before_anything_was_read() -> None:
    """There is no offset to say."""
    assert PartitionState(TOWN, epoch=1).committed_end() is None


def test_the_lowest_unfinished_record_of_the_oldest_run_is_the_committed_end() -> None:
    """What is finished above it, in its run or a later one, is committed with it."""
    desk = Desk()
    desk.admit(10, [1, 2, 1])
    desk.admit(13, [2, 3])
    desk.finish(2)
    desk.finish(2)
    desk.finish(3)
    blocking = desk.state.blocking_piece()
    assert blocking is not None
    assert blocking.columns.offsets.tolist() == [10, 12]
    assert (desk.state.committed_end(), desk.state.settled_above) == (10, 3)
    desk.finish(1)
    assert desk.state.blocking_piece() is None
    assert (desk.state.committed_end(), desk.state.settled_above) == (15, 0)


def test_the_lowest_is_by_offset_whatever_the_order_of_the_pieces() -> None:
    """Key 3 comes first in the run, key 1 in the order of shards."""
    desk = Desk()
    desk.admit(10, [3, 1])
    assert desk.state.committed_end() == 10
    desk.finish(3)
    assert desk.state.committed_end() == 11


def test_what_was_fetched_and_not_let_in_is_not_done() -> None:
    """Everything below it is."""
    desk = Desk()
    desk.admit(10, [1, 2])
    desk.fetch(12, [1, 1])
    desk.finish(1)
    desk.finish(2)
    assert desk.state.committed_end() == 12


def test_a_position_above_the_last_record_may_be_committed() -> None:
    """Markers of transactions take offsets, and bring no record."""
    desk = Desk()
    desk.state.position = 40
    assert desk.state.committed_end() == 40


def test_nothing_from_what_was_let_go_on_may_be_committed() -> None:
    """The next owner reads it again, however much above it is done."""
    desk = Desk()
    desk.state.position = 40
    desk.state.note_let_go(30)
    assert desk.state.committed_end() == 30
    desk.state.note_let_go(35)
    assert desk.state.committed_end() == 30
    desk.state.note_let_go(20)
    assert desk.state.committed_end() == 20
    desk.state.position = 12
    assert desk.state.committed_end() == 12


# -- chains ---------------------------------------------------------------------------------------


def chain_of(desk: Desk) -> Chain:
    desk.admit(10, [5, 5])
    return desk.state.chains[5]


def test_a_chain_goes_when_something_of_it_waits() -> None:
    """And not when nothing does."""
    desk = Desk()
    chain = chain_of(desk)
    assert chain.ready
    desk.finish(5)
    assert not chain.ready


def test_an_ordered_chain_does_not_go_while_it_is_inside_a_process() -> None:
    """One without order does."""
    desk = Desk()
    chain = chain_of(desk)
    chain.inside = 1
    assert not chain.ready
    chain.row = -1
    assert chain.ready


def test_a_chain_does_not_go_while_it_waits_for_a_retry() -> None:
    """Its time has to come first."""
    chain = chain_of(Desk())
    chain.retry_at = 5.0
    assert not chain.ready


def test_an_ordered_chain_waits_for_its_older_epoch() -> None:
    """The same shard is inside a process still, from before the partition came back."""
    desk = Desk()
    chain = chain_of(desk)
    desk.state.blocked_shards = {4}
    assert chain.ready
    desk.state.blocked_shards = {5}
    assert not chain.ready
    chain.row = -1
    assert chain.ready


def test_a_chain_without_order_has_no_row() -> None:
    """Records without a key."""
    assert not Chain(PartitionState(TOWN, epoch=1), shard=FREE_SHARD, row=-1).ordered
    assert Chain(PartitionState(TOWN, epoch=1), shard=0, row=0).ordered


# -- pieces ---------------------------------------------------------------------------------------


def test_a_piece_is_valued_by_the_model_in_force() -> None:
    """And once by each: what it cost is kept until the rates change."""
    desk = Desk()
    desk.admit(10, [5, 5])
    (piece,) = desk.state.chains[5].pieces
    assert len(piece) == 2
    assert (piece.seconds, piece.working_bytes) == (0.002, 200.0)
    model = costs(1.0, 7.0)
    piece.value(model)
    assert (piece.seconds, piece.working_bytes) == (2.0, 14.0)
    piece.seconds = 99.0
    piece.value(model)
    assert piece.seconds == 99.0
    piece.value(costs(0.5, 7.0))
    assert piece.seconds == pytest.approx(1.0)
