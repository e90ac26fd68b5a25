"""Both bounds: each formula by hand, and the properties that make them bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing.bounds import (
    MOST_MESSAGES,
    Bounds,
    Situation,
    bounds_of_mix,
    chunk_working_bytes,
    drain_deadline,
    memory_available_bytes,
)
from sizing.charge import (
    drain_bound_seconds,
    effective_processes,
    predicted_drain_seconds,
    room_for_work_bytes,
)
from sizing.load import Load
from sizing.model import CostModel
from tests.sizing.mixes import flat_model, load_of

amounts = st.floats(0.0, 1e6)


# -- the formulas ------------------------------------------------------------------------------


def test_available_memory_is_what_nothing_else_needs() -> None:
    """1,000 MB * 0.8 - 300 MB at rest - 64 MB prefetched = 436 MB."""
    mb = 10**6
    assert memory_available_bytes(1_000 * mb, 300 * mb, 64 * mb, 0.8) == 436 * mb


def test_a_container_that_is_too_small_has_nothing_available() -> None:
    """100 MB * 0.8 - 120 MB is below zero, and no work can use it."""
    assert memory_available_bytes(100, 120, 0, 0.8) == 0


def test_the_deadline_comes_from_the_shorter_of_both_times() -> None:
    """A share of the poll interval or of the grace, and which of them it is."""
    assert drain_deadline(300.0, 30.0, 0.5) == (15.0, "shutdown-grace")
    assert drain_deadline(30.0, 60.0, 0.5) == (15.0, "max.poll.interval")
    assert drain_deadline(30.0, 30.0, 0.4) == (12.0, "max.poll.interval")


def test_room_is_for_what_is_inside_and_the_heaviest_that_waits() -> None:
    """40 inside and 30 to follow need 70; four processes at 30 each 120; of 100, at most 70."""
    assert room_for_work_bytes(40.0, 30.0, 1, 1_000.0) == 70.0
    assert room_for_work_bytes(40.0, 30.0, 4, 1_000.0) == 120.0
    assert room_for_work_bytes(0.0, 30.0, 4, 100.0) == pytest.approx(70.0)
    assert room_for_work_bytes(90.0, 30.0, 4, 100.0) == 120.0


def test_effective_processes_are_what_the_room_lets_work() -> None:
    """100 / 40 = 2.5 of 4; never under one, never over all; light work uses all."""
    assert effective_processes(100.0, 40.0, 4) == 2.5
    assert effective_processes(10.0, 40.0, 4) == 1.0
    assert effective_processes(1_000.0, 40.0, 4) == 4.0
    assert effective_processes(1_000.0, 0.0, 4) == 4.0


def test_the_drain_bound_is_grahams_with_the_parent() -> None:
    """1,000 * 1 ms + 8 / 4 + (1 - 1/4) * 2 + 2 * 0.05 = 1 + 2 + 1.5 + 0.1 = 4.6 s."""
    bound = drain_bound_seconds(
        1_000, 8.0, 2.0, parent_seconds_per_message=1e-3, effective=4.0, chunk_seconds=0.05
    )
    assert bound == pytest.approx(4.6)


def test_nothing_drains_in_no_time() -> None:
    """Without records there are no chunks to wait for either."""
    bound = drain_bound_seconds(
        0, 0.0, 0.0, parent_seconds_per_message=1e-3, effective=1.0, chunk_seconds=0.05
    )
    assert bound == 0.0


def test_the_predicted_drain_is_its_slowest_part() -> None:
    """The parent 5,000 * 1 ms = 5 s; the processes 8 / 4 = 2 s; a chain of 3 s."""
    parts = {"parent_seconds_per_message": 1e-3, "effective": 4.0}
    assert predicted_drain_seconds(5_000, 8.0, 3.0, **parts) == 5.0
    assert predicted_drain_seconds(10, 80.0, 3.0, **parts) == 20.0
    assert predicted_drain_seconds(10, 8.0, 3.0, **parts) == 3.0


@given(
    st.tuples(st.floats(1.0, 1e6), amounts, st.floats(0.0, 1.0)),
    st.floats(0.0, 1.0),
    st.floats(1.0, 64.0),
)
def test_the_prediction_never_exceeds_the_bound(
    held: tuple[float, float, float], parent: float, effective: float
) -> None:
    """A chain is a part of all seconds, so the slowest part alone is within the bound."""
    messages, seconds, chain = held
    figures = {"parent_seconds_per_message": parent, "effective": effective}
    longest = chain * seconds
    bound = drain_bound_seconds(messages, seconds, longest, chunk_seconds=0.0, **figures)
    predicted = predicted_drain_seconds(messages, seconds, longest, **figures)
    assert predicted <= bound * (1 + 1e-9)


@given(
    st.lists(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8), min_size=1, max_size=12),
    st.integers(1, 8),
)
def test_no_list_schedule_takes_longer_than_the_bound(
    chains: list[list[float]], processes: int
) -> None:
    """Chains of records worked off in any order by processes that never wait in vain."""
    free = [0.0] * processes
    ready = [(0.0, number) for number in range(len(chains))]
    left = [list(chain) for chain in chains]
    while ready:
        process = free.index(min(free))
        # The chain that may go first of all; a process that would wait for it takes it anyway.
        ready.sort()
        since, number = ready.pop(0)
        free[process] = max(free[process], since) + left[number].pop(0)
        if left[number]:
            ready.append((free[process], number))
    bound = drain_bound_seconds(
        sum(map(len, chains)),
        sum(map(sum, chains)),
        max(map(sum, chains)),
        parent_seconds_per_message=0.0,
        effective=float(processes),
        chunk_seconds=0.0,
    )
    assert max(free) <= bound * (1 + 1e-9)


# -- a mix by hand -----------------------------------------------------------------------------

#: 100 parcels of 20 vertices in 1,000 bytes: 20 units each
PARCELS = load_of([20] * 100, [1_000] * 100)
#: 1 us and 100 bytes a unit, 2 us a message in the parent, 1,200 bytes held a message
MODEL = flat_model(1e-6, 100.0, 2e-6, held_bytes_per_record=200.0)
SITUATION = Situation(4, 100_000_000, 15.0, 0.06, 2_000_000)


def bounds(mix: Load, model: CostModel, situation: Situation, **others: float) -> Bounds:
    return bounds_of_mix(
        mix,
        model,
        situation,
        largest_chain_ratio=others.get("largest_chain_ratio", 0.0),
        heaviest_working_bytes=others.get("heaviest_working_bytes", 0.0),
        heaviest_seconds=others.get("heaviest_seconds", 0.0),
    )


def test_a_chunk_ends_at_the_first_of_its_limits() -> None:
    """Its time, its raw bytes, or a quarter of a process's part of the work memory."""
    # By time 0.06 s / 20 us = 3,000 messages, by raw bytes 2,000; at 2,000 bytes decoded each 4 MB.
    # A quarter of the part is 100 MB * 0.7 / 4 / 4 = 4.375 MB, of half the memory 2.1875 MB.
    assert chunk_working_bytes(PARCELS, 2_000.0, MODEL, SITUATION) == pytest.approx(4e6)
    less = replace(SITUATION, memory_available_bytes=50_000_000)
    assert chunk_working_bytes(PARCELS, 2_000.0, MODEL, less) == pytest.approx(2.1875e6)
    tiny = replace(SITUATION, memory_available_bytes=1_000)
    assert chunk_working_bytes(PARCELS, 2_000.0, MODEL, tiny) == 2_000.0


def test_both_bounds_of_a_mix_by_hand() -> None:
    """Parcels in four processes, a tenth of the work in one chain: memory binds."""
    # Chunks of 4 MB: inside 4 * 4 MB, and one more to follow: 20 MB of room.
    # Memory: (100 MB - 20 MB) / 1,200 = 66,666.67 messages of 20 vertices.
    # Deadline, P_eff = 4: a message takes 2 us + 20 us / 4 + 3/4 * 0.1 * 20 us = 8.5 us;
    # (15 s - 0.12 s) / 8.5 us = 1,750,588.
    both = bounds(PARCELS, MODEL, SITUATION, largest_chain_ratio=0.1)
    assert (both.messages["memory"], both.vertices["memory"]) == (66_666, 1_333_333)
    assert both.messages["deadline"] == 1_750_588
    assert both.effective_processes == 4.0
    assert (both.binding, both.budget_messages) == ("memory", 66_666)
    assert both.budget_vertices == both.vertices["memory"]
    # All decoded at once, as the article has it: 100 MB / (1,200 + 2,000) = 31,250 messages.
    assert both.all_decoded_vertices == 625_000


def test_a_slow_handler_makes_the_deadline_bind() -> None:
    """At 100 us a unit, 2 ms a message: (15 - 0.12) / (2 us + 0.5 ms) = 29,641."""
    both = bounds(PARCELS, replace(MODEL, seconds_per_unit=np.full(16, 1e-4)), SITUATION)
    assert (both.binding, both.messages["deadline"]) == ("deadline", 29_641)


def test_the_heaviest_record_may_be_the_longest_chain() -> None:
    """One of 4 s in P_eff = 4: (14.88 - 3/4 * 4) / 7 us = 1,697,142 messages."""
    both = bounds(PARCELS, MODEL, SITUATION, heaviest_seconds=4.0)
    assert both.messages["deadline"] == 1_697_142


def test_one_record_always_runs() -> None:
    """Neither no memory nor no time lets in less than one message of the mix."""
    both = bounds(PARCELS, MODEL, Situation(4, 0, 0.0, 0.06, 2_000_000))
    assert (both.messages["memory"], both.messages["deadline"]) == (1, 1)
    assert both.budget_vertices == 20


def test_what_a_process_keeps_takes_room() -> None:
    """Four that keep 10 MB each leave 100 - 40 - 4 MB; (56 MB) / 1,200 = 46,666."""
    keeping = replace(SITUATION, keeps_bytes=(1e7,) * 4)
    assert bounds(PARCELS, MODEL, keeping).messages["memory"] == 46_666


def test_records_without_vertices_have_a_binding_bound_too() -> None:
    """Where both bounds are no vertices, the messages tell."""
    features = load_of([0] * 10, [1_000] * 10)
    both = bounds(features, MODEL, replace(SITUATION, memory_available_bytes=1_000_000))
    assert (both.vertices["memory"], both.vertices["deadline"]) == (0, 0)
    assert both.binding == "memory"


def test_a_chunk_of_nothing_is_empty_and_of_one_record_is_like_its_kind() -> None:
    """Only the mean record counts: one parcel makes the same chunks as a hundred."""
    assert chunk_working_bytes(load_of([], []), 2_000.0, MODEL, SITUATION) == 0.0
    one = load_of([20], [1_000])
    assert chunk_working_bytes(one, 2_000.0, MODEL, SITUATION) == pytest.approx(4e6)


def test_a_record_without_bytes_takes_one_byte_of_a_chunk() -> None:
    """Tombstones of one unit, 100 bytes: 20,000 of them by bytes, and 60,000 by time."""
    tombstones = load_of([0] * 10, [0] * 10)
    small = replace(SITUATION, chunk_bytes=20_000)
    assert chunk_working_bytes(tombstones, 0.0, MODEL, small) == pytest.approx(2e6)


def test_a_bound_that_is_a_whole_number_loses_none_to_rounding() -> None:
    """(140 MB - 20 MB) / 1,200 = 100,000 exactly."""
    situation = replace(SITUATION, memory_available_bytes=140_000_000)
    assert bounds(PARCELS, MODEL, situation).messages["memory"] == 100_000


def test_a_bound_of_a_trillion_messages_is_found() -> None:
    """(10**15 - 20 MB) / 1,200: neighbouring numbers are further apart than a millionth there."""
    huge = replace(SITUATION, memory_available_bytes=10**15)
    found = bounds(PARCELS, MODEL, huge).messages["memory"]
    assert found == pytest.approx(833_333_316_666, abs=1)


def test_one_chunk_has_its_room_beside_what_is_kept() -> None:
    """Four keep 40 of 50 MB; with one chunk of 2.1875 MB, 7.8125 MB / 1,200 = 6,510 wait."""
    keeping = replace(SITUATION, memory_available_bytes=50_000_000, keeps_bytes=(1e7,) * 4)
    assert bounds(PARCELS, MODEL, keeping).messages["memory"] == 6_510
    # Nothing is kept, and one record of 2,000 bytes is more than 0.7 of all: 2,800 - 2,000.
    light = flat_model(1e-6, 100.0, held_copies=0.0, held_bytes_per_record=1.0)
    small = replace(SITUATION, memory_available_bytes=2_800)
    heavy = bounds(PARCELS, light, small, heaviest_working_bytes=2_000.0)
    assert heavy.messages["memory"] == 800


def test_a_bound_may_be_of_any_part_of_a_charge() -> None:
    """1,000 vertices are 50 parcels; ten messages while 16 MB are inside the processes."""
    both = bounds_of_mix(
        PARCELS,
        MODEL,
        SITUATION,
        largest_chain_ratio=0.0,
        heaviest_working_bytes=0.0,
        heaviest_seconds=0.0,
        used={
            "vertices": lambda charge: charge.vertices / 1_000,
            "inside": lambda charge: charge.messages * charge.inside_bytes / 160e6,
            "unset": lambda charge: None,
        },
    )
    assert both.messages == {"vertices": 50, "inside": 10}
    assert both.vertices == {"vertices": 1_000, "inside": 200}


def test_records_that_cost_no_memory_are_a_byte_each_decoded() -> None:
    """Nothing held and nothing worked in divides no budget by zero: 100 MB / 1 of 20 vertices."""
    free = flat_model(1e-6, 0.0, held_copies=0.0)
    assert bounds(PARCELS, free, SITUATION).all_decoded_vertices == 2_000_000_000
    assert bounds(PARCELS, free, SITUATION).messages["memory"] == MOST_MESSAGES
