"""What a charge uses of memory and deadline, by hand and at the ends of each formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sizing.charge import (
    Charge,
    deadline_used_ratio,
    drain_bound_seconds,
    effective_processes,
    memory_used_ratio,
)
from sizing.load import RECORDS, zero_load


def charge(records: int, held_bytes: float, room_bytes: float, seconds: float) -> Charge:
    """Records of one process, each in a chain of its own; chunks of 50 ms, no cost in the parent."""
    load = zero_load()
    load[RECORDS] = records
    return Charge(load, load, held_bytes, 0.0, room_bytes, seconds, 0.0, 1.0, 0.0, 0.05)


def test_records_lighter_than_a_byte_use_the_room_as_well() -> None:
    """1 byte of room at half a byte each: two of four processes."""
    assert effective_processes(1.0, 0.5, 4) == 2.0


def test_one_record_takes_its_time() -> None:
    """1 ms in the parent, 100 ms of work and two chunks of 50 ms."""
    bound = drain_bound_seconds(
        1, 0.1, 0.1, parent_seconds_per_message=1e-3, effective=1.0, chunk_seconds=0.05
    )
    assert bound == pytest.approx(0.201)


def test_what_waits_is_held_against_the_memory_that_work_leaves() -> None:
    """300 of 1,000 - 400 bytes; a byte of the last one; more than everything where none is left."""
    assert memory_used_ratio(charge(3, 300.0, 400.0, 0.0), 1_000.0) == 0.5
    assert memory_used_ratio(charge(3, 1.0, 400.0, 0.0), 401.0) == 1.0
    assert memory_used_ratio(charge(3, 1.0, 400.0, 0.0), 400.0) == math.inf
    assert memory_used_ratio(charge(0, 1.0, 400.0, 0.0), 1_000.0) == pytest.approx(1 / 600)


def test_nothing_held_uses_no_memory_where_there_is_none() -> None:
    """An empty worker in a container that is too small lets the first record in."""
    assert memory_used_ratio(charge(0, 0.0, 400.0, 0.0), 300.0) == 0.0


def test_work_is_held_against_the_deadline() -> None:
    """0.1 s of work and two chunks of 50 ms are 0.2 s, of 0.4 s half; of no time too much."""
    assert deadline_used_ratio(charge(1, 0.0, 0.0, 0.1), 0.4) == pytest.approx(0.5)
    assert deadline_used_ratio(charge(1, 0.0, 0.0, 0.1), 0.0) == math.inf


def test_no_work_uses_no_deadline_where_there_is_none() -> None:
    """Nothing is finished in time however short that is."""
    assert deadline_used_ratio(charge(0, 0.0, 0.0, 0.0), 0.0) == 0.0


def test_a_charge_counts_what_is_working_and_what_is_held() -> None:
    """Messages are of what is not waiting for a retry; vertices of everything."""
    held, working = np.arange(35, dtype=np.int64), np.ones(35, dtype=np.int64)
    both = Charge(held + 7, working, 0.0, 0.0, 0.0, 4.0, 1.0, 2.0, 3.0, 0.05)
    assert (both.messages, both.vertices) == (1.0, 8.0)
    # 1 * 3 + 4 / 2 + (1 - 1/2) * 1 + 2 * 0.05, and of 3, 4 / 2 and 1 the slowest.
    assert both.drain_bound_seconds == pytest.approx(5.6)
    assert both.predicted_drain_seconds == 3.0
