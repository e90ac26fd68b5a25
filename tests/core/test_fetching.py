"""How many records the next call asks for, and when it is not made.

A record of one vertex has 64 payload bytes; the parent takes 0.1 ms for a record, so at most 500
of them are fetched at once: 50 ms, one chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from consumer.core.admission.admission import Admission
from consumer.core.admission.fetching import FetchPlan
from consumer.core.commands import Fetch
from consumer.core.config import FlowConfig, Ordering
from consumer.core.ledger.in_flight import FREE_SHARD, PartitionState, PieceState
from consumer.core.ledger.pieces import Pieces
from consumer.core.limits import LIMITS, Standing, Verdict
from sizing.report import SizingReport
from tests.core.building import HELD, TOWN, costs, ledger_of, run_of
from tests.snapshots import SIZING

#: what a call that only serves the client's callbacks asks for
SERVE = Fetch(1, 0.0)


def report_of(message_budget: int) -> SizingReport:
    """A sizing that lets so many messages in."""
    return replace(SIZING, message_budget=message_budget)


class Desk:
    """A plan, and the partition that it fetches from."""

    def __init__(
        self,
        *,
        available_bytes: int = 100_000_000,
        deadline_seconds: float = 1_000.0,
        fetch_messages: int = 5_000,
    ) -> None:
        config = FlowConfig(2, fetch_messages=fetch_messages)
        self.ledger = ledger_of(2, available_bytes=available_bytes)
        self.ledger.use_model(costs(parent_seconds_per_message=1e-4))
        standing = Standing(config, deadline_seconds, "shutdown-grace", available_bytes, sized=True)
        self.admission = Admission(
            self.ledger,
            LIMITS,
            standing,
            ordering=Ordering.KEY,
            shard_count=16,
            max_uncommitted_messages=1_000_000,
        )
        self.plan = FetchPlan(self.ledger, self.admission, config)
        self.state = PartitionState(TOWN, epoch=1)
        self.pieces = Pieces(self.ledger)
        self.next_offset = 0

    def fetch(self, records: int, now: float = 1.0, *, payload_bytes: int = 64) -> None:
        """Have a call bring records of one vertex."""
        run = run_of(self.next_offset, [1] * records, payload_bytes=payload_bytes)
        self.next_offset += records
        self.plan.note(run, now)
        self.admission.queue(self.state, run)

    def hold(self, records: int, *, payload_bytes: int = 64) -> None:
        """Have records in flight, all of them waiting for a process."""
        self.fetch(records, payload_bytes=payload_bytes)
        self.admission.admit(1.0)

    def next(
        self,
        ratios: Mapping[str, float] | None = None,
        *,
        report: SizingReport | None = None,
        serve_only: bool = False,
    ) -> Fetch | None:
        """Return the next call, with the limits as full as they are, or as is said."""
        verdict = self.admission.judge() if ratios is None else Verdict("", ratios)
        return self.plan.next(verdict, self.ledger.value(), report, serve_only=serve_only)


# -- waiting for the first of new records ---------------------------------------------------------


def test_with_nothing_held_a_call_waits_for_the_first_record() -> None:
    """A tenth of a second, for one: it is gathered as soon as it is there."""
    assert Desk().next() == Fetch(1, 0.1)


def test_after_a_call_that_brought_something_the_next_does_not_wait() -> None:
    """More is there, and all of it is taken. When nothing comes of that, it waits again."""
    desk = Desk()
    desk.fetch(3)
    desk.admission.drop_pending(desk.state)
    assert desk.next() == Fetch(120, 0.0)
    assert desk.next() == Fetch(1, 0.1)


def test_until_the_memory_is_known_one_record_at_a_time_is_taken() -> None:
    """There is no room that could be filled."""
    desk = Desk(available_bytes=0)
    desk.fetch(3)
    desk.admission.drop_pending(desk.state)
    assert desk.next() == Fetch(1, 0.1)


def test_with_something_in_flight_no_call_waits() -> None:
    """What processes have done is waited for, elsewhere."""
    desk = Desk()
    desk.hold(3)
    calls = [desk.next({"memory": 0.0}, report=report_of(100)) for _ in range(2)]
    assert calls == [Fetch(120, 0.0)] * 2


# -- serving the client ---------------------------------------------------------------------------


def test_while_everything_is_paused_a_call_serves_the_clients_callbacks() -> None:
    """It brings nothing, and waits only where nothing else can happen."""
    desk = Desk()
    assert desk.next(serve_only=True) == Fetch(1, 0.02)
    desk.fetch(3)
    assert desk.next(serve_only=True) == SERVE
    desk.admission.admit(1.0)
    assert desk.next(serve_only=True) == SERVE


# -- no room --------------------------------------------------------------------------------------


def test_nothing_is_fetched_while_the_next_record_is_refused() -> None:
    """It waits for room, and so would whatever came."""
    desk = Desk(deadline_seconds=0.155)
    # Two processes: 100 records are 0.05 s of work, 0.01 s of the parent, 0.1 s of two chunks.
    desk.hold(100)
    assert desk.admission.refused_by == "deadline"
    assert desk.next() is None
    assert desk.plan.fullest(desk.admission.judge())[0] == "deadline"


def test_nothing_is_fetched_while_something_fetched_waits_for_room() -> None:
    """The tick that follows lets it in."""
    desk = Desk()
    desk.hold(3)
    desk.fetch(3)
    assert desk.admission.waits_for_room
    assert desk.next() is None


def test_what_waits_for_its_own_partition_keeps_no_others_from_being_fetched() -> None:
    """Its chain is long; the client's other partitions have nothing to do with it."""
    desk = Desk(deadline_seconds=10.0)
    desk.admission.queue(desk.state, run_of(0, [9_000], [5]))
    desk.admission.admit(1.0)
    desk.admission.queue(desk.state, run_of(1, [1], [6]))
    desk.admission.admit(1.0)
    assert list(desk.admission.held_back) == [TOWN]
    assert desk.next({"deadline": 0.875}, report=report_of(100)) == Fetch(15, 0.0)


@pytest.mark.parametrize(
    ("ratio", "fullest"), [(0.95, ("", 0.95)), (0.96, ("memory", 0.96)), (1.3, ("memory", 1.0))]
)
def test_a_window_of_which_less_than_a_twentieth_is_free_is_full(
    ratio: float, fullest: tuple[str, float]
) -> None:
    """By the fullest of its limits; more than full is full."""
    desk = Desk()
    desk.hold(3)
    ratios = {"deadline": 0.2, "memory": ratio}
    assert desk.plan.fullest(Verdict("", ratios)) == fullest
    assert (desk.next(ratios) is None) is bool(fullest[0])


def test_with_nothing_in_flight_nothing_is_full() -> None:
    """A limit that is full of nothing would never be emptied."""
    assert Desk().plan.fullest(Verdict("", {"memory": 2.0})) == ("", 2.0)


def test_a_refused_head_says_which_limit_is_full() -> None:
    """Not the fullest one: the one that refused, as full as it is, at most whole."""
    desk = Desk()
    desk.hold(3)
    desk.admission.refused_by = "memory"
    assert desk.plan.fullest(Verdict("", {"deadline": 0.9, "memory": 0.6})) == ("memory", 0.6)
    assert desk.plan.fullest(Verdict("", {"deadline": 0.9, "memory": 1.6})) == ("memory", 1.0)


# -- how many -------------------------------------------------------------------------------------


def test_before_anything_is_known_a_window_of_a_hundred_is_asked_for() -> None:
    """A fifth more, since what does not fit waits raw; less what is in use."""
    desk = Desk()
    desk.fetch(3)
    desk.admission.drop_pending(desk.state)
    assert desk.next({"memory": 0.5}) == Fetch(60, 0.0)


def test_before_a_sizing_what_is_in_flight_says_how_many_fill_the_window() -> None:
    """Forty fill a tenth, so 400 fill it: 1.2 * 400 * 0.9."""
    desk = Desk()
    desk.hold(40)
    assert desk.next({"memory": 0.1}) == Fetch(432, 0.0)
    assert desk.next({"memory": 0.0}) == Fetch(120, 0.0)


def test_a_sizing_says_how_many_fill_the_window() -> None:
    """A budget of 300, a quarter free of the fullest limit: 1.2 * 300 * 0.25."""
    desk = Desk()
    desk.hold(40)
    assert desk.next({"memory": 0.75, "deadline": 0.1}, report=report_of(300)) == Fetch(90, 0.0)


def test_more_in_flight_than_the_budget_is_a_lighter_mix() -> None:
    """Then what is in flight says how many fill the window: 1.2 * 40 * 0.5."""
    desk = Desk()
    desk.hold(40)
    assert desk.next({"memory": 0.5}, report=report_of(10)) == Fetch(24, 0.0)


def test_where_there_is_room_at_least_one_is_asked_for() -> None:
    """1.2 * 3 * 0.06 are none; a limit that is over asks for none as well, with nothing held."""
    desk = Desk()
    desk.hold(3)
    assert desk.next({"memory": 0.94}, report=report_of(1)) == Fetch(1, 0.0)
    empty = Desk()
    empty.fetch(3)
    empty.admission.drop_pending(empty.state)
    assert empty.next({"memory": 2.0}) == Fetch(1, 0.0)


def test_a_fetch_costs_the_parent_no_more_than_a_chunk() -> None:
    """While it fetches no process gets anything: 50 ms at 0.1 ms a record. Chunks may be longer."""
    desk = Desk()
    desk.hold(3)
    assert desk.next({"memory": 0.0}, report=report_of(100_000)) == Fetch(500, 0.0)
    desk.ledger.use_chunk_seconds(0.2)
    assert desk.next({"memory": 0.0}, report=report_of(100_000)) == Fetch(2_000, 0.0)


def test_a_fetch_asks_for_no_more_than_is_set() -> None:
    """However much room there is."""
    desk = Desk(fetch_messages=200)
    desk.hold(3)
    assert desk.next({"memory": 0.0}, report=report_of(100_000)) == Fetch(200, 0.0)


# -- large records --------------------------------------------------------------------------------


def test_where_room_is_small_a_fetch_is_small() -> None:
    """A call returns what the client has, whatever its bytes: 10,000 fit into the room once."""
    desk = Desk(available_bytes=100_000)
    desk.hold(1, payload_bytes=10_000)
    # Held 10,200 bytes; 157 units of class 3 stand for 255, and both processes may work on them.
    assert desk.ledger.value().room_bytes == 2 * 25_500
    # 100,000 - 51,000 - 10,200 = 38,800.
    assert desk.next({"memory": 0.0}, report=report_of(1_000)) == Fetch(3, 0.0)


def test_where_the_room_is_larger_than_the_clients_queue_bytes_do_not_matter() -> None:
    """The client cannot return more than it may hold."""
    desk = Desk(available_bytes=100_000_000)
    desk.hold(1, payload_bytes=1_000_000)
    assert desk.next({"memory": 0.0}, report=report_of(1_000)) == Fetch(500, 0.0)


def test_the_largest_record_of_the_last_half_minute_counts() -> None:
    """Small ones do not make it forgotten before; a larger one takes its place."""
    desk = Desk(available_bytes=100_000)
    desk.fetch(1, 1.0, payload_bytes=10_000)
    desk.fetch(5, 31.0, payload_bytes=64)
    desk.admission.drop_pending(desk.state)
    assert desk.next({"memory": 0.0}, report=report_of(1_000)) == Fetch(10, 0.0)
    desk.fetch(5, 31.5, payload_bytes=1_000)
    desk.admission.drop_pending(desk.state)
    assert desk.next({"memory": 0.0}, report=report_of(1_000)) == Fetch(100, 0.0)
    desk.fetch(5, 31.6, payload_bytes=2_000)
    desk.admission.drop_pending(desk.state)
    assert desk.next({"memory": 0.0}, report=report_of(1_000)) == Fetch(50, 0.0)


def test_nothing_is_fetched_where_the_next_record_may_not_fit() -> None:
    """It is as large as the largest so far; a tenth of the memory may be fetched and wait."""
    desk = Desk(available_bytes=100_000)
    desk.hold(4, payload_bytes=10_000)
    # 100,000 - 51,000 - 4 * 10,200 = 8,200, and a tenth of the memory is 10,000.
    assert desk.next({"memory": 0.83}) == Fetch(1, 0.0)
    tight = Desk(available_bytes=99_000)
    tight.hold(4, payload_bytes=10_000)
    # 7,200, and 9,900.
    assert tight.next({"memory": 0.85}) is None


def test_with_nothing_held_but_retries_one_record_is_fetched_regardless() -> None:
    """They may need what the next one brings."""
    desk = Desk(available_bytes=99_000)
    desk.hold(4, payload_bytes=10_000)
    chain = desk.state.chains[FREE_SHARD]
    piece = desk.pieces.take(chain)
    desk.pieces.enter([piece])
    # 99,000 - 4 * 10,200 - 50,000 = 8,200.
    desk.ledger.hold_delivery(50_000)
    assert desk.next({"memory": 0.85}) is None
    desk.pieces.leave(piece)
    (part,) = desk.pieces.replace(piece, [([0, 1, 2, 3], PieceState.RETRYING)])
    desk.pieces.retry(part, 9.0)
    assert desk.next({"memory": 0.85}) == Fetch(1, 0.0)


def test_what_is_fetched_and_waits_may_hold_a_tenth_of_the_memory() -> None:
    """It takes from the room that the next fetch has."""
    desk = Desk(available_bytes=100_000)
    desk.hold(4, payload_bytes=10_000)
    desk.ledger.hold_pending(desk.ledger.in_flight * 0 + 1)
    assert desk.ledger.pending_bytes == HELD - 64 + 1
    assert desk.next({"memory": 0.83}) is None


# -- waiting for results --------------------------------------------------------------------------


def test_a_turn_waits_for_results_as_long_as_nothing_else_is_to_be_done() -> None:
    """5 ms where records could be fetched, 20 ms where there is no room, not at all for nothing."""
    desk = Desk()
    assert desk.plan.result_wait_seconds(has_room=True) == 0.0
    assert desk.plan.result_wait_seconds(has_room=False) == 0.0
    desk.hold(1)
    assert desk.plan.result_wait_seconds(has_room=True) == 0.005
    assert desk.plan.result_wait_seconds(has_room=False) == 0.02
