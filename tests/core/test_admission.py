"""The door: what is let in, what is cut, who waits for whom.

One process, so that a second of work is a second. The deadline is 1.1 s, of which two chunks take
0.1 s: a second of work fits, which is ten records of 100 vertices.
"""

from __future__ import annotations

import pytest

from consumer.core.admission.admission import Admission
from consumer.core.config import FlowConfig, Ordering
from consumer.core.ledger.columns import FetchedRun, Partition
from consumer.core.ledger.in_flight import FREE_SHARD, Chain, PartitionState, Piece, PieceState, Run
from consumer.core.ledger.pieces import Pieces
from consumer.core.limits import LIMITS, Standing
from consumer.core.reasons import PauseReason
from tests.core.building import HELD, TOWN, ledger_of, run_of

VILLAGE = ("village", 0)


class Door:
    """Two partitions at one door."""

    def __init__(
        self,
        *,
        processes: int = 1,
        available_bytes: int = 1_000_000,
        deadline_seconds: float = 1.1,
        most_uncommitted: int = 1_000,
    ) -> None:
        self.ledger = ledger_of(processes, available_bytes=available_bytes)
        standing = Standing(
            FlowConfig(processes), deadline_seconds, "shutdown-grace", available_bytes
        )
        standing.sized = True
        self.admission = Admission(
            self.ledger,
            LIMITS,
            standing,
            ordering=Ordering.KEY,
            shard_count=16,
            max_uncommitted_messages=most_uncommitted,
        )
        self.pieces = Pieces(self.ledger)
        self.states = {p: PartitionState(p, epoch) for epoch, p in enumerate((TOWN, VILLAGE))}

    def fetch(self, *runs: FetchedRun) -> None:
        for run in runs:
            self.admission.queue(self.states[run.partition], run)

    def admit(self, now: float) -> list[tuple[str, int, int]]:
        """Return topic, first and last offset of each run that was let in."""
        return [
            (run.partition.partition[0], run.first_offset, run.last_offset)
            for run in self.admission.admit(now)
        ]

    def pending(self, partition: Partition = TOWN) -> list[int]:
        """Return the offsets of a partition that were fetched and not let in."""
        pending = self.states[partition].pending
        return [o for run in pending for o in run.fetched.columns.offsets.tolist()]

    def chain(self, partition: Partition = TOWN, shard: int = FREE_SHARD) -> Chain:
        return self.states[partition].chains[shard]

    def into_process(self, chain: Chain, count: int) -> Piece:
        """Send the first records of a chain's first piece into the process."""
        self.pieces.split(chain.pieces[0], count)
        piece = self.pieces.take(chain)
        self.pieces.enter([piece])
        return piece

    def finish(self, count: int, chain: Chain | None = None) -> None:
        """Have the first records of a chain done."""
        piece = self.into_process(chain or self.chain(), count)
        self.pieces.settle_chunk([piece], piece.load)

    def retry(self, chain: Chain) -> Chain:
        """Have a chain's first piece wait for a retry."""
        piece = self.into_process(chain, len(chain.pieces[0]))
        self.pieces.leave(piece)
        everything = list(range(len(piece)))
        (part,) = self.pieces.replace(piece, [(everything, PieceState.RETRYING)])
        return self.pieces.retry(part, 99.0)

    def ratio(self, limit: str) -> float:
        return self.admission.judge().ratio(limit)


# -- what fits ------------------------------------------------------------------------------------


def test_a_run_that_fits_is_let_in_whole() -> None:
    """Ten records of 0.1 s, with two chunks 1.1 s: exactly the deadline."""
    door = Door()
    door.fetch(run_of(0, [100] * 10))
    assert door.ledger.pending_bytes == 10 * HELD
    assert door.admit(5.0) == [("town", 0, 9)]
    assert door.ledger.pending_bytes == 0
    assert door.ratio("deadline") == pytest.approx(1.0)
    assert (door.admission.refused_by, door.admission.admitted_at) == ("", 5.0)


def test_the_longest_prefix_that_fits_is_let_in_and_the_rest_waits() -> None:
    """0.1 + 0.3 + 0.05 + 0.4 = 0.85 s fit; 0.2 s more do not, nor is the 0.01 s behind preferred."""
    door = Door()
    door.fetch(run_of(0, [100, 300, 50, 400, 200, 10]))
    assert door.admit(5.0) == [("town", 0, 3)]
    assert door.pending() == [4, 5]
    assert door.ratio("deadline") == pytest.approx(0.95 / 1.1)
    assert (door.admission.refused_by, door.admission.refused_since) == ("deadline", 5.0)
    assert door.admission.waits_for_room


def test_a_heavy_record_is_refused_for_the_room_that_it_needs_to_be_worked_on() -> None:
    """Of 50,500 bytes its 50,000 would leave 500 to wait in, and four records hold 1,056."""
    door = Door(available_bytes=50_500)
    door.fetch(run_of(0, [1, 1, 1, 500]))
    assert door.admit(5.0) == [("town", 0, 2)]
    assert door.admission.refused_by == "memory"


def test_what_refused_first_is_said() -> None:
    """The oldest head lacks room to be worked on; behind it the village fills the deadline."""
    door = Door(available_bytes=50_500)
    door.fetch(run_of(0, [10] * 50), run_of(50, [500]), run_of(0, [10] * 60, partition=VILLAGE))
    assert door.admit(5.0) == [("town", 0, 49), ("village", 0, 49)]
    assert door.admission.refused_by == "memory"


def test_memory_counts_what_is_fetched_whether_it_is_let_in_or_not() -> None:
    """A light record of class 0 stands for 300 bytes of work; ten times 264 may wait beside it."""
    full = Door(available_bytes=300 + 10 * HELD)
    full.fetch(run_of(0, [1] * 10))
    assert full.admit(5.0) == [("town", 0, 9)]
    assert full.ratio("memory") == 1.0
    over = Door(available_bytes=300 + 10 * HELD)
    over.fetch(run_of(0, [1] * 11))
    # Letting fewer of them in would hold as much. One goes, since nothing else is held.
    assert over.admit(5.0) == [("town", 0, 0)]
    assert over.admission.refused_by == "memory"


def test_all_that_waits_is_let_in_at_once_where_all_of_it_fits() -> None:
    """Short runs of two partitions: each is a run in flight of its own."""
    door = Door()
    door.fetch(run_of(0, [100]), run_of(0, [100], partition=VILLAGE), run_of(1, [100, 100]))
    assert door.admit(5.0) == [("town", 0, 0), ("town", 1, 2), ("village", 0, 0)]
    assert door.ratio("deadline") == pytest.approx(0.5 / 1.1)
    assert door.pending() == door.pending(VILLAGE) == []


@pytest.mark.parametrize("heavy_in", [TOWN, VILLAGE])
def test_what_is_let_in_at_once_is_judged_by_its_heaviest_record(heavy_in: Partition) -> None:
    """Wherever it comes: beside 50,000 bytes of work 500 may wait, beside 30,000 there are 20,500."""
    door = Door(available_bytes=50_500)
    other = VILLAGE if heavy_in == TOWN else TOWN
    door.fetch(run_of(0, [1], partition=other), run_of(1, [300], partition=other))
    door.fetch(run_of(0, [1], partition=heavy_in), run_of(1, [500], partition=heavy_in))
    assert len(door.admit(5.0)) == 3
    assert door.pending(heavy_in) == [1]
    assert door.pending(other) == []
    assert door.admission.refused_by == "memory"


def test_what_is_let_in_at_once_is_judged_by_its_longest_chain() -> None:
    """Two processes share all but one key's 0.8 s: 0.8 / 2 + 0.8 / 2 + 0.1 s are over 0.85 s."""
    door = Door(processes=2, deadline_seconds=0.85)
    door.fetch(run_of(0, [200] * 4, [5] * 4))
    # 0.6 s: 0.3 + 0.3 + 0.1 are under it.
    assert door.admit(5.0) == [("town", 0, 2)]
    assert door.ratio("deadline") == pytest.approx(0.7 / 0.85)


def test_the_oldest_fetch_goes_first() -> None:
    """Of 0.6 s in each of two partitions only one fits: the one that was fetched first."""
    door = Door()
    door.fetch(run_of(0, [600], partition=VILLAGE), run_of(0, [600]))
    assert door.admit(5.0) == [("village", 0, 0)]
    assert door.pending() == [0]


# -- one record always ----------------------------------------------------------------------------


def test_with_nothing_held_one_record_is_let_in_whatever_it_costs() -> None:
    """Five seconds of work where the deadline is 1.1 s; the next one waits until it is done."""
    door = Door()
    door.fetch(run_of(0, [5_000, 5_000]))
    assert door.admit(5.0) == [("town", 0, 0)]
    assert door.admission.refused_by == "deadline"
    assert door.admit(6.0) == []
    door.finish(1)
    assert door.admit(7.0) == [("town", 1, 1)]


def test_what_waits_for_a_retry_does_not_keep_the_one_record_out() -> None:
    """It may wait for long, and may need what the next record brings."""
    door = Door()
    door.fetch(run_of(0, [5_000, 5_000]))
    door.admit(5.0)
    door.retry(door.chain())
    assert door.admit(6.0) == [("town", 1, 1)]


def test_what_is_inside_or_not_acknowledged_keeps_it_out() -> None:
    """It is being worked on, or is with the broker: its end is near."""
    door = Door()
    door.fetch(run_of(0, [5_000, 5_000]))
    door.admit(5.0)
    inside = door.into_process(door.chain(), 1)
    assert door.admit(6.0) == []
    door.pieces.leave(inside)
    door.pieces.wait_for_broker(inside)
    assert door.ratio("deadline") == 0.0
    assert door.admit(7.0) == []
    door.pieces.settle(inside)
    assert door.admit(8.0) == [("town", 1, 1)]


# -- trying again ---------------------------------------------------------------------------------


def test_a_refused_head_is_tried_again_when_a_twentieth_is_free() -> None:
    """Of a hundred records of 10 ms five are done: 1.05 of 1.1 s. Six: 1.04 s, under 95 %."""
    door = Door()
    door.fetch(run_of(0, [10] * 120))
    assert door.admit(5.0) == [("town", 0, 99)]
    door.finish(5)
    assert door.admit(5.1) == []
    assert door.admission.refused_by == "deadline"
    door.finish(1)
    assert door.admit(5.2) == [("town", 100, 105)]
    # Since when it is refused does not change while it is.
    assert (door.admission.refused_since, door.admission.admitted_at) == (5.0, 5.2)


def test_a_refusal_ends_with_what_was_refused() -> None:
    """The rest is let in, and nothing waits."""
    door = Door()
    door.fetch(run_of(0, [100] * 12))
    door.admit(5.0)
    door.finish(10)
    assert door.admit(6.0) == [("town", 10, 11)]
    assert (door.admission.refused_by, door.admission.refused_since) == ("", None)
    assert door.admit(7.0) == []
    assert door.admission.admitted_at == 6.0


def test_what_was_fetched_and_is_dropped_is_refused_no_more() -> None:
    """The partition is given back: nothing of it is pending, and nothing is kept out."""
    door = Door()
    door.fetch(run_of(0, [100] * 12))
    door.admit(5.0)
    door.admission.drop_pending(door.states[TOWN])
    assert not door.admission.waits_for_room
    assert door.ledger.pending_bytes == 0
    assert door.admit(5.1) == []
    assert (door.admission.refused_by, door.admission.refused_since) == ("", None)


# -- the closed door ------------------------------------------------------------------------------


def closing() -> Door:
    """Half a second is in flight; the town's 0.8 s are refused, the village's 0.01 s are not."""
    door = Door()
    door.fetch(run_of(0, [500]), run_of(1, [800]), run_of(0, [10] * 2, partition=VILLAGE))
    assert door.admit(5.0) == [("town", 0, 0), ("village", 0, 1)]
    return door


def test_others_pass_a_head_that_is_refused_for_less_than_a_second() -> None:
    """They fill what it leaves free."""
    door = closing()
    door.fetch(run_of(2, [10], partition=VILLAGE))
    assert door.admit(5.9) == [("village", 2, 2)]
    assert door.admission.closed_for is None


def test_a_head_that_is_refused_for_a_second_closes_the_door_until_it_fits() -> None:
    """Nobody passes it any more, so that room for it comes about."""
    door = closing()
    door.fetch(run_of(2, [10], partition=VILLAGE))
    assert door.admit(6.0) == []
    assert door.admission.closed_for is door.states[TOWN]
    assert door.admit(6.1) == []
    door.finish(1)
    assert door.admit(6.2) == [("town", 1, 1)]
    assert door.admission.closed_for is None
    assert door.admit(6.3) == [("village", 2, 2)]


def test_the_door_opens_when_the_partition_that_closed_it_is_gone() -> None:
    """Its head does not wait here any more."""
    door = closing()
    door.fetch(run_of(2, [10], partition=VILLAGE))
    door.admit(6.0)
    door.admission.drop_pending(door.states[VILLAGE])
    assert door.admission.closed_for is door.states[TOWN]
    door.fetch(run_of(2, [10], partition=VILLAGE))
    door.admission.drop_pending(door.states[TOWN])
    assert door.admission.closed_for is None
    assert door.admit(6.1) == [("village", 2, 2)]


def test_the_door_opens_when_the_partition_that_closed_it_is_held_back() -> None:
    """It waits for a retry and for no room, perhaps for half a minute; the others do not."""
    door = Door(available_bytes=300_000)
    door.fetch(run_of(0, [100] * 5, [1] * 5, payload_bytes=6_400), run_of(5, [800], [2]))
    door.fetch(run_of(0, [10], partition=VILLAGE))
    assert door.admit(5.0) == [("town", 0, 4), ("village", 0, 0)]
    assert door.admit(6.0) == []
    assert door.admission.closed_for is door.states[TOWN]
    # 5 * 6,600 bytes wait for a retry: more than a tenth of the memory.
    door.retry(door.chain(shard=1))
    door.fetch(run_of(1, [10], partition=VILLAGE))
    assert door.admit(6.1) == [("village", 1, 1)]
    assert door.admission.closed_for is None
    assert list(door.admission.held_back) == [TOWN]
    door.pieces.wake(door.chain(shard=1))
    door.finish(5, door.chain(shard=1))
    assert door.admit(6.2) == [("town", 5, 5)]


# -- partitions that are held back ----------------------------------------------------------------


def test_a_partition_is_held_back_for_its_own_reason_and_the_others_go_on() -> None:
    """One key holds 0.6 s, more than half of the deadline; the village has nothing to do with it."""
    door = Door()
    door.fetch(run_of(0, [600], [5]))
    door.admit(5.0)
    door.fetch(run_of(1, [10], [7]))
    assert door.admit(5.1) == []
    assert list(door.admission.held_back) == [TOWN]
    assert list(door.states[TOWN].own_pauses) == [PauseReason.ORDERING]
    # What it has fetched waits for its chain, not for room.
    assert not door.admission.waits_for_room
    assert door.admission.refused_by == ""
    door.fetch(run_of(0, [10], partition=VILLAGE))
    assert door.admission.waits_for_room
    assert door.admit(5.2) == [("village", 0, 0)]


def test_a_partition_is_let_in_again_when_its_reason_is_gone() -> None:
    """The chain is done: its pause ends, and what it had fetched goes."""
    door = Door()
    door.fetch(run_of(0, [600], [5]))
    door.admit(5.0)
    door.fetch(run_of(1, [10], [7]))
    door.admit(5.1)
    door.finish(1, door.chain(shard=5))
    assert door.admit(5.2) == [("town", 1, 1)]
    assert door.admission.held_back == {}


def test_a_reason_that_is_gone_ends_the_pause_though_the_door_is_full() -> None:
    """Whether a partition is to be fetched from does not depend on what the others hold."""
    door = Door(most_uncommitted=2)
    door.fetch(run_of(0, [10] * 3, [1, 2, 3]))
    door.admit(5.0)
    for shard in (2, 3):
        door.finish(1, door.chain(shard=shard))
    door.fetch(run_of(3, [10], [4]))
    door.admit(5.1)
    assert list(door.admission.held_back) == [TOWN]
    door.fetch(run_of(0, [10] * 100, partition=VILLAGE))
    assert door.admit(5.2) == [("village", 0, 98)]
    door.finish(1, door.chain(shard=1))
    assert door.admit(5.3) == []
    assert door.admission.held_back == {}


def test_records_finished_above_one_that_is_not_hold_a_partition_back() -> None:
    """Two are allowed; the third fetch waits until the first record is done."""
    door = Door(most_uncommitted=2)
    door.fetch(run_of(0, [10] * 3, [1, 2, 3]))
    door.admit(5.0)
    for shard in (2, 3):
        door.finish(1, door.chain(shard=shard))
    door.fetch(run_of(3, [10], [4]))
    assert door.admit(5.1) == []
    assert list(door.states[TOWN].own_pauses) == [PauseReason.UNCOMMITTED]
    door.finish(1, door.chain(shard=1))
    assert door.admit(5.2) == [("town", 3, 3)]


def test_a_partition_is_held_back_between_two_of_its_runs() -> None:
    """The first run makes its chain too long; the second, of the same fetch, waits already."""
    door = Door()
    door.fetch(run_of(0, [600], [5]), run_of(1, [450], [7]))
    # Together they are over 1 s.
    assert door.admit(5.0) == [("town", 0, 0)]
    assert list(door.admission.held_back) == [TOWN]
    assert door.pending() == [1]


def test_each_run_is_the_records_that_were_judged() -> None:
    """The prefix and the rest have the offsets, sizes and costs of their own records."""
    door = Door()
    door.fetch(run_of(0, [700, 200, 300]))
    (run,) = door.admission.admit(5.0)
    assert isinstance(run, Run)
    assert run.load[1] == 900
    door.finish(2)
    (run,) = door.admission.admit(6.0)
    assert (run.load[1], run.first_offset, run.sequence) == (300, 2, 1)
