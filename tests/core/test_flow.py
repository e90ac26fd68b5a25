"""Which part of the core hears of an event, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig, Mode
from consumer.core.flow import Flow
from tests.core.building import SMALL_WARM_UP, TOWN, MiB, begun, of_kind, outcome, run_of, sized

VILLAGE = ("village", 3)
ONE = FlowConfig(1, shutdown_grace_seconds=2.0)


def holding(config: FlowConfig = ONE) -> tuple[Flow, cmd.Submit]:
    """A worker whose process is inside the record at offset 7."""
    flow, _ = begun(config)
    said = flow.step(ev.Fetched(0.1, (run_of(7, [20]),)))
    (submit,) = of_kind(cmd.Submit, said)
    return flow, submit


# -- the client ----------------------------------------------------------------------------------


def test_a_member_is_joined_when_the_group_says_so_and_until_the_client_is_lost() -> None:
    """And waits for its instance id only while the broker still holds the old one."""
    flow, _ = holding()
    assert not flow.snapshot().joined
    flow.step(ev.Joined(0.2))
    assert flow.snapshot().joined
    flow.step(ev.ClientLost(0.3, waits_for_instance_id=True))
    flow.step(ev.Tick(0.4))
    picture = flow.snapshot()
    assert (picture.joined, picture.state) == (False, "waiting-for-instance-id")
    flow.step(ev.Joined(0.5))
    flow.step(ev.Tick(0.6))
    assert flow.snapshot().state != "waiting-for-instance-id"


def test_what_a_lost_client_had_is_no_longer_ours() -> None:
    """Nothing is assigned, nothing is committed; what is inside comes back to nobody."""
    flow, submit = holding()
    flow.step(ev.ClientLost(0.3))
    assert flow.snapshot().assigned == ()
    said = flow.step(ev.ChunkFinished(0.4, 0, submit.chunk.chunk_id, outcome()))
    said += flow.step(ev.Tick(5.0))
    assert of_kind(cmd.Commit, said) == []
    assert flow.snapshot().in_flight_messages == 0


def test_an_answer_that_a_lost_client_owed_is_not_waited_for() -> None:
    """The commit that it was asked for was never answered; the next client commits."""
    flow, submit = holding()
    flow.step(ev.ChunkFinished(0.4, 0, submit.chunk.chunk_id, outcome()))
    assert of_kind(cmd.Commit, flow.step(ev.Tick(1.5))) == [cmd.Commit({TOWN: 8})]
    flow.step(ev.ClientLost(2.0))
    flow.step(ev.Assigned(4.0, (TOWN,)))
    flow.step(ev.EndReached(4.1, TOWN, 9))
    assert of_kind(cmd.Commit, flow.step(ev.Tick(4.2))) == [cmd.Commit({TOWN: 9})]


def test_a_failed_commit_is_told_and_tried_again() -> None:
    """The same offset, a second later."""
    flow, submit = holding()
    flow.step(ev.ChunkFinished(0.4, 0, submit.chunk.chunk_id, outcome()))
    flow.step(ev.Tick(1.5))
    (said,) = of_kind(cmd.Say, flow.step(ev.Committed(1.6, {TOWN: 8}, "coordinator is away")))
    assert said.text == "a commit failed: coordinator is away; it is tried again"
    assert of_kind(cmd.Commit, flow.step(ev.Tick(2.6))) == [cmd.Commit({TOWN: 8})]


def test_records_of_partitions_that_are_not_ours_are_not_taken() -> None:
    """Nor the answer of a commit, nor the end of a log, nor a run of nothing."""
    flow, _ = begun(ONE)
    flow.step(ev.Fetched(0.1, (run_of(7, [20], partition=VILLAGE), run_of(7, []))))
    flow.step(ev.EndReached(0.2, VILLAGE, 9))
    flow.step(ev.Committed(0.3, {VILLAGE: 9}))
    picture = flow.snapshot()
    assert picture.in_flight_messages == 0
    assert picture.committed_end == {}


def test_the_end_of_a_log_is_committed_when_all_is_done() -> None:
    """Markers of transactions are behind the last record: the lag reaches 0."""
    flow, submit = holding()
    flow.step(ev.EndReached(0.2, TOWN, 12))
    assert flow.snapshot().committed_end == {TOWN: 7}
    flow.step(ev.ChunkFinished(0.4, 0, submit.chunk.chunk_id, outcome()))
    assert flow.snapshot().committed_end == {TOWN: 12}


# -- giving back ---------------------------------------------------------------------------------


def test_a_revoked_partition_is_released_when_its_record_is_done() -> None:
    """Committed first, and waited for; the other partition stays."""
    flow, submit = holding()
    flow.step(ev.Assigned(0.15, (VILLAGE,)))
    assert of_kind(cmd.Release, flow.step(ev.Revoked(0.2, (TOWN,)))) == []
    flow.step(ev.EndReached(0.3, TOWN, 99))
    said = flow.step(ev.ChunkFinished(0.4, 0, submit.chunk.chunk_id, outcome()))
    assert of_kind(cmd.Commit, said) == [cmd.Commit({TOWN: 8}, wait=True)]
    assert of_kind(cmd.Release, said) == [cmd.Release((TOWN,))]
    assert flow.snapshot().assigned == (VILLAGE,)


def test_a_drain_of_partitions_that_are_lost_meanwhile_gives_nothing_back() -> None:
    """Whoever has them now was told by the broker."""
    flow, submit = holding()
    flow.step(ev.Revoked(0.2, (TOWN,)))
    said = flow.step(ev.Lost(0.3, (TOWN,)))
    said += flow.step(ev.ChunkFinished(0.4, 0, submit.chunk.chunk_id, outcome()))
    said += flow.step(ev.Tick(3.0))
    assert of_kind(cmd.Release, said) == []
    assert of_kind(cmd.Commit, said) == []


# -- processes -----------------------------------------------------------------------------------


def test_a_result_that_nobody_waits_for_is_passed_over() -> None:
    """A chunk of a process that died, whose answer was on its way."""
    flow, submit = holding()
    flow.step(ev.ProcessDied(0.2, 0, "signal 9 (SIGKILL)"))
    assert (
        of_kind(
            cmd.Submit,
            flow.step(ev.ChunkFinished(0.3, 0, submit.chunk.chunk_id, outcome())),
        )
        == []
    )
    assert flow.snapshot().in_flight_messages == 1


# -- the end -------------------------------------------------------------------------------------


def test_nothing_follows_close_but_words() -> None:
    """The tick that closes, and every one after it, neither fetches nor waits for results."""
    flow, _ = holding()
    assert cmd.Wait(0.005) in flow.step(ev.Tick(0.15))
    flow.step(ev.StopRequested(0.2))
    # The drain may take one second; the record is inside for longer.
    said = flow.step(ev.Tick(1.3))
    kinds = [type(c) for c in said if not isinstance(c, cmd.Say)]
    assert kinds == [cmd.KillProcess, cmd.Commit, cmd.Close]
    after = flow.step(ev.Tick(1.4))
    after += flow.step(ev.ProcessDied(1.5, 0, "signal 9 (SIGKILL)"))
    after += flow.step(ev.StopRequested(1.6, at_once=True)) + flow.step(ev.Tick(60.0))
    assert [c for c in after if not isinstance(c, cmd.Say)] == []
    assert [c.text for c in of_kind(cmd.Say, after) if "died" in c.text] == []


def test_a_second_signal_waits_for_nothing() -> None:
    """The record inside is let go: its offset is committed as the next to read."""
    flow, _ = holding()
    assert of_kind(cmd.Close, flow.step(ev.StopRequested(0.2))) == []
    said = flow.step(ev.StopRequested(0.3, at_once=True))
    assert of_kind(cmd.Commit, said) == [cmd.Commit({TOWN: 7}, wait=True, last=True)]
    assert len(of_kind(cmd.Close, said)) == 1


# -- budgets -------------------------------------------------------------------------------------


def test_nothing_is_sized_before_the_memory_is_known() -> None:
    """A bound would be of nothing."""
    flow = Flow(SMALL_WARM_UP)
    flow.step(ev.ProcessReady(0.0, 0, 40 * MiB))
    flow.step(ev.Assigned(0.0, (TOWN,)))
    assert of_kind(cmd.Publish, flow.step(ev.Tick(100.0))) == []
    assert flow.snapshot().sizing is None


def test_a_cap_holds_the_budget_and_says_so() -> None:
    """Of a bound of many vertices 1,000 are given: 50 messages of 20, rounded down twice."""
    flow, said = sized(replace(SMALL_WARM_UP, cap_vertices=1_000))
    (published,) = of_kind(cmd.Publish, said)
    report = published.report
    assert (report.vertex_budget, report.message_budget) == (1_000, 49)
    assert "the cap of 1,000 vertices holds the budget down" in report.notes
    assert min(report.bound_vertices.values()) > 1_000
    assert flow.snapshot().budget_vertices == 1_000


def test_a_fixed_budget_is_shown_in_messages_of_the_mix() -> None:
    """2,000 vertices are 100 messages of 20; before there is a mix nobody knows."""
    fixed = replace(SMALL_WARM_UP, fixed_vertices=2_000)
    before = Flow(fixed).snapshot()
    assert (before.budget_vertices, before.budget_messages) == (2_000, 0)
    picture = sized(fixed)[0].snapshot()
    assert picture.budget_vertices == 2_000
    assert picture.budget_messages == pytest.approx(100, abs=1)


def test_in_shadow_mode_nothing_limits_that_is_not_refused() -> None:
    """The deadline is computed and shown; only what memory refuses is held back."""
    flow, _ = sized(replace(SMALL_WARM_UP, mode=Mode.SHADOW))
    for number in range(3):
        flow.step(ev.Fetched(100.0 + number, (run_of(10_000 + 40_000 * number, [20] * 40_000),)))
        flow.step(ev.Tick(100.5 + number))
    picture = flow.snapshot()
    assert picture.in_flight_messages == 120_000
    assert picture.used_ratio["deadline"] > 1.0
    assert picture.limited_by == "none"
