"""Whatever the mix, a bound is the largest number that its inequality lets in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sizing.bounds import Bounds, Situation, bounds_of_mix, chunk_working_bytes
from sizing.charge import WORK_SHARE_RATIO, drain_bound_seconds, room_for_work_bytes
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES, Load
from sizing.model import CostModel
from tests.sizing.mixes import loads, models


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """From one process in a small container to 32 in a large one."""
    processes = draw(st.integers(1, 32))
    return Situation(
        processes,
        draw(st.integers(10**6, 10**11)),
        draw(st.floats(0.5, 600.0)),
        draw(st.floats(0.001, 0.2)),
        draw(st.integers(10**4, 10**8)),
        tuple(draw(st.lists(st.floats(0, 1e8), min_size=processes, max_size=processes))),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Load, CostModel, Situation, dict[str, float]]:
    """Everything that a bound depends on; the heaviest record is one of the mix."""
    mix, model, situation = draw(loads()), draw(models()), draw(situations())
    share = draw(st.floats(1.0 / float(mix[RECORDS]), 1.0))
    others = {
        "largest_chain_ratio": draw(st.floats(0.0, 1.0)),
        "heaviest_working_bytes": share * model.working_bytes(mix),
        "heaviest_seconds": share * model.seconds(mix),
    }
    return mix, model, situation, others


def drain_seconds(n: int, case: Any, both: Bounds) -> float:
    """The drain bound of n messages of the mix."""
    mix, model, situation, others = case
    seconds = n * model.seconds(mix) / float(mix[RECORDS])
    longest = max(others["largest_chain_ratio"] * seconds, others["heaviest_seconds"])
    return drain_bound_seconds(
        n,
        seconds,
        longest,
        parent_seconds_per_message=model.parent_seconds_per_message,
        effective=both.effective_processes,
        chunk_seconds=situation.chunk_seconds,
    )


@given(cases())
def test_the_deadline_bound_is_the_largest_that_drains_in_time(case: Any) -> None:
    """Its messages meet the deadline and one more does not, but for the one that runs alone."""
    mix, model, situation, others = case
    both = bounds_of_mix(mix, model, situation, **others)
    deadline = situation.drain_deadline_seconds
    n = both.messages["deadline"]
    if n > 1:
        assert drain_seconds(n, case, both) <= deadline * (1 + 1e-9)
    assert drain_seconds(n + 1, case, both) > deadline * (1 - 1e-9)


@given(cases())
def test_the_memory_bound_is_the_largest_that_fits_beside_the_work(case: Any) -> None:
    """Its messages fit raw beside the room for work, and one more does not."""
    mix, model, situation, others = case
    both = bounds_of_mix(mix, model, situation, **others)
    available = situation.memory_available_bytes
    chunk = chunk_working_bytes(mix, others["heaviest_working_bytes"], model, situation)
    room = room_for_work_bytes(
        sum(max(kept, chunk) for kept in situation.keeps_bytes),
        max(others["heaviest_working_bytes"], chunk),
        situation.processes,
        available,
    )
    # What does not fit beside 0.3 of the memory waits, down to one chunk.
    room = min(room, max(WORK_SHARE_RATIO * available, sum(situation.keeps_bytes) + chunk))
    held = model.held_bytes(mix) / float(mix[RECORDS])
    n = both.messages["memory"]
    if n > 1:
        assert n * held + room <= available * (1 + 1e-9)
    assert (n + 1) * held + room > available * (1 - 1e-9)


@given(cases())
def test_the_budget_is_the_smaller_bound_in_both_units(case: Any) -> None:
    """Vertices and messages of one limit, and the binding bound is the one they are of."""
    mix, model, situation, others = case
    both = bounds_of_mix(mix, model, situation, **others)
    assert both.budget_vertices == min(both.vertices["memory"], both.vertices["deadline"])
    assert both.budget_messages == min(both.messages["memory"], both.messages["deadline"])
    assert both.budget_messages >= 1
    binding = {
        "memory": (both.vertices["memory"], both.messages["memory"]),
        "deadline": (both.vertices["deadline"], both.messages["deadline"]),
    }[both.binding]
    assert binding == (both.budget_vertices, both.budget_messages)
    per_message = float(mix[VERTICES]) / float(mix[RECORDS])
    assert abs(both.budget_vertices - both.budget_messages * per_message) <= per_message + 1
    assert 1.0 <= both.effective_processes <= situation.processes


@given(cases(), st.floats(1.0, 100.0))
def test_more_of_anything_good_never_lowers_a_bound(case: Any, factor: float) -> None:
    """More memory, more time, a faster handler, a faster parent, leaner records."""
    mix, model, situation, others = case
    before = bounds_of_mix(mix, model, situation, **others)

    def after(model: CostModel = model, situation: Situation = situation, **some: float) -> Bounds:
        return bounds_of_mix(mix, model, situation, **(others | some))

    larger = int(situation.memory_available_bytes * factor)
    roomy = after(situation=replace(situation, memory_available_bytes=larger))
    assert roomy.messages["memory"] >= before.messages["memory"]
    assert roomy.effective_processes >= before.effective_processes

    longer = situation.drain_deadline_seconds * factor
    patient = after(situation=replace(situation, drain_deadline_seconds=longer))
    assert patient.messages["deadline"] >= before.messages["deadline"]
    assert patient.messages["memory"] == before.messages["memory"]

    parent = model.parent_seconds_per_message / factor
    assert (
        after(replace(model, parent_seconds_per_message=parent)).messages["deadline"]
        >= before.messages["deadline"]
    )
    lean = after(replace(model, held_copies=model.held_copies / factor))
    assert lean.messages["memory"] >= before.messages["memory"]
    spread = after(largest_chain_ratio=others["largest_chain_ratio"] / factor)
    assert spread.messages["deadline"] >= before.messages["deadline"]
    light = after(heaviest_seconds=others["heaviest_seconds"] / factor)
    assert light.messages["deadline"] >= before.messages["deadline"]


@given(cases(), st.integers(2, 4))
def test_more_processes_never_make_more_room_to_wait(case: Any, times: int) -> None:
    """The memory is shared: with chunks of the same size, the memory bound falls or stays."""
    mix, model, situation, others = case
    few = replace(situation, keeps_bytes=())
    many = replace(few, processes=times * few.processes)
    before = bounds_of_mix(mix, model, few, **others)
    after = bounds_of_mix(mix, model, many, **others)
    heaviest = others["heaviest_working_bytes"]
    if chunk_working_bytes(mix, heaviest, model, few) == chunk_working_bytes(
        mix, heaviest, model, many
    ):
        assert after.messages["memory"] <= before.messages["memory"]
        assert after.effective_processes >= before.effective_processes


@given(cases())
def test_what_is_held_raw_is_never_less_than_all_decoded(case: Any) -> None:
    """The article's figure, with everything decoded at once, is stricter where work is heavy."""
    mix, model, situation, others = case
    both = bounds_of_mix(mix, model, replace(situation, keeps_bytes=()), **others)
    raw = model.held_bytes(mix)
    if model.working_bytes(mix) >= 2.5 * raw and mix[PAYLOAD_BYTES] > 0:
        # At 0.3 of the memory for raw records, decoded ones 3.5 times as large are fewer.
        assert both.vertices["memory"] + float(mix[VERTICES]) >= both.all_decoded_vertices
