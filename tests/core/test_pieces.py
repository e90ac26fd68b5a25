"""What each operation on pieces, chains and runs does to charges, queues and offsets.

A record of n vertices has n units; a unit costs a millisecond and 100 working bytes. Each record
has 64 payload bytes, so 264 are held for it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from consumer.core.config import Ordering
from consumer.core.ledger.columns import Columns, FetchedRun
from consumer.core.ledger.in_flight import FREE_SHARD, Chain, PartitionState, Piece, PieceState, Run
from consumer.core.ledger.ledger import Ledger
from consumer.core.ledger.pieces import Pieces, pending_run
from sizing.model import CostModel

CORE = Path(__file__).parents[2] / "consumer" / "core"
TOWN = ("town", 0)
#: 64 of payload and 200 for its objects
HELD = 264
SHARDS = 16


class Desk:
    """One partition, its ledger and the operations."""

    def __init__(self, ordering: Ordering = Ordering.KEY) -> None:
        self.ordering = ordering
        self.ledger = Ledger(2, 0.06)
        self.ledger.use_model(CostModel(np.full(16, 1e-3), np.full(16, 100.0)))
        self.pieces = Pieces(self.ledger)
        self.state = PartitionState(TOWN, epoch=1)
        self.fetches = 0

    def fetch(self, first_offset: int, vertices: Sequence[int], keys: Sequence[int]) -> None:
        """Queue records with these vertices and key hashes; a hash below 16 is its own shard."""
        count = len(vertices)
        names = [b"%d" % key for key in keys]
        columns = Columns(
            values=[b"v"] * count,
            keys=names,
            offsets=np.arange(first_offset, first_offset + count),
            timestamps_ms=np.zeros(count, dtype=np.int64),
            vertices=np.array(vertices),
            payload_bytes=np.full(count, 64),
        )
        self.fetches += 1
        fetched = FetchedRun(TOWN, columns, key_hashes=np.array(keys))
        run = pending_run(
            fetched, sequence=self.fetches, shard_count=SHARDS, ordering=self.ordering
        )
        self.pieces.queue(self.state, run)

    def admit(self, first_offset: int, vertices: Sequence[int], keys: Sequence[int]) -> Run:
        """Fetch records and admit all of them."""
        self.fetch(first_offset, vertices, keys)
        return self.pieces.admit(self.state, len(vertices))

    def enter(self, *chains: Chain) -> list[Piece]:
        """Send the first piece of each of these chains into a process, as one chunk."""
        taken = [self.pieces.take(chain) for chain in chains]
        self.pieces.enter(taken)
        return taken

    def chain(self, shard: int) -> Chain:
        """Return the chain of a shard."""
        return self.state.chains[shard]

    def records(self) -> dict[str, int]:
        """Return the charged records by state; states without any are left out."""
        self.check()
        return {state: counts[0] for state, counts in self.ledger.counts().items() if counts[0]}

    def seconds(self, shard: int) -> float:
        """Return the seconds in the chain table's row of a shard."""
        return round(float(self.ledger.chains.seconds[self.chain(shard).row]), 9)

    def check(self) -> None:
        """What is charged is what the runs say is unfinished, and queues agree with states."""
        totals = np.zeros_like(self.ledger.totals)
        for run in self.state.runs:
            assert run.unfinished or run is not self.state.runs[0]
            for piece in run.unfinished:
                totals[piece.state] += piece.load
        assert np.array_equal(totals, self.ledger.totals)
        for chain in self.state.chains.values():
            waits = PieceState.WAITING if chain.retry_at is None else PieceState.RETRYING
            assert all(piece.state is waits for piece in chain.pieces)


def offsets(pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the offsets of each piece."""
    return [piece.columns.offsets.tolist() for piece in pieces]


# -- fetched and admitted -------------------------------------------------------------------------


def test_a_run_has_one_piece_for_each_chain() -> None:
    """Keys that share a shard share a piece; all are charged as waiting, and none as pending."""
    desk = Desk()
    desk.fetch(10, [1, 2, 3], [5, 7, 5])
    assert desk.ledger.pending_bytes == 3 * HELD
    run = desk.pieces.admit(desk.state, 3)
    assert offsets(list(run.unfinished)) == [[10, 12], [11]]
    assert desk.records() == {"waiting": 3}
    assert desk.ledger.pending_bytes == 0
    # 1 + 3 vertices, and 2.
    assert (desk.seconds(5), desk.seconds(7)) == (0.004, 0.002)
    assert desk.state.position == 13
    assert desk.state.committed_end() == 10


def test_a_run_of_one_chain_is_one_piece() -> None:
    """Where all records have one key nothing is sorted, copied or counted again."""
    desk = Desk()
    run = desk.admit(10, [1, 2], [5, 5])
    (piece,) = run.unfinished
    assert piece.load is run.load
    assert desk.records() == {"waiting": 2}


@pytest.mark.parametrize(
    ("ordering", "shards"),
    [(Ordering.KEY, [5, 7]), (Ordering.PARTITION, [0]), (Ordering.UNORDERED, [FREE_SHARD])],
)
def test_the_ordering_says_which_records_are_a_chain(ordering: Ordering, shards: list[int]) -> None:
    """By shard of the key, all of the partition, or records without any order."""
    desk = Desk(ordering)
    desk.admit(10, [1, 2], [5, 7])
    assert sorted(desk.state.chains) == shards


def test_a_prefix_is_admitted_and_the_rest_stays_pending() -> None:
    """What does not fit waits as the oldest that was fetched, and counts as pending."""
    desk = Desk()
    desk.fetch(10, [1, 300, 3, 4, 5], [1, 1, 1, 1, 1])
    run = desk.pieces.admit(desk.state, 2)
    assert (run.first_offset, run.last_offset, run.heavy_units) == (10, 11, {4: 300})
    assert desk.records() == {"waiting": 2}
    assert desk.ledger.pending_bytes == 3 * HELD
    (rest,) = desk.state.pending
    assert rest.fetched.columns.offsets.tolist() == [12, 13, 14]
    assert rest.heavy_units == {}
    desk.pieces.admit(desk.state, 3)
    assert desk.records() == {"waiting": 5}
    assert desk.ledger.pending_bytes == 0


def test_what_was_fetched_and_is_let_go_is_not_committed() -> None:
    """The next owner reads it: the position is above it, the committed end is not."""
    desk = Desk()
    desk.fetch(10, [1, 2], [5, 7])
    desk.fetch(12, [3], [5])
    desk.pieces.drop_pending(desk.state)
    assert desk.ledger.pending_bytes == 0
    assert desk.state.position == 13
    assert desk.state.committed_end() == 10


# -- into a process -------------------------------------------------------------------------------


def test_a_split_keeps_the_sums() -> None:
    """Both parts are charged as the piece was, and take its place in order."""
    desk = Desk()
    run = desk.admit(10, [1, 2, 3], [5, 5, 5])
    desk.admit(13, [4], [5])
    desk.pieces.split(desk.chain(5).pieces[0], 1)
    assert offsets(desk.chain(5).pieces) == [[10], [11, 12], [13]]
    assert sorted(offsets(list(run.unfinished))) == [[10], [11, 12]]
    assert desk.records() == {"waiting": 4}
    assert desk.seconds(5) == 0.010


def test_a_split_of_all_changes_nothing() -> None:
    """A piece that fits as a whole is not made again."""
    desk = Desk()
    run = desk.admit(10, [1, 2], [5, 5])
    (piece,) = run.unfinished
    desk.pieces.split(piece, 2)
    assert list(run.unfinished) == [piece]
    assert desk.records() == {"waiting": 2}


def test_the_heaviest_that_waits_follows_a_split() -> None:
    """Once the larger of two heavy records is inside, the smaller one is the heaviest."""
    desk = Desk()
    desk.admit(10, [500, 300], [5, 5])
    heaviest = desk.ledger.heaviest_waiting
    assert heaviest.units(4) == 500
    desk.pieces.split(desk.chain(5).pieces[0], 1)
    assert heaviest.units(4) == 500
    desk.enter(desk.chain(5))
    assert heaviest.units(4) == 300
    # 300 units at 100 bytes and a millisecond.
    assert heaviest.heaviest(desk.ledger.waiting, desk.ledger.model) == (30_000.0, 0.3)


def test_a_chunk_moves_its_charge_inside() -> None:
    """The chain keeps its seconds, and none of it may go until the piece is back."""
    desk = Desk()
    desk.admit(10, [1, 2], [5, 7])
    desk.admit(12, [3], [5])
    desk.pieces.pass_over(desk.chain(5), 1.0)
    (taken,) = desk.enter(desk.chain(5))
    assert taken.state is PieceState.INSIDE
    assert desk.records() == {"waiting": 2, "inside": 1}
    assert desk.seconds(5) == 0.004
    assert (desk.chain(5).inside, desk.chain(5).ready) == (1, False)
    assert desk.chain(5).passed_over_since is None
    assert desk.chain(7).ready


def test_what_comes_back_undone_keeps_its_order() -> None:
    """Of two pieces of a chain the last is put back first, and both are before what waited."""
    desk = Desk()
    for offset in (10, 11, 12):
        desk.admit(offset, [1], [5])
    first, second = desk.enter(desk.chain(5), desk.chain(5))
    for piece in (second, first):
        desk.pieces.leave(piece)
        desk.pieces.count_attempt(piece)
        desk.pieces.isolate(piece)
        desk.pieces.put_back(piece)
    assert offsets(desk.chain(5).pieces) == [[10], [11], [12]]
    assert desk.records() == {"waiting": 3}
    assert desk.chain(5).inside == 0
    assert (first.attempts, first.alone, first.short_of_memory) == (1, True, False)


# -- going again ----------------------------------------------------------------------------------


def test_parts_replace_a_piece() -> None:
    """Each part is charged in its state; together they are unfinished as the piece was."""
    desk = Desk()
    run = desk.admit(10, [1, 2, 3, 4], [5, 5, 5, 5])
    (piece,) = desk.enter(desk.chain(5))
    desk.pieces.leave(piece)
    retrying, delivering, done = desk.pieces.replace(
        piece,
        [
            ([1], PieceState.RETRYING),
            ([3], PieceState.UNACKNOWLEDGED),
            ([0, 2], PieceState.INSIDE),
        ],
    )
    assert offsets([retrying, delivering, done]) == [[11], [13], [10, 12]]
    assert list(run.unfinished) == [retrying, delivering, done]
    assert piece.state is PieceState.SETTLED
    assert desk.records() == {"retrying": 1, "unacknowledged": 1, "inside": 2}
    # Only what is inside counts for the chain: 1 + 3 vertices.
    assert desk.seconds(5) == 0.004


def test_a_retry_keeps_held_bytes_and_releases_seconds() -> None:
    """The whole chain waits with it, and counts as no work until it may go again."""
    desk = Desk()
    desk.admit(10, [1, 2], [5, 5])
    desk.admit(12, [3], [5])
    (piece,) = desk.enter(desk.chain(5))
    desk.pieces.leave(piece)
    (part,) = desk.pieces.replace(piece, [([0, 1], PieceState.RETRYING)])
    chain = desk.pieces.retry(part, 7.5)
    assert (chain is desk.chain(5), chain.retry_at, chain.ready) == (True, 7.5, False)
    assert offsets(chain.pieces) == [[10, 11], [12]]
    assert desk.records() == {"retrying": 3}
    assert desk.seconds(5) == 0.0
    assert desk.ledger.held_bytes() == 3 * HELD

    desk.admit(13, [4], [5])
    assert desk.records() == {"retrying": 4}
    assert desk.seconds(5) == 0.0

    desk.pieces.wake(chain)
    assert (chain.retry_at, chain.ready) == (None, True)
    assert offsets(chain.pieces) == [[10, 11], [12], [13]]
    assert desk.records() == {"waiting": 4}
    assert desk.seconds(5) == 0.010


def test_a_chain_waits_for_the_later_of_two_retries() -> None:
    """The later record asked for less time; it is behind the earlier one all the same."""
    desk = Desk()
    desk.admit(10, [1, 2], [5, 5])
    (piece,) = desk.enter(desk.chain(5))
    desk.pieces.leave(piece)
    earlier, later = desk.pieces.replace(
        piece, [([0], PieceState.RETRYING), ([1], PieceState.RETRYING)]
    )
    desk.pieces.retry(later, 2.0)
    assert desk.pieces.retry(earlier, 3.0).retry_at == 3.0
    assert offsets(desk.chain(5).pieces) == [[10], [11]]
    assert desk.records() == {"retrying": 2}


def test_a_retry_without_order_waits_in_a_chain_of_its_own() -> None:
    """Nothing waits with it, and the chain is gone when it is done."""
    desk = Desk(Ordering.UNORDERED)
    desk.admit(10, [1, 2], [5, 5])
    desk.admit(12, [3], [5])
    free = desk.chain(FREE_SHARD)
    (piece,) = desk.enter(free)
    desk.pieces.leave(piece)
    part, done = desk.pieces.replace(piece, [([0], PieceState.RETRYING), ([1], PieceState.INSIDE)])
    lone = desk.pieces.retry(part, 2.0)
    desk.pieces.settle(done)
    assert (lone is free, lone.ordered, part.chain is lone) == (False, False, True)
    assert (free.ready, free.retry_at, lone.retry_at) == (True, None, 2.0)
    assert desk.records() == {"waiting": 1, "retrying": 1}
    desk.pieces.wake(lone)
    desk.pieces.settle_chunk(desk.enter(lone), part.load)
    desk.pieces.close(lone)
    assert list(desk.state.chains) == [FREE_SHARD]
    assert desk.records() == {"waiting": 1}


def test_attempts_go_with_every_part() -> None:
    """A record that is split off has been tried as often, and is tried alone as well."""
    desk = Desk()
    desk.admit(10, [1, 2], [5, 5])
    (piece,) = desk.enter(desk.chain(5))
    desk.pieces.leave(piece)
    desk.pieces.count_attempt(piece)
    desk.pieces.isolate(piece, short_of_memory=True)
    desk.pieces.put_back(piece)
    desk.pieces.split(piece, 1)
    assert [(p.attempts, p.alone, p.short_of_memory) for p in desk.chain(5).pieces] == [
        (1, True, True)
    ] * 2


# -- deliveries -----------------------------------------------------------------------------------


def test_a_piece_waits_for_all_that_was_produced_for_it() -> None:
    """Two outputs of 100 and 50 bytes: the piece can be settled with the answer to the last."""
    desk = Desk()
    desk.admit(10, [1], [5])
    (piece,) = desk.enter(desk.chain(5))
    desk.pieces.leave(piece)
    desk.pieces.wait_for_broker(piece)
    desk.pieces.expect_delivery(piece, 100)
    desk.pieces.expect_delivery(piece, 50)
    assert desk.records() == {"unacknowledged": 1}
    assert desk.seconds(5) == 0.0
    assert desk.ledger.held_bytes() == HELD + 150
    assert not desk.pieces.end_delivery(piece, 100)
    assert desk.pieces.end_delivery(piece, 50)
    assert desk.ledger.held_bytes() == HELD
    assert desk.pieces.settle(piece) == 1
    assert desk.state.committed_end() == 11


def test_an_answer_for_a_piece_that_was_let_go_settles_nothing() -> None:
    """Its epoch has ended: what comes back only frees its bytes."""
    desk = Desk()
    desk.admit(10, [1], [5])
    (piece,) = desk.enter(desk.chain(5))
    desk.pieces.leave(piece)
    desk.pieces.wait_for_broker(piece)
    desk.pieces.expect_delivery(piece, 100)
    desk.state.fenced = True
    desk.pieces.let_go(desk.state)
    assert desk.records() == {}
    assert desk.ledger.held_bytes() == 100
    assert not desk.pieces.end_delivery(piece, 100)
    assert desk.ledger.held_bytes() == 0


# -- ends -----------------------------------------------------------------------------------------


def test_the_committed_end_moves_when_all_below_is_settled() -> None:
    """What is done above a gap is counted, and committed with what fills the gap."""
    desk = Desk()
    desk.admit(10, [1, 2, 3], [5, 7, 7])
    desk.admit(13, [4], [7])
    low, high = desk.enter(desk.chain(5), desk.chain(7))
    desk.pieces.leave(high)
    assert desk.pieces.settle(high) == 2 + 3
    state = desk.state
    assert (state.committed_end(), state.settled_above, state.highest_finished) == (10, 2, 12)
    blocking = state.blocking_piece()
    assert blocking is low
    desk.pieces.leave(low)
    assert desk.pieces.settle(low) == 1
    assert (state.committed_end(), state.settled_above, state.highest_finished) == (13, 0, 12)
    assert len(state.runs) == 1
    assert desk.records() == {"waiting": 1}


def test_a_chunk_is_settled_as_its_pieces_would_be() -> None:
    """One change of the sums for all of them; two pieces of one chain count twice for it."""
    desk = Desk()
    desk.admit(10, [1, 2], [5, 7])
    desk.admit(12, [3], [5])
    desk.admit(13, [4], [5])
    taken = [desk.pieces.take(chain) for chain in (desk.chain(5), desk.chain(5), desk.chain(7))]
    load = desk.pieces.enter(taken)
    assert desk.pieces.settle_chunk(taken, load) == 1 + 3 + 2
    assert desk.records() == {"waiting": 1}
    assert desk.state.committed_end() == 13
    assert (desk.seconds(5), desk.chain(5).inside, desk.chain(5).ready) == (0.004, 0, True)
    assert (desk.seconds(7), desk.chain(7).inside, desk.chain(7).ready) == (0.0, 0, False)


def test_what_waits_above_an_offset_is_let_go() -> None:
    """A piece across the offset is cut; nothing from the first that was let go is committed."""
    desk = Desk()
    desk.admit(10, [1, 2, 3, 4], [5, 7, 5, 7])
    desk.admit(14, [5], [9])
    desk.pieces.let_go_above(desk.state, 11)
    assert offsets(desk.chain(5).pieces) == [[10]]
    assert offsets(desk.chain(7).pieces) == [[11]]
    assert sorted(desk.state.chains) == [5, 7]
    assert desk.state.let_go_from == 12
    assert desk.records() == {"waiting": 2}
    taken = desk.enter(desk.chain(5), desk.chain(7))
    desk.pieces.settle_chunk(taken, taken[0].load + taken[1].load)
    assert desk.state.committed_end() == 12
    assert not desk.state.runs


def test_what_waits_for_a_retry_is_let_go_as_well() -> None:
    """A part that is kept still waits for its retry; a chain of which nothing is kept is gone."""
    desk = Desk()
    desk.admit(10, [1, 2, 3], [5, 5, 7])
    for piece in desk.enter(desk.chain(5), desk.chain(7)):
        desk.pieces.leave(piece)
        everything = list(range(len(piece)))
        (part,) = desk.pieces.replace(piece, [(everything, PieceState.RETRYING)])
        desk.pieces.retry(part, 2.0)
    gone = desk.chain(7)
    desk.pieces.let_go_above(desk.state, 10)
    assert desk.records() == {"retrying": 1}
    assert (desk.chain(5).retry_at, gone.retry_at) == (2.0, None)
    assert list(desk.state.chains) == [5]


def test_a_fenced_partition_keeps_only_what_is_inside() -> None:
    """What comes back later moves no offset, and lets the next epoch's chain go."""
    desk = Desk()
    desk.admit(10, [1, 2, 3], [5, 7, 5])
    (inside,) = desk.enter(desk.chain(5))
    chain = desk.chain(5)
    desk.state.fenced = True
    desk.state.blocked_shards = {5}
    desk.pieces.let_go(desk.state)
    assert list(desk.state.chains) == [5]
    assert not desk.state.runs
    assert desk.ledger.counts()["inside"] == (2, 4, 128)
    assert desk.ledger.counts()["waiting"] == (0, 0, 0)
    assert desk.state.let_go_from == 11
    desk.pieces.leave(inside)
    assert desk.pieces.settle(inside) == 0
    desk.pieces.close(chain)
    assert desk.records() == {}
    assert desk.state.blocked_shards == set()
    assert desk.state.highest_finished == -1
    assert not desk.state.chains


def test_a_chain_that_holds_something_stays() -> None:
    """Closing gives the row back, and does nothing while a piece waits or is inside."""
    desk = Desk()
    desk.admit(10, [1], [5])
    chain = desk.chain(5)
    row = chain.row
    desk.pieces.close(chain)
    (piece,) = desk.enter(chain)
    desk.pieces.close(chain)
    assert desk.chain(5) is chain
    desk.pieces.settle_chunk([piece], piece.load)
    desk.pieces.close(chain)
    assert not desk.state.chains
    # The row is the next one that is given.
    desk.admit(11, [1], [7])
    assert desk.chain(7).row == row


# -- one owner ------------------------------------------------------------------------------------

CHANGES = ("add", "append", "appendleft", "clear", "discard", "extend", "pop", "popleft", "remove")


def changed_by(node: ast.AST) -> list[ast.AST]:
    """Return what a statement or call sets, deletes, or changes in place."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return list(targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case ast.Call(func=ast.Attribute(attr=name) as method) if name in CHANGES:
            return [method]
        case _:
            return []


def writes(path: Path, names: set[str], containers: set[str]) -> list[str]:
    """Return where a module sets such an attribute of another object, or changes such a container."""
    places = []
    for node in ast.walk(ast.parse(path.read_text())):
        for changed in changed_by(node):
            match changed:
                case ast.Attribute(value=ast.Name("self")):
                    continue
                case ast.Attribute(attr=name) if name in names:
                    pass
                case (
                    ast.Attribute(value=ast.Attribute(attr=name))
                    | ast.Subscript(value=ast.Attribute(attr=name))
                ) if name in containers:
                    pass
                case _:
                    continue
            places.append(f"{path.name}: {ast.unparse(changed)}")
    return places


def test_only_one_module_writes_pieces_chains_and_runs() -> None:
    """Every field of theirs, and every queue of them, is changed in ``pieces`` alone."""
    names = {each.name for kind in (Piece, Chain, Run) for each in fields(kind)}
    containers = {"unfinished", "pieces", "runs", "pending"}
    others = [path for path in sorted(CORE.rglob("*.py")) if path.name != "pieces.py"]
    assert [place for path in others for place in writes(path, names, containers)] == []
    assert len(writes(CORE / "ledger" / "pieces.py", names, containers)) > 20


def test_only_the_ledger_sets_its_fields() -> None:
    """Whoever learns something that it values with tells it by a method."""
    names = set(vars(Ledger(1, 0.06)))
    others = [path for path in sorted(CORE.rglob("*.py")) if path.name != "ledger.py"]
    assert [place for path in others for place in writes(path, names, set())] == []
