"""Which records go to which process, in which chunks.

A chunk is 50 ms of work, which is 50 vertices, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from consumer.core.commands import Submit
from consumer.core.config import Ordering
from consumer.core.dispatch import CHAINS_LOOKED_AT, Dispatcher
from consumer.core.ledger.columns import Partition
from consumer.core.ledger.in_flight import FREE_SHARD, Chain, PartitionState, PieceState
from consumer.core.ledger.pieces import Pieces, pending_run
from consumer.core.reasons import KillReason
from sizing.load import PAYLOAD_BYTES, Load
from tests.core.building import TOWN, MiB, ledger_of, offsets_in, run_of

VILLAGE = ("village", 0)


class Desk:
    """Processes, what waits for them, and what is handed out."""

    def __init__(
        self,
        processes: int = 2,
        *,
        chunk_bytes: int = 2 * MiB,
        available_bytes: int = 100_000_000,
    ) -> None:
        self.ledger = ledger_of(processes, available_bytes=available_bytes)
        for process in self.ledger.processes:
            process.ready = True
        self.dispatcher = Dispatcher(self.ledger, chunk_bytes, self.wants_sample)
        self.pieces = Pieces(self.ledger)
        self.states = {p: PartitionState(p, epoch) for epoch, p in enumerate((TOWN, VILLAGE))}
        self.fetches = 0
        self.submits: list[Submit] = []

    @staticmethod
    def wants_sample(load: Load) -> tuple[bool, bool]:
        """Sample chunks of a thousand payload bytes, and trace those of two thousand."""
        return bool(load[PAYLOAD_BYTES] >= 1_000), bool(load[PAYLOAD_BYTES] >= 2_000)

    def hold(
        self,
        first_offset: int,
        vertices: Sequence[int],
        keys: Sequence[int] | None = None,
        *,
        partition: Partition = TOWN,
        payload_bytes: int = 64,
    ) -> None:
        """Let a run in, all of which may go."""
        state = self.states[partition]
        run = run_of(first_offset, vertices, keys, partition=partition, payload_bytes=payload_bytes)
        self.fetches += 1
        self.pieces.queue(
            state,
            pending_run(run, sequence=self.fetches, shard_count=128, ordering=Ordering.KEY),
        )
        for piece in self.pieces.admit(state, len(vertices)).unfinished:
            self.dispatcher.make_ready(piece.chain)

    def chain(self, shard: int = FREE_SHARD, partition: Partition = TOWN) -> Chain:
        return self.states[partition].chains[shard]

    def dispatch(self, now: float = 1.0) -> list[tuple[int, list[int]]]:
        """Return each process that got a chunk, and the offsets that are in it."""
        submits = self.dispatcher.dispatch(now)
        self.submits += submits
        return [(submit.process, offsets_in(submit.chunk)) for submit in submits]

    def finish(self, process: int, now: float = 1.0) -> None:
        """Have a process done with its chunk."""
        chunks = self.ledger.processes[process].chunks
        chunk = chunks.pop(0)
        if chunks:
            chunks[0].started_at = now
        self.pieces.settle_chunk(chunk.pieces, chunk.load)
        for piece in chunk.pieces:
            self.dispatcher.make_ready(piece.chain)


# -- where a chunk ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "vertices", "chunk_bytes", "available_bytes"),
    [
        # 50 ms of 10 ms each.
        (5, 10, 2 * MiB, 100_000_000),
        # Of 64 bytes each, seven are 448.
        (7, 1, 500, 100_000_000),
        # A quarter of a half of 0.7 of 40,000 bytes is 3,500: three of 1,000 each.
        (3, 10, 2 * MiB, 40_000),
    ],
    ids=["seconds", "raw-bytes", "working-bytes"],
)
def test_a_chunk_ends_where_one_of_its_limits_is_reached(
    records: int, vertices: int, chunk_bytes: int, available_bytes: int
) -> None:
    """Its work, its raw bytes, or its share of the work memory; the piece is split there."""
    desk = Desk(chunk_bytes=chunk_bytes, available_bytes=available_bytes)
    desk.hold(100, [vertices] * 200, [5] * 200)
    first = list(range(100, 100 + records))
    assert desk.dispatch() == [(0, first)]
    assert desk.chain(5).pieces[0].first_offset == 100 + records
    assert desk.ledger.counts()["inside"][0] == records


@pytest.mark.parametrize(
    ("heavy", "payload_bytes", "chunk_bytes", "available_bytes"),
    [
        (51, 64, 2 * MiB, 100_000_000),
        (8, 501, 500, 100_000_000),
        (36, 64, 2 * MiB, 20_000),
    ],
    ids=["seconds", "raw-bytes", "working-bytes"],
)
def test_a_record_heavier_than_a_whole_chunk_travels_alone(
    heavy: int, payload_bytes: int, chunk_bytes: int, available_bytes: int
) -> None:
    """51 ms, 501 bytes or 3,600 working bytes: what is before it and behind it goes by itself."""
    desk = Desk(1, chunk_bytes=chunk_bytes, available_bytes=available_bytes)
    desk.hold(0, [1, 1], [5, 5])
    desk.hold(2, [heavy], [5], payload_bytes=payload_bytes)
    desk.hold(3, [1], [5])
    given = []
    for _ in range(3):
        given += desk.dispatch()
        desk.finish(0)
    assert given == [(0, [0, 1]), (0, [2]), (0, [3])]


def test_what_fits_exactly_is_not_heavy() -> None:
    """50 ms and 500 bytes fill a chunk."""
    desk = Desk(1, chunk_bytes=500)
    desk.hold(0, [50, 1], [5, 5], payload_bytes=500)
    assert desk.dispatch() == [(0, [0])]
    assert not desk.ledger.processes[0].chunks[0].heavy


def test_a_chunk_takes_whole_pieces_of_a_chain_and_a_part_of_the_last() -> None:
    """Of runs of 20, 20 and 20 ms, one after another: the third is cut in half."""
    desk = Desk(1)
    for first_offset in (0, 2, 4):
        desk.hold(first_offset, [10, 10], [5, 5])
    assert desk.dispatch() == [(0, [0, 1, 2, 3, 4])]
    assert len(desk.submits[0].chunk.parts) == 3
    assert desk.chain(5).pieces[0].first_offset == 5


def test_a_chunk_takes_from_several_chains() -> None:
    """In the order of their runs, until it is full. A chain that does not fit ends it."""
    desk = Desk(1)
    desk.hold(0, [20], [5])
    desk.hold(1, [20], [6])
    desk.hold(2, [20], [7])
    desk.hold(3, [1], [8])
    assert desk.dispatch() == [(0, [0, 1])]


def test_a_heavy_head_is_left_out_of_a_chunk_that_others_still_fit_into() -> None:
    """It waits for a chunk of its own, and does not end this one."""
    desk = Desk(1)
    desk.hold(0, [20], [5])
    desk.hold(1, [2_000], [6])
    desk.hold(2, [20], [7])
    assert desk.dispatch() == [(0, [0, 2])]


def test_the_oldest_run_goes_first() -> None:
    """What finishes is then near the committed end, whoever became ready first."""
    desk = Desk(1)
    desk.hold(0, [50], [5])
    desk.hold(1, [50], [6])
    desk.hold(2, [50], [5])
    desk.hold(3, [50], [7])
    given = []
    for _ in range(4):
        given += desk.dispatch()
        desk.finish(0)
    assert [offsets for _, offsets in given] == [[0], [1], [2], [3]]


# -- order ----------------------------------------------------------------------------------------


def test_a_chain_is_inside_one_process_at_a_time() -> None:
    """The other process has nothing to do until the chunk is back."""
    desk = Desk()
    desk.hold(0, [50, 50], [5, 5])
    assert desk.dispatch() == [(0, [0])]
    assert desk.dispatch() == []
    desk.finish(0)
    assert desk.dispatch() == [(0, [1])]


def test_records_without_order_go_to_every_process() -> None:
    """They have one chain, and it may be inside both."""
    desk = Desk()
    desk.hold(0, [50, 50, 50])
    assert desk.dispatch() == [(0, [0]), (1, [1])]


def test_what_is_not_ready_is_not_queued_and_goes_when_it_is() -> None:
    """A chain that waits for a retry, and one whose older epoch is still inside a process."""
    desk = Desk()
    desk.states[TOWN].blocked_shards.add(5)
    desk.hold(0, [1], [5])
    assert (desk.dispatcher.ready_chains, desk.dispatch()) == (0, [])
    desk.states[TOWN].blocked_shards.clear()
    for _ in range(2):
        desk.dispatcher.make_ready(desk.chain(5))
    assert desk.dispatcher.ready_chains == 1
    assert desk.dispatch() == [(0, [0])]
    assert desk.dispatcher.ready_chains == 0


def test_what_was_ready_and_is_not_any_more_is_passed_over() -> None:
    """Its records were let go meanwhile."""
    desk = Desk()
    desk.hold(0, [1], [5])
    desk.hold(0, [1], [5], partition=VILLAGE)
    desk.pieces.let_go_above(desk.states[TOWN], -1)
    assert desk.dispatch() == [(0, [0])]
    assert desk.submits[0].chunk.parts[0].partition == VILLAGE
    desk.hold(1, [1], [6])
    desk.pieces.let_go_above(desk.states[TOWN], -1)
    assert desk.dispatch() == []


def test_a_partition_that_is_given_back_goes_first() -> None:
    """Its drain has a deadline. What was queued for it goes to the front, and what comes as well."""
    desk = Desk(1)
    desk.hold(0, [50, 50], [5, 6])
    desk.hold(0, [50], [5], partition=VILLAGE)
    village = desk.states[VILLAGE]
    village.revoking = True
    desk.dispatcher.prefer(list(village.chains.values()))
    assert desk.dispatcher.ready_chains == 3
    assert desk.dispatch() == [(0, [0])]
    assert desk.submits[0].chunk.parts[0].partition == VILLAGE
    desk.finish(0)
    desk.hold(1, [50], [6], partition=VILLAGE)
    desk.dispatch()
    assert desk.submits[1].chunk.parts[0].partition == VILLAGE


# -- who gets one ---------------------------------------------------------------------------------


def test_a_process_that_is_not_ready_or_is_being_killed_gets_nothing() -> None:
    """Only the third of four; the last is inside something already."""
    desk = Desk(3)
    desk.ledger.processes[0].ready = False
    desk.ledger.processes[1].killing = KillReason.TIMED_OUT
    desk.hold(0, [50] * 3)
    assert desk.dispatch() == [(2, [0])]


def test_a_process_gets_a_second_chunk_while_its_first_is_nearly_done() -> None:
    """So that it never waits for the parent; never a third. Empty processes come first."""
    desk = Desk()
    desk.hold(0, [50] * 8)
    assert desk.dispatch(1.0) == [(0, [0]), (1, [1])]
    assert desk.dispatch(1.0) == [(0, [2]), (1, [3])]
    assert desk.dispatch(1.0) == []
    desk.finish(1)
    desk.finish(1)
    desk.finish(0)
    assert desk.dispatch(1.1) == [(1, [4]), (0, [5])]


def test_what_is_behind_another_chunk_has_not_begun() -> None:
    """Its time limit begins when the one before it is back."""
    desk = Desk(1)
    desk.hold(0, [50] * 2)
    desk.dispatch(1.0)
    desk.dispatch(1.0)
    first, second = desk.ledger.processes[0].chunks
    assert (first.submitted_at, first.started_at) == (1.0, 1.0)
    assert (second.submitted_at, second.started_at) == (1.0, np.inf)


@pytest.mark.parametrize(
    ("now", "gets_one"),
    # Predicted to take 0.2 s: 51 and 49 ms are left; 0.2 s and a chunk more it may be overdue.
    [(1.149, False), (1.151, True), (1.449, True), (1.451, False)],
)
def test_no_chunk_waits_long_behind_another(now: float, gets_one: bool) -> None:
    """One that will end in more than a chunk's time, or is overdue, gets none behind it."""
    desk = Desk(1)
    desk.hold(0, [200, 50])
    assert desk.dispatch(1.0) == [(0, [0])]
    assert bool(desk.dispatch(now)) is gets_one


def test_little_work_is_shared_out() -> None:
    """21 ms between two processes are 10.5 ms for the first of them, and the rest."""
    desk = Desk()
    desk.hold(0, [1] * 21)
    assert desk.dispatch() == [(0, list(range(10))), (1, list(range(10, 21)))]


def test_no_share_is_smaller_than_what_the_round_trip_costs() -> None:
    """Of 6 ms the first takes 5, not 3."""
    desk = Desk()
    desk.hold(0, [1] * 6)
    assert desk.dispatch() == [(0, [0, 1, 2, 3, 4]), (1, [5])]


def test_few_chains_are_shared_out() -> None:
    """Three short chains between two processes: two and one."""
    desk = Desk()
    desk.hold(0, [1, 1, 1], [1, 2, 3])
    assert desk.dispatch() == [(0, [0, 1]), (1, [2])]


# -- memory ---------------------------------------------------------------------------------------


def busy(*heavy: int, available_bytes: int = 100_000) -> Desk:
    """Process 0 is inside a record of 600 vertices: 60,000 of 100,000 bytes, until 1.6 s."""
    desk = Desk(available_bytes=available_bytes)
    desk.hold(0, [600], [1])
    assert desk.dispatch(1.0) == [(0, [0])]
    for offset, vertices in enumerate(heavy, 1):
        desk.hold(offset, [vertices], [1 + offset])
    return desk


def test_with_nothing_inside_one_chunk_goes_whatever_it_costs() -> None:
    """200,000 of 100,000 bytes: it can be done alone or not at all."""
    desk = Desk(available_bytes=100_000)
    desk.hold(0, [2_000, 2_000])
    assert desk.dispatch() == [(0, [0])]
    desk.finish(0)
    assert desk.dispatch() == [(0, [1])]


def test_memory_is_checked_again_when_a_chunk_goes() -> None:
    """Beside 60,000 bytes inside and 792 that wait 39,208 are left: 392 vertices fit, 393 do not."""
    assert busy(392, 392).dispatch(1.0) == [(1, [1])]
    assert busy(393, 393).dispatch(1.0) == []


def test_a_light_chunk_is_no_larger_than_memory_leaves() -> None:
    """3,500 bytes are left beside what is inside and what is held: 35 records of 50 fit."""
    desk = busy(available_bytes=60_000 + 51 * 264 + 3_500)
    desk.hold(1, [1] * 50, [2] * 50)
    assert desk.dispatch(1.0) == [(1, list(range(1, 36)))]


def test_what_a_process_keeps_counts_as_inside() -> None:
    """Process 1 has 5,000 bytes more than at rest: its own chunk may use them, others may not."""
    desk = busy(393)
    desk.ledger.processes[0].resident_bytes = 70_000
    desk.ledger.processes[1].resident_bytes = 70_000
    # 100,000 - 528 - the larger of 60,000 and 70,000.
    assert desk.dispatch(1.0) == []
    own = busy(390)
    own.ledger.processes[1].resident_bytes = 70_000
    assert own.dispatch(1.0) == [(1, [1])]


# -- the giant gets through -----------------------------------------------------------------------


def test_what_memory_passes_over_is_passed_for_a_second() -> None:
    """Smaller ones go before it, heavy ones as well."""
    desk = busy(500, 100)
    assert desk.dispatch(1.0) == [(1, [2])]
    assert desk.chain(2).passed_over_since == 1.0


def reserving(*younger: int) -> Desk:
    """A record of 500 vertices was passed over at 1.0 s, and again at 2.0 s: it reserves."""
    desk = busy(500)
    assert desk.dispatch(1.0) == []
    assert desk.dispatch(2.0) == []
    for number, vertices in enumerate(younger):
        desk.hold(2 + number, [vertices], [3 + number])
    return desk


def test_after_a_second_nothing_heavy_goes_before_it() -> None:
    """What is light does: it is done before the room is there."""
    desk = reserving(100, 10)
    assert desk.dispatch(2.9) == [(1, [3])]


def test_after_two_seconds_nothing_at_all_goes_before_it() -> None:
    """However light: the room would never come about."""
    desk = reserving(10)
    assert desk.dispatch(3.0) == []
    desk.finish(0)
    # Nothing is inside: it goes, and the rest behind it.
    assert desk.dispatch(3.1) == [(0, [1]), (1, [2])]


def test_what_reserved_and_has_gone_reserves_no_more() -> None:
    """The next one that is passed over waits its own second."""
    desk = reserving()
    desk.finish(0)
    assert desk.dispatch(3.0) == [(0, [1])]
    desk.hold(2, [600], [7])
    desk.hold(3, [100], [8])
    assert desk.dispatch(3.1) == [(1, [3])]
    assert desk.chain(7).passed_over_since == 3.1


def test_only_one_reserves_at_a_time() -> None:
    """The second that was passed over for as long gives way to the first, though it would fit."""
    desk = busy(500, 450)
    for now in (1.0, 2.0, 2.5):
        assert desk.dispatch(now) == []
    desk.ledger.use_available_bytes(108_000)
    # 108,000 - 60,000 - 792 = 47,208.
    assert desk.dispatch(2.6) == []
    desk.ledger.use_available_bytes(115_000)
    assert desk.dispatch(2.7) == [(1, [1])]


def test_a_reservation_ends_with_what_it_was_for() -> None:
    """Its records were let go: others are not kept back for nothing."""
    desk = reserving()
    desk.hold(0, [100], [9], partition=VILLAGE)
    assert desk.dispatch(2.9) == []
    desk.pieces.let_go_above(desk.states[TOWN], 0)
    assert desk.dispatch(3.5) == [(1, [0])]


# -- heavy beside light ---------------------------------------------------------------------------


def test_heavy_records_leave_a_process_to_light_ones() -> None:
    """Of two processes one is inside a heavy record: the other takes what is light, though younger."""
    desk = busy(100, 10)
    assert desk.dispatch(1.0) == [(1, [2])]


def test_heavy_records_take_every_process_where_nothing_light_waits() -> None:
    """An idle process is of no use to anyone."""
    assert busy(100, 100).dispatch(1.0) == [(1, [1])]


def test_of_three_processes_two_may_be_heavy() -> None:
    """One is left."""
    desk = Desk(3)
    desk.hold(0, [600, 600, 600, 10], [1, 2, 3, 4])
    assert desk.dispatch() == [(0, [0]), (1, [1]), (2, [3])]


def test_a_single_process_takes_heavy_records_in_their_turn() -> None:
    """There is no other that could be left."""
    desk = Desk(1)
    desk.hold(0, [600, 10], [1, 2])
    assert desk.dispatch() == [(0, [0])]


def test_only_so_many_chains_are_looked_at() -> None:
    """A step must not take long: light records behind 64 heavy ones wait for the next."""
    for heavy, given in ((CHAINS_LOOKED_AT - 1, True), (CHAINS_LOOKED_AT, False)):
        desk = busy()
        desk.hold(1, [500] * heavy, list(range(2, 2 + heavy)))
        desk.hold(100, [10], [100])
        assert bool(desk.dispatch(1.0)) is given


# -- records that are tried alone -----------------------------------------------------------------


def suspects() -> Desk:
    """Three light records came back from a process that died, behind them another chain's one."""
    desk = Desk(1)
    desk.hold(0, [1, 1, 1], [5, 5, 5])
    desk.dispatch()
    (chunk,) = desk.ledger.processes[0].chunks
    desk.ledger.processes[0].chunks.clear()
    (piece,) = chunk.pieces
    desk.pieces.leave(piece)
    desk.pieces.isolate(piece)
    desk.pieces.put_back(piece)
    desk.dispatcher.make_ready(piece.chain)
    return desk


def test_a_suspect_is_tried_one_record_at_a_time() -> None:
    """Any of the three may be the one that kills."""
    desk = suspects()
    given = []
    for _ in range(3):
        given += desk.dispatch()
        desk.finish(0)
    assert given == [(0, [0]), (0, [1]), (0, [2])]
    assert not any(submit.chunk.raise_memory_limit for submit in desk.submits)


def test_nothing_travels_with_a_suspect() -> None:
    """Neither before it nor behind it in the chunk; what is light is not kept out by it."""
    desk = suspects()
    desk.hold(3, [1], [6])
    assert desk.dispatch() == [(0, [0])]
    desk = suspects()
    desk.hold(0, [1, 1], [5, 6], partition=VILLAGE)
    desk.states[VILLAGE].revoking = True
    desk.dispatcher.prefer([desk.chain(5, VILLAGE)])
    assert desk.dispatch() == [(0, [0, 1])]
    assert {part.partition for part in desk.submits[-1].chunk.parts} == {VILLAGE}


def test_what_memory_ran_short_for_is_tried_with_more() -> None:
    """The process's limit is raised while it runs, and not for what goes after it."""
    desk = suspects()
    desk.pieces.isolate(desk.chain(5).pieces[0], short_of_memory=True)
    desk.dispatch()
    assert desk.submits[-1].chunk.raise_memory_limit
    desk.hold(3, [1], [6])
    desk.dispatch()
    assert not desk.submits[-1].chunk.raise_memory_limit


# -- what a chunk says ----------------------------------------------------------------------------


def test_a_chunk_says_what_it_is_predicted_to_cost() -> None:
    """30 vertices: 30 ms and 3,000 bytes; numbers count up."""
    desk = Desk(1)
    desk.hold(7, [10, 20], [5, 6])
    desk.hold(9, [50], [7])
    desk.dispatch(3.0)
    desk.dispatch(3.0)
    chunk = desk.submits[0].chunk
    assert chunk.chunk_id == 1
    assert desk.submits[1].chunk.chunk_id == 2
    assert chunk.predicted_seconds == pytest.approx(0.03)
    assert chunk.predicted_bytes == 3_000
    assert [part.columns.offsets.tolist() for part in chunk.parts] == [[7], [8]]
    inside = desk.ledger.processes[0].chunks[0]
    assert (inside.chunk_id, inside.predicted_bytes, inside.heavy) == (1, 3_000.0, False)
    assert inside.load is chunk.load
    assert [piece.state for piece in inside.pieces] == [PieceState.INSIDE] * 2


@pytest.mark.parametrize(
    ("payload_bytes", "sample", "trace"),
    [(999, False, False), (1_000, True, False), (2_000, True, True)],
)
def test_a_chunk_says_whether_its_bytes_are_measured(
    payload_bytes: int, sample: bool, trace: bool
) -> None:
    """As measuring wants it, given the chunk's counts."""
    desk = Desk(1)
    desk.hold(0, [1], payload_bytes=payload_bytes)
    desk.dispatch()
    chunk = desk.submits[0].chunk
    assert (chunk.sample_bytes, chunk.trace_allocations) == (sample, trace)
    assert desk.ledger.processes[0].chunks[0].sample_bytes is sample


def test_a_record_heavier_than_a_chunk_is_called_heavy() -> None:
    """The state in words says how many processes are inside one."""
    desk = busy()
    assert desk.ledger.processes[0].chunks[0].heavy
