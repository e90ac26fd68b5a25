"""Ownership: epochs of partitions, what may be committed, and how partitions are given back."""

from __future__ import annotations

import pytest

from consumer.core.config import FlowConfig, Ordering
from consumer.core.events import RecordFault
from consumer.core.ledger.in_flight import PartitionState
from tests.core.completing import HELD, TOWN, Desk, fetched, outcome

ROADS = ("roads", 3)
BAD = RecordFault(0, "malformed-json", "", "cut off")
AGAIN = RecordFault(0, "retry-requested")


def fetch(desk: Desk, first_offset: int, count: int) -> None:
    """Fetch records of the town, and admit none."""
    desk.admission.queue(desk.state, fetched(first_offset, [5] * count))


# -- epochs ---------------------------------------------------------------------------------------


def test_each_assignment_begins_an_epoch() -> None:
    """Numbers rise over all partitions, and nothing of a new one is known."""
    desk = Desk()
    roads = desk.ownership.assign(ROADS)
    assert (desk.state.epoch, roads.epoch) == (1, 2)
    assert desk.ownership.states == {TOWN: desk.state, ROADS: roads}
    assert roads.committed_end() is None
    desk.ownership.fence(ROADS)
    assert desk.ownership.states == {TOWN: desk.state}
    assert desk.ownership.assign(ROADS).epoch == 3


def test_an_epoch_that_ends_lets_go_of_what_is_outside_a_process() -> None:
    """Fetched, waiting, retrying or on its way to the broker: only what is inside stays charged."""
    desk = Desk()
    desk.admit(10, [1, 2, 3, 4])
    desk.finish(desk.enter(1), outcome(failed=[BAD]))
    desk.finish(desk.enter(2), outcome(retry=[AGAIN]))
    chunk = desk.enter(3)
    fetch(desk, 14, 2)
    assert desk.records() == {"unacknowledged": 1, "retrying": 1, "inside": 1, "waiting": 1}
    assert desk.ledger.pending_bytes == 2 * HELD
    desk.ownership.fence(TOWN)
    assert desk.state.fenced
    assert desk.ownership.states == {}
    assert desk.records() == {"inside": 1}
    assert desk.ledger.pending_bytes == 0
    desk.finish(chunk, outcome())
    assert desk.records() == {}


def test_the_end_of_what_is_not_ours_changes_nothing() -> None:
    """A partition that was never assigned, or is gone already."""
    desk = Desk()
    desk.admit(10, [5])
    desk.ownership.fence(ROADS)
    assert desk.records() == {"waiting": 1}


def test_a_partition_that_is_assigned_again_begins_anew() -> None:
    """Its old epoch ends with it, though nobody has revoked it."""
    desk = Desk()
    desk.admit(10, [5])
    old = desk.state
    desk.state = desk.ownership.assign(TOWN)
    assert old.fenced
    assert not desk.state.fenced
    assert desk.records() == {}
    assert desk.ownership.ends() == {}


# -- the chains of a new epoch ----------------------------------------------------------------


def reassigned(desk: Desk) -> PartitionState:
    """End the town's epoch and begin another."""
    desk.ownership.fence(TOWN)
    desk.state = desk.ownership.assign(TOWN)
    return desk.state


def test_a_new_epochs_chain_waits_for_what_is_inside_of_the_old_one() -> None:
    """Two processes would have records of one key at a time; other keys go at once."""
    desk = Desk()
    desk.admit(10, [5])
    old = desk.enter(5)
    state = reassigned(desk)
    assert state.blocked_shards == {5}
    desk.admit(10, [5, 7])
    for shard in (5, 7):
        desk.dispatcher.make_ready(state.chains[shard])
    assert desk.ready() == [7]
    desk.finish(old, outcome())
    assert desk.ready() == [7, 5]
    assert state.blocked_shards == set()
    assert desk.records() == {"waiting": 2}


def test_a_chain_waits_for_the_last_of_several_chunks() -> None:
    """The old epoch's chain had two pieces inside, in two chunks."""
    desk = Desk()
    for offset in (10, 11):
        desk.admit(offset, [5])
    first, second = desk.enter(5), desk.enter(5)
    reassigned(desk)
    desk.admit(10, [5])
    desk.finish(first, outcome())
    assert desk.ready() == []
    desk.finish(second, outcome())
    assert desk.ready() == [5]


def test_a_death_lets_the_new_epochs_chain_go_as_well() -> None:
    """The process is gone, and with it what was inside."""
    desk = Desk()
    desk.admit(10, [5])
    old = desk.enter(5)
    reassigned(desk)
    desk.admit(10, [5])
    desk.die(old)
    assert desk.ready() == [5]


def test_shards_stay_blocked_over_epochs_in_which_nothing_went_inside() -> None:
    """The first epoch's chunk is still inside when the third begins."""
    desk = Desk()
    desk.admit(10, [5])
    old = desk.enter(5)
    reassigned(desk)
    state = reassigned(desk)
    assert state.blocked_shards == {5}
    desk.finish(old, outcome())
    assert state.blocked_shards == set()


def test_shards_of_several_old_epochs_are_blocked_together() -> None:
    """Shard 5 of the first and shard 7 of the second: each is free when its own chunk is back."""
    desk = Desk()
    desk.admit(10, [5])
    first = desk.enter(5)
    reassigned(desk)
    desk.admit(10, [7])
    second = desk.enter(7)
    state = reassigned(desk)
    assert state.blocked_shards == {5, 7}
    desk.finish(first, outcome())
    assert state.blocked_shards == {7}
    desk.finish(second, outcome())
    assert state.blocked_shards == set()


def test_an_old_epoch_of_which_nothing_is_inside_is_forgotten() -> None:
    """Its chunk came back, and an epoch has come and gone since."""
    desk = Desk()
    desk.admit(10, [5])
    old = desk.enter(5)
    reassigned(desk)
    desk.finish(old, outcome())
    state = reassigned(desk)
    assert desk.ownership._fenced == {}
    assert state.blocked_shards == set()


def test_records_without_order_block_nothing() -> None:
    """What is inside of the old epoch is in nobody's way."""
    desk = Desk(FlowConfig(2, ordering=Ordering.UNORDERED))
    desk.admit(10, [5])
    old = desk.enter(-1)
    state = reassigned(desk)
    assert state.blocked_shards == set()
    desk.finish(old, outcome())
    assert desk.records() == {}


def test_what_comes_back_of_a_partition_that_is_gone_frees_no_chain() -> None:
    """It was not assigned again, or has no record of that shard."""
    desk = Desk()
    desk.admit(10, [5, 7])
    first, second = desk.enter(5), desk.enter(7)
    desk.ownership.fence(TOWN)
    desk.finish(first, outcome())
    desk.state = desk.ownership.assign(TOWN)
    desk.admit(12, [1])
    desk.finish(second, outcome())
    assert desk.ready() == []
    assert desk.records() == {"waiting": 1}


# -- giving back ----------------------------------------------------------------------------------


def test_a_drain_lets_go_of_what_was_never_started() -> None:
    """Inside up to 11; 12 to 14 are waiting, retried or only fetched: the next owner reads them."""
    desk = Desk()
    desk.admit(10, [1, 2, 3])
    desk.admit(13, [3])
    desk.enter(1, 2)
    fetch(desk, 14, 1)
    desk.ownership.begin_drain((TOWN,), 25.0)
    assert desk.state.revoking
    assert desk.records() == {"inside": 2}
    assert desk.ledger.pending_bytes == 0
    assert desk.state.let_go_from == 12
    (drain,) = desk.ownership.drains
    assert (drain.partitions, drain.deadline_at) == ((TOWN,), 25.0)


def test_what_is_below_something_started_is_finished() -> None:
    """12 is inside, so 10 and 11 are finished: the next owner would do 12 again above a gap."""
    desk = Desk()
    desk.admit(10, [1, 2, 3, 4])
    chunk = desk.enter(3)
    desk.ownership.begin_drain((TOWN,), 25.0)
    assert desk.records() == {"inside": 1, "waiting": 2}
    (drain,) = desk.ownership.drains
    desk.finish(chunk, outcome())
    assert not desk.ownership.drained(drain)
    desk.finish(desk.enter(1, 2), outcome())
    assert desk.ownership.drained(drain)
    assert desk.ownership.ends() == {TOWN: 13}


@pytest.mark.parametrize("ending", ["done", "unacknowledged"])
def test_what_is_done_or_on_its_way_to_the_broker_was_started(ending: str) -> None:
    """Either way 11 was handled, and 10 is finished for it; 12 is let go."""
    desk = Desk()
    desk.admit(10, [1, 2, 3])
    failed = [BAD] if ending == "unacknowledged" else []
    desk.finish(desk.enter(2), outcome(failed=failed))
    desk.ownership.begin_drain((TOWN,), 25.0)
    assert desk.records().get("waiting") == 1
    assert desk.waiting(1) == [[10]]


def test_a_record_that_waits_for_a_retry_below_is_waited_for() -> None:
    """Above what was started it is let go like any other: it was not done."""
    desk = Desk()
    desk.admit(10, [1, 2, 3])
    desk.finish(desk.enter(1, 2, 3), outcome(retry=[AGAIN, RecordFault(2, "retry-requested")]))
    desk.ownership.begin_drain((TOWN,), 25.0)
    assert desk.records() == {"retrying": 1}
    assert desk.ownership.ends() == {TOWN: 10}
    assert list(desk.state.chains) == [1]


def test_partitions_that_are_given_back_are_dispatched_first() -> None:
    """Their time is short; those that stay go on after them."""
    desk = Desk()
    roads = desk.ownership.assign(ROADS)
    desk.admit(10, [1, 2], partition=ROADS)
    desk.admit(10, [3, 4])
    for state in (roads, desk.state):
        for chain in state.chains.values():
            desk.dispatcher.make_ready(chain)
    assert desk.ready() == [1, 2, 3, 4]
    desk.enter(4)
    desk.ownership.begin_drain((TOWN,), 25.0)
    assert desk.ready() == [3, 1, 2]


def test_a_drain_of_everything_is_drained_when_the_last_partition_is() -> None:
    """One that was not ours is nothing to wait for, and is answered with the others."""
    desk = Desk()
    roads = desk.ownership.assign(ROADS)
    desk.admit(10, [1], partition=ROADS)
    desk.admit(10, [2])
    first, second = desk.enter(2), desk.enter(1, state=roads)
    partitions = (TOWN, ROADS, ("sea", 0))
    desk.ownership.begin_drain(partitions, 25.0)
    (drain,) = desk.ownership.drains
    assert drain.partitions == partitions
    desk.finish(first, outcome())
    assert not desk.ownership.drained(drain)
    desk.finish(second, outcome())
    assert desk.ownership.drained(drain)


def test_a_partition_that_is_lost_while_it_drains_is_not_given_back() -> None:
    """It is not waited for either; the drain goes on with the others."""
    desk = Desk()
    desk.ownership.assign(ROADS)
    desk.admit(10, [5])
    desk.enter(5)
    desk.ownership.begin_drain((TOWN, ROADS), 25.0)
    (drain,) = desk.ownership.drains
    assert not desk.ownership.drained(drain)
    desk.ownership.fence(TOWN)
    assert drain.partitions == (ROADS,)
    assert desk.ownership.drained(drain)


# -- offsets --------------------------------------------------------------------------------------


def test_what_is_done_and_not_committed_may_be_committed() -> None:
    """Each partition's lowest record that is not done; nothing where that is committed already."""
    desk = Desk()
    roads = desk.ownership.assign(ROADS)
    desk.admit(10, [1, 2])
    desk.admit(70, [1], partition=ROADS)
    desk.finish(desk.enter(1), outcome())
    desk.finish(desk.enter(1, state=roads), outcome())
    assert desk.ownership.ends() == {TOWN: 11, ROADS: 71}
    roads.committed = 71
    assert desk.ownership.ends() == {TOWN: 11}


def test_only_the_partitions_that_are_asked_for_are_committed() -> None:
    """At a revoke those that go; one that is gone has nothing to commit."""
    desk = Desk()
    desk.ownership.assign(ROADS)
    desk.admit(10, [1])
    desk.admit(70, [1], partition=ROADS)
    assert desk.ownership.ends((ROADS, ("sea", 0))) == {ROADS: 70}
    assert desk.ownership.ends(()) == {}


def test_nothing_is_committed_where_nothing_was_read() -> None:
    """Zero would be an offset."""
    assert Desk().ownership.ends() == {}


def test_what_is_fetched_and_not_admitted_is_not_committed() -> None:
    """The position is above it, and the committed end is not."""
    desk = Desk()
    fetch(desk, 10, 3)
    assert desk.state.position == 13
    assert desk.ownership.ends() == {TOWN: 10}


def test_after_a_loss_nothing_is_committed() -> None:
    """What is done and was not committed is read again by the next owner, by ourselves as well."""
    desk = Desk()
    desk.admit(10, [1])
    desk.finish(desk.enter(1), outcome())
    assert desk.ownership.ends() == {TOWN: 11}
    desk.ownership.fence(TOWN)
    assert desk.ownership.ends() == {}
    desk.ownership.assign(TOWN)
    assert desk.ownership.ends() == {}


def test_nothing_above_what_was_let_go_is_committed() -> None:
    """11 was let go undone, then the end of the partition was reached at 20."""
    desk = Desk()
    desk.admit(10, [1, 2])
    chunk = desk.enter(1)
    desk.ownership.begin_drain((TOWN,), 25.0)
    desk.finish(chunk, outcome())
    desk.state.position = 20
    assert desk.ownership.ends() == {TOWN: 11}
