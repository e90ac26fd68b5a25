"""When everything is paused and resumed, and which transitions the client is told."""

from __future__ import annotations

import pytest

from consumer.core.admission.pausing import PauseControl
from consumer.core.commands import Command, Pause, Resume
from consumer.core.ledger.columns import Partition

A, B, C = ("town", 0), ("town", 1), ("town", 2)
TWO = {A, B}
NONE: set[Partition] = set()


def full(
    pauses: PauseControl,
    now: float,
    *,
    refuser: str = "memory",
    ratio: float = 1.0,
    drain_seconds: float = 20.0,
    admitted_at: float = 0.0,
) -> bool:
    """Say that the next record does not fit; return whether everything is to be paused."""
    pauses.when_full(refuser, ratio, drain_seconds, admitted_at, now)
    return pauses.everything


def room(
    pauses: PauseControl, now: float, *, ratio: float = 0.5, work_left_seconds: float = 9.0
) -> bool:
    """Say that nothing is refused; return whether everything is to be paused still."""
    pauses.when_room(ratio, work_left_seconds, now)
    return pauses.everything


# -- pausing everything ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "drain_seconds", "paused"),
    [
        # From 1.0 to 0.5 is half of the work: 10.2 s of it take 5.1 s, 10 s take 5 s.
        (1.0, 10.2, True),
        (1.0, 10.0, False),
        # From 0.8 it is three eighths: 13.6 s of it take 5.1 s.
        (0.8, 13.6, True),
        (0.8, 13.2, False),
        # At half there is no way down at all.
        (0.5, 1_000.0, False),
        (0.0, 1_000.0, False),
    ],
)
def test_everything_is_paused_for_a_way_down_of_more_than_five_seconds(
    ratio: float, drain_seconds: float, paused: bool
) -> None:
    """To half of the limit, by prediction; a shorter one would be paused too often."""
    assert full(PauseControl(), 7.0, ratio=ratio, drain_seconds=drain_seconds) is paused


def test_no_prediction_pauses_for_the_small_first_budget() -> None:
    """It rests on priors, which may be wrong by orders of magnitude; being stuck is measured."""
    pauses = PauseControl()
    assert not full(pauses, 7.0, refuser="initial", drain_seconds=1_000.0)
    assert not full(pauses, 7.9, refuser="initial", drain_seconds=1_000.0)
    assert full(pauses, 8.0, refuser="initial", drain_seconds=1_000.0)
    assert pauses.refuser == "initial"


def test_everything_is_paused_when_nothing_was_let_in_for_a_second() -> None:
    """However short the way down is said to be. Whatever is let in meanwhile begins it anew."""
    pauses = PauseControl()
    assert not full(pauses, 7.0, drain_seconds=1.0)
    assert not full(pauses, 7.9, drain_seconds=1.0)
    assert not full(pauses, 8.4, drain_seconds=1.0, admitted_at=7.5)
    assert full(pauses, 8.5, drain_seconds=1.0, admitted_at=7.5)


def test_everything_is_paused_when_the_client_was_not_called_for_two_seconds() -> None:
    """A delayed fetch serves no callbacks; while paused the client is called, and not evicted."""
    pauses = PauseControl(served_at=5.5)
    assert not full(pauses, 7.4, drain_seconds=1.0, admitted_at=7.3)
    assert full(pauses, 7.5, drain_seconds=1.0, admitted_at=7.3)


def test_what_refused_when_everything_was_paused_is_remembered() -> None:
    """Its ratio says when to resume. Another limit that is full later changes only what is shown."""
    pauses = PauseControl()
    full(pauses, 7.0)
    full(pauses, 7.5, refuser="deadline")
    assert (pauses.refuser, pauses.full_by, pauses.all_since) == ("memory", "deadline", 7.0)


# -- resuming -------------------------------------------------------------------------------------


def paused_at(now: float) -> PauseControl:
    pauses = PauseControl()
    assert full(pauses, now)
    return pauses


def test_everything_is_resumed_at_half_of_the_limit_that_refused() -> None:
    """Not before: the way down would be gone through in slivers."""
    pauses = paused_at(7.0)
    assert room(pauses, 20.0, ratio=0.51)
    assert not room(pauses, 20.1, ratio=0.5)
    assert (pauses.refuser, pauses.full_by, pauses.full_since) == ("", "", None)


def test_everything_is_resumed_before_the_work_runs_out() -> None:
    """One long chain can hold the ratio up; the other processes have less than a second to do."""
    pauses = paused_at(7.0)
    assert room(pauses, 20.0, ratio=0.9, work_left_seconds=1.0)
    assert room(pauses, 20.0, ratio=1.0, work_left_seconds=0.9)
    assert not room(pauses, 20.0, ratio=0.9, work_left_seconds=0.9)
    # It has been full; the way down is not gone.
    assert pauses.full_by == "memory"


def test_a_pause_lasts_a_second_at_least() -> None:
    """Fetching again costs more than a shorter one saves."""
    pauses = paused_at(7.0)
    assert room(pauses, 7.9, ratio=0.0)
    assert not room(pauses, 8.0, ratio=0.0)


def test_what_was_full_is_shown_until_the_way_down_is_gone() -> None:
    """A record that is let in between two refusals does not make the worker look free."""
    pauses = PauseControl()
    full(pauses, 7.0, drain_seconds=1.0)
    room(pauses, 7.1, ratio=0.94)
    assert (pauses.full_by, pauses.full_since) == ("memory", 7.0)
    room(pauses, 7.2, ratio=0.5)
    assert (pauses.full_by, pauses.full_since) == ("", None)


def test_the_seconds_of_all_pauses_are_counted() -> None:
    """The one that lasts as well: 13.1 s, and 2 s so far."""
    pauses = paused_at(7.0)
    assert pauses.paused_seconds(8.0) == 1.0
    room(pauses, 20.1)
    assert pauses.paused_seconds(30.0) == pytest.approx(13.1)
    full(pauses, 40.0)
    assert pauses.paused_seconds(42.0) == pytest.approx(15.1)


def test_a_stop_pauses_everything_at_once() -> None:
    """Whether it was paused already, in which case the time goes on, or not."""
    pauses = PauseControl()
    pauses.begin("draining", 7.0)
    assert (pauses.all_since, pauses.refuser) == (7.0, "draining")
    pauses.begin("delivery", 9.0)
    assert (pauses.all_since, pauses.refuser) == (7.0, "delivery")
    pauses.end(10.0)
    assert not pauses.everything
    assert pauses.paused_seconds(11.0) == 3.0


def test_what_is_not_paused_can_end_all_the_same() -> None:
    """Nothing is counted for it."""
    pauses = PauseControl()
    pauses.end(10.0)
    assert not pauses.everything
    assert pauses.paused_seconds(11.0) == 0.0


# -- what the client is told ----------------------------------------------------------------------


def test_only_transitions_are_sent() -> None:
    """A pause throws away what the client has prefetched, so none is repeated."""
    pauses = paused_at(7.0)
    assert pauses.reconcile(TWO, NONE, 7.0) == [Pause((A, B))]
    assert pauses.reconcile(TWO, NONE, 7.1) == []
    pauses.end(9.0)
    assert pauses.reconcile(TWO, NONE, 9.0) == [Resume((A, B))]
    assert pauses.reconcile(TWO, NONE, 9.1) == []
    assert (pauses.pauses_total, pauses.resumes_total) == (1, 1)


def test_a_single_partition_is_paused_for_its_own_reason() -> None:
    """The others are not."""
    pauses = PauseControl()
    assert pauses.reconcile(TWO, {B}, 7.0) == [Pause((B,))]
    assert (pauses.paused, pauses.own) == ({B}, {B})
    assert pauses.reconcile(TWO, NONE, 9.0) == [Resume((B,))]
    assert pauses.own == set()


def test_a_partitions_own_pause_lasts_a_second_at_least() -> None:
    """As one of everything does, though its reason is gone. A second reason does not renew it."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {B}, 7.0)
    assert pauses.reconcile(TWO, NONE, 7.5) == []
    assert pauses.reconcile(TWO, {B}, 7.6) == []
    assert pauses.reconcile(TWO, NONE, 7.9) == []
    assert pauses.reconcile(TWO, NONE, 8.0) == [Resume((B,))]


def test_what_has_a_reason_of_its_own_stays_paused_when_the_rest_is_resumed() -> None:
    """And everything else is paused when one was already: one transition each."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {B}, 7.0)
    full(pauses, 7.5)
    assert pauses.reconcile(TWO, {B}, 7.5) == [Pause((A,))]
    pauses.end(9.0)
    assert pauses.reconcile(TWO, {B}, 9.0) == [Resume((A,))]


def test_one_is_paused_and_another_resumed_in_one_step() -> None:
    """The pause comes first: what is full is not to be fetched from."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {A}, 7.0)
    assert pauses.reconcile(TWO, {B}, 9.0) == [Pause((B,)), Resume((A,))]
    assert (pauses.pauses_total, pauses.resumes_total) == (2, 1)


def test_a_partition_that_is_no_longer_assigned_is_neither_paused_nor_resumed() -> None:
    """The client would refuse; nor is its own reason kept, however young it is."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {B}, 7.0)
    assert pauses.reconcile({A}, NONE, 7.1) == []
    assert (pauses.paused, pauses.own) == (set(), set())


# -- partitions that come and go ------------------------------------------------------------------


def test_new_partitions_start_in_the_state_that_is_wanted() -> None:
    """Whatever the client remembers of them: running ones are resumed, though never paused by us."""
    pauses = PauseControl()
    assert pauses.assigned((B, A), NONE) == [Resume((A, B))]
    assert pauses.assigned((C,), {C}) == [Pause((C,))]
    assert pauses.paused == {C}


def test_new_partitions_are_paused_while_everything_is() -> None:
    """They are part of everything, and nothing is sent again for them."""
    pauses = paused_at(7.0)
    pauses.reconcile({A}, NONE, 7.0)
    assert pauses.assigned((B, C), NONE) == [Pause((B, C))]
    assert pauses.reconcile({A, B, C}, NONE, 7.1) == []


def test_one_that_comes_back_runs_though_it_was_paused_when_it_went() -> None:
    """Its reason belonged to the epoch before."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {B}, 7.0)
    pauses.forget((B,))
    assert (pauses.paused, pauses.own) == (set(), set())
    back: list[Command] = pauses.assigned((B,), NONE)
    assert back == [Resume((B,))]
    assert pauses.reconcile(TWO, NONE, 7.1) == []


def test_one_that_is_assigned_again_without_having_gone_is_running() -> None:
    """The client has forgotten its pause; so have we."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {B}, 7.0)
    assert pauses.assigned((A, B), NONE) == [Resume((A, B))]
    assert pauses.paused == set()


def test_forgetting_one_that_was_not_paused_changes_nothing() -> None:
    """Most partitions are given back running."""
    pauses = PauseControl()
    pauses.reconcile(TWO, {A}, 7.0)
    pauses.forget((B,))
    assert (pauses.paused, pauses.own) == ({A}, {A})
