"""The sums of everything in flight, and what they are worth in both inequalities."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from consumer.core.config import Ordering
from consumer.core.ledger.in_flight import Chain, PartitionState, Piece, PieceState, Run
from consumer.core.ledger.ledger import (
    Candidate,
    ChainTable,
    HeaviestWaiting,
    InsideChunk,
    Ledger,
    ProcessState,
)
from consumer.core.ledger.pieces import Pieces, pending_run
from sizing.load import RECORDS, VERTICES, sum_loads, zero_load
from tests.core.building import HELD, TOWN, costs, ledger_of, run_of


def piece_of(vertices: list[int], *, row: int = -1) -> Piece:
    """A piece of a chain with this row of the chain table, valued at 1 ms a unit."""
    run = pending_run(run_of(0, vertices), sequence=1, shard_count=16, ordering=Ordering.UNORDERED)
    state = PartitionState(TOWN, epoch=1)
    piece = Piece(
        run=Run(state, 1, 0, len(vertices) - 1),
        chain=Chain(state, shard=row, row=row),
        columns=run.fetched.columns,
        units=run.units,
        classes=run.classes,
        load=run.load,
        first_offset=0,
        heavy_units=run.heavy_units,
    )
    piece.value(costs())
    return piece


def admitted(ledger: Ledger, vertices: list[int], keys: list[int] | None = None) -> list[Piece]:
    """Charge a run that waits."""
    state, pieces = PartitionState(TOWN, epoch=1), Pieces(ledger)
    run = pending_run(run_of(0, vertices, keys), sequence=1, shard_count=16, ordering=Ordering.KEY)
    pieces.queue(state, run)
    return list(pieces.admit(state, len(vertices)).unfinished)


def chunk_of(pieces: list[Piece], predicted_bytes: float) -> InsideChunk:
    load = sum_loads([piece.load for piece in pieces]) if pieces else zero_load()
    return InsideChunk(1, pieces, load, 0.1, predicted_bytes, 1.0, 1.0, heavy=False)


# -- chains ---------------------------------------------------------------------------------------


def test_the_longest_chain_is_the_largest_sum() -> None:
    """0.1 + 0.3 s of one, 0.35 s of another."""
    table = ChainTable()
    first, second = table.open(), table.open()
    assert table.longest_seconds() == 0.0
    table.add([piece_of([100], row=first), piece_of([350], row=second)])
    assert table.longest_seconds() == pytest.approx(0.35)
    table.add([piece_of([300], row=first)])
    assert table.longest_seconds() == pytest.approx(0.4)
    assert table.loads[first][RECORDS] == 2


def test_pieces_of_one_chain_are_taken_out_together() -> None:
    """A chunk may hold several of a chain: each counts."""
    table = ChainTable()
    first, second = table.open(), table.open()
    pieces = [piece_of([n], row=row) for n, row in ((10, first), (20, second), (30, first))]
    for piece in pieces:
        table.add([piece])
    table.remove(pieces)
    assert not table.loads.any()
    assert table.seconds == pytest.approx(np.zeros(64))


def test_one_piece_and_none_are_added_and_taken_out_as_several_are() -> None:
    """A chunk of records without order has none in a chain."""
    table = ChainTable()
    piece = piece_of([10], row=table.open())
    table.add([])
    table.add([piece])
    assert table.longest_seconds() == pytest.approx(0.01)
    table.remove([])
    assert table.longest_seconds() == pytest.approx(0.01)
    table.remove([piece])
    assert table.longest_seconds() == 0.0


def test_there_is_a_row_for_every_chain() -> None:
    """64 at first, twice as many when they are used up; what the rows held is kept."""
    table = ChainTable()
    rows = [table.open() for _ in range(64)]
    table.add([piece_of([70], row=rows[0])])
    rows += [table.open() for _ in range(65)]
    assert sorted(rows) == list(range(129))
    assert len(table.loads) == len(table.seconds) == 256
    assert table.longest_seconds() == pytest.approx(0.07)


def test_a_row_that_is_given_back_holds_nothing() -> None:
    """The rest of a rounding is not left to the next chain."""
    table = ChainTable()
    row = table.open()
    table.add([piece_of([70], row=row)])
    table.close(row)
    assert table.longest_seconds() == 0.0
    assert not table.loads.any()
    assert table.open() == row


# -- the heaviest that waits ----------------------------------------------------------------------


def test_the_heaviest_of_each_heavy_class_is_known() -> None:
    """Class 4 begins at 256 units, class 5 at 1,024; a class without any has 0."""
    waiting = HeaviestWaiting()
    for vertices in ([300, 700], [500, 2_000]):
        waiting.add(piece_of(vertices))
    assert [waiting.units(size_class) for size_class in (4, 5, 6)] == [700, 2_000, 0]


def test_what_waits_no_longer_is_not_the_heaviest() -> None:
    """Whichever goes first."""
    waiting = HeaviestWaiting()
    pieces = [piece_of([vertices]) for vertices in (300, 700, 500)]
    for piece in pieces:
        waiting.add(piece)
    waiting.remove(pieces[2])
    assert waiting.units(4) == 700
    waiting.remove(pieces[1])
    assert waiting.units(4) == 300
    waiting.remove(pieces[0])
    assert waiting.units(4) == 0


def test_light_records_stand_for_the_largest_of_their_class() -> None:
    """One of 5 units may be 15; in bytes and seconds each the heaviest counts."""
    waiting = HeaviestWaiting()
    heavy, light = piece_of([300]), piece_of([5])
    waiting.add(heavy)
    assert waiting.heaviest(light.load, costs()) == (1_500.0, 0.015)
    assert waiting.heaviest(light.load + heavy.load, costs()) == (30_000.0, 0.3)
    assert waiting.heaviest(zero_load(), costs()) == (0.0, 0.0)


def test_what_is_done_is_not_kept_by_the_heaviest() -> None:
    """Many come and go while a giant waits: neither their entries nor their payloads pile up."""
    waiting = HeaviestWaiting()
    waiting.add(piece_of([1_000]))
    piece = piece_of([300])
    gone = weakref.ref(piece.columns.offsets)
    waiting.add(piece)
    waiting.remove(piece)
    del piece
    gc.collect()
    assert gone() is None
    for _ in range(500):
        passing = piece_of([300])
        waiting.add(passing)
        waiting.remove(passing)
    assert waiting.units(4) == 1_000
    assert len(waiting._heaps[4]) <= 66


def test_many_that_wait_are_all_kept() -> None:
    """Only what waits no longer is dropped, however often the entries are gone through."""
    waiting = HeaviestWaiting()
    pieces = [piece_of([300 + number]) for number in range(300)]
    for piece in pieces:
        waiting.add(piece)
    for number in reversed(range(300)):
        assert waiting.units(4) == 300 + number
        waiting.remove(pieces[number])


# -- processes ------------------------------------------------------------------------------------


def test_a_process_is_charged_for_what_it_keeps_or_for_its_larger_chunk() -> None:
    """Of two chunks only one is decoded at a time, into what the allocator has kept."""
    process = ProcessState(0, baseline_bytes=50_000, resident_bytes=40_000)
    assert (process.keeps_bytes, process.inside_bytes()) == (0.0, 0.0)
    process.resident_bytes = 57_000
    assert (process.keeps_bytes, process.inside_bytes()) == (7_000.0, 7_000.0)
    process.chunks += [chunk_of([], 6_000.0), chunk_of([], 9_000.0)]
    assert process.inside_bytes() == 9_000.0
    process.resident_bytes = 60_000
    assert process.inside_bytes() == 10_000.0


def test_the_processes_together_are_idle_or_charged() -> None:
    """Nothing inside any of them; what one keeps is charged all the same."""
    ledger = ledger_of(2)
    ledger.processes[0].resident_bytes = 3_000
    assert ledger.idle_processes
    assert ledger.inside_bytes() == 3_000.0
    ledger.processes[1].chunks.append(chunk_of([], 4_000.0))
    assert not ledger.idle_processes
    assert ledger.inside_bytes() == 7_000.0


# -- charging -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "seconds", "heaviest"),
    [
        (PieceState.WAITING, 0.5, 400),
        (PieceState.INSIDE, 0.5, 0),
        (PieceState.RETRYING, 0.0, 0),
        (PieceState.UNACKNOWLEDGED, 0.0, 0),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, PieceState) else "",
)
def test_a_release_subtracts_what_was_charged(
    state: PieceState, seconds: float, heaviest: int
) -> None:
    """In its state; what waits or is inside is work of its chain, and what waits may be heaviest."""
    ledger = ledger_of()
    piece = piece_of([100, 400], row=ledger.chains.open())
    piece.state = state
    ledger.charge(piece)
    assert ledger.counts()[state.name.lower()] == (2, 500, 128)
    assert sum(records for records, _, _ in ledger.counts().values()) == 2
    assert ledger.chains.longest_seconds() == pytest.approx(seconds)
    assert ledger.heaviest_waiting.units(4) == heaviest
    assert not ledger.empty
    ledger.release(piece)
    assert ledger.empty
    assert not ledger.totals.any()
    assert ledger.chains.longest_seconds() == 0.0
    assert ledger.heaviest_waiting.units(4) == 0


def test_a_release_is_exact_though_the_rates_have_changed() -> None:
    """Counts were charged, not costs: nothing is left over, whatever the rates were."""
    ledger = ledger_of()
    pieces = admitted(ledger, [100, 33, 7], [1, 2, 3])
    ledger.use_model(costs(7.3e-5, 311.0))
    for piece in pieces:
        ledger.release(piece)
    assert not ledger.totals.any()
    assert not ledger.chains.loads.any()
    assert ledger.chains.longest_seconds() == pytest.approx(0.0, abs=1e-15)


def test_a_whole_run_is_one_change_of_the_sums() -> None:
    """With its heavy records, and each chain's part."""
    ledger = ledger_of()
    admitted(ledger, [100, 700, 300], [1, 2, 1])
    assert ledger.counts()["waiting"] == (3, 1_100, 192)
    assert ledger.chains.longest_seconds() == pytest.approx(0.7)
    assert ledger.heaviest_waiting.units(4) == 700


def test_a_whole_chunk_is_one_change_of_the_sums() -> None:
    """Inside it is heavy no more for what waits; done, nothing of it is left."""
    ledger = ledger_of()
    pieces = admitted(ledger, [100, 700, 300], [1, 2, 1])
    load = sum_loads([piece.load for piece in pieces])
    ledger.enter_process(pieces, load)
    assert ledger.counts()["waiting"] == (0, 0, 0)
    assert ledger.counts()["inside"] == (3, 1_100, 192)
    assert ledger.inside[VERTICES] == 1_100
    assert ledger.heaviest_waiting.units(4) == 0
    assert ledger.chains.longest_seconds() == pytest.approx(0.7)
    ledger.release_inside(pieces, load)
    assert ledger.empty
    assert ledger.chains.longest_seconds() == pytest.approx(0.0)


def test_records_without_order_are_no_chain() -> None:
    """They come and go without a row."""
    ledger = ledger_of()
    pieces = admitted(ledger, [100, 200])
    assert ledger.chains.longest_seconds() == 0.0
    load = sum_loads([piece.load for piece in pieces])
    ledger.enter_process(pieces, load)
    ledger.release_inside(pieces, load)
    assert not ledger.chains.loads.any()


def test_held_bytes_are_of_everything_that_the_parent_keeps() -> None:
    """Two records in flight, three fetched, and an output of 500 bytes that is not acknowledged."""
    ledger = ledger_of()
    admitted(ledger, [1, 1])
    three = piece_of([1, 1, 1]).load
    ledger.hold_pending(three)
    ledger.hold_delivery(500)
    assert (ledger.pending_bytes, ledger.delivery_bytes) == (3 * HELD, 500)
    assert ledger.held_bytes() == 5 * HELD + 500
    ledger.release_pending(three)
    ledger.release_delivery(500)
    assert ledger.held_bytes() == 2 * HELD


# -- value ----------------------------------------------------------------------------------------


def test_what_waits_and_what_is_inside_is_valued() -> None:
    """0.5 s in two chains; one of 300 vertices is inside, 30,000 bytes, and 200 wait."""
    ledger = ledger_of(2, available_bytes=100_000)
    ledger.use_model(costs(parent_seconds_per_message=0.01))
    first, _ = admitted(ledger, [300, 200], [1, 2])
    ledger.enter_process([first], first.load)
    ledger.processes[0].chunks.append(chunk_of([first], 30_000.0))
    charge = ledger.value()
    assert (charge.messages, charge.vertices) == (2.0, 500.0)
    assert charge.held_bytes == 2 * HELD
    assert charge.inside_bytes == 30_000.0
    # 200 vertices are light, and stand for 255: 25,500 bytes. 30,000 + 25,500 > 2 * 25,500.
    assert charge.room_bytes == 55_500.0
    assert charge.seconds == pytest.approx(0.5)
    assert charge.longest_chain_seconds == pytest.approx(0.3)
    # By seconds a busy process has 0.6 * 30,000 + 0.4 * 20,000 bytes: two of them fit into 55,500.
    assert charge.effective_processes == 2.0
    # 0.02 + 0.5 / 2 + 0.3 / 2 + 2 * 0.05.
    assert charge.drain_bound_seconds == pytest.approx(0.52)
    assert charge.chunk_seconds == 0.05


def test_what_waits_for_a_retry_or_the_broker_is_held_and_is_no_work() -> None:
    """Its bytes are there; its seconds come when it goes again."""
    ledger = ledger_of()
    for state in (PieceState.RETRYING, PieceState.UNACKNOWLEDGED):
        piece = piece_of([100], row=ledger.chains.open())
        piece.state = state
        ledger.charge(piece)
    charge = ledger.value()
    assert (charge.messages, charge.vertices, charge.seconds) == (0.0, 200.0, 0.0)
    assert charge.held_bytes == 2 * HELD


def test_memory_may_let_fewer_processes_work_at_once() -> None:
    """Each is inside 30,000 bytes where 40,000 are: one and a third work."""
    ledger = ledger_of(2, available_bytes=40_000)
    admitted(ledger, [300, 300])
    charge = ledger.value()
    # The larger of 30,000 and the smaller of 60,000 and 28,000.
    assert charge.room_bytes == 30_000.0
    assert charge.effective_processes == 1.0
    ledger.processes[0].resident_bytes = 15_000
    assert ledger.value().room_bytes == 45_000.0
    assert ledger.value().effective_processes == pytest.approx(4 / 3)


def test_with_no_memory_known_the_room_says_how_many_work() -> None:
    """Before the host is measured a worker does not look as if nothing could work."""
    ledger = ledger_of(2, available_bytes=0)
    admitted(ledger, [300])
    ledger.processes[0].resident_bytes = 15_000
    assert ledger.value().effective_processes == 1.5


def test_one_record_may_take_longer_than_any_chain() -> None:
    """It has no order, and one process works on it to the end."""
    ledger = ledger_of()
    admitted(ledger, [100], [1])
    admitted(ledger, [400])
    assert ledger.value().longest_chain_seconds == pytest.approx(0.4)


def test_a_candidate_is_valued_beside_what_is_in_flight() -> None:
    """What it costs is added; what it holds as fetched already is not counted twice."""
    ledger = ledger_of(2, available_bytes=100_000)
    admitted(ledger, [100, 100], [1, 2])
    fetched = piece_of([300, 50]).load
    ledger.hold_pending(fetched)
    before = ledger.value()
    assert before.held_bytes == 4 * HELD
    with_it = ledger.value(
        Candidate(
            fetched,
            pending_bytes=ledger.pending_cost(fetched),
            heaviest_bytes=30_000.0,
            heaviest_seconds=0.3,
            longest_chain_seconds=0.15,
        )
    )
    assert with_it.held_bytes == 4 * HELD
    assert (with_it.messages, with_it.vertices) == (4.0, 550.0)
    assert with_it.seconds == pytest.approx(0.55)
    # Two processes with such a record each; 0.3 s of one record are more than 0.15 s of a chain.
    assert with_it.room_bytes == 60_000.0
    assert with_it.longest_chain_seconds == 0.3
    # Judging changes nothing.
    assert ledger.value().held.tolist() == before.held.tolist()


def test_a_candidate_that_is_lighter_leaves_the_heaviest_as_it_is() -> None:
    """400 vertices wait already, and a chain of 0.9 s comes about."""
    ledger = ledger_of(2, available_bytes=100_000)
    admitted(ledger, [400])
    light = piece_of([1]).load
    charge = ledger.value(
        Candidate(
            light,
            pending_bytes=0,
            heaviest_bytes=300.0,
            heaviest_seconds=0.003,
            longest_chain_seconds=0.9,
        )
    )
    assert charge.room_bytes == 70_000.0
    assert charge.longest_chain_seconds == 0.9


def test_new_rates_value_everything_in_flight_anew() -> None:
    """Twice the seconds and three times the bytes: chains, chunks inside, and what waits."""
    ledger = ledger_of(2)
    first, second = admitted(ledger, [300, 200], [1, 2])
    ledger.enter_process([first], first.load)
    ledger.processes[0].chunks.append(chunk_of([first], 30_000.0))
    ledger.use_model(costs(2e-3, 300.0))
    charge = ledger.value()
    assert charge.seconds == pytest.approx(1.0)
    assert charge.longest_chain_seconds == pytest.approx(0.6)
    assert charge.inside_bytes == pytest.approx(90_000.0)
    assert ledger.chains.seconds[second.chain.row] == pytest.approx(0.4)


def test_a_ledger_is_told_memory_and_chunks() -> None:
    """Both are measured while it runs."""
    ledger = ledger_of()
    ledger.use_available_bytes(5)
    ledger.use_chunk_seconds(0.2)
    assert (ledger.available_bytes, ledger.value().chunk_seconds) == (5, 0.2)


def test_nothing_in_flight_costs_nothing() -> None:
    """All sums are exactly zero, and every process could work."""
    charge = ledger_of(2).value()
    assert (charge.held_bytes, charge.seconds, charge.drain_bound_seconds) == (0.0, 0.0, 0.0)
    assert charge.effective_processes == 2.0
