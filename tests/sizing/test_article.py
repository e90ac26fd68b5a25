"""The tests and the figures of the article that a vertex budget comes from.

Its four tests run by name on what the worker itself measures: real payloads, decoded and handled
in a real handler process, seconds and bytes measured there, rates, model and bounds. Its figures
are derived again, and where it contradicts itself a comment says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from consumer.payload.counting import counted_vertices
from consumer.processes.pool import ProcessPool
from sizing.article import article_deadline_bound_vertices, article_memory_bound_vertices
from sizing.bounds import (
    Bounds,
    Situation,
    bounds_of_mix,
    drain_deadline,
)
from sizing.charge import predicted_drain_seconds
from sizing.classes import classes_of, sizes_units
from sizing.load import CLASS_UNITS, RECORDS, VERTICES, Load, load_rows
from sizing.model import LEAST_BYTES_PER_VERTEX_OF_TEXT, CostModel
from sizing.rates import Quantity, Rates
from tests import sample_records
from tests.processes.chunks import chunk, run, running_pool

#: The article's container and poll interval; a long grace leaves the deadline to the interval.
MEMORY_BYTES = 2 * 1024**3
MAX_POLL_INTERVAL_SECONDS = 30.0
DEADLINE_SECONDS, _ = drain_deadline(MAX_POLL_INTERVAL_SECONDS, 60.0, 0.5)
PROCESSES = 2
CHUNKS = 24


@dataclass(frozen=True)
class Recommendation:
    """What was measured on a sample, and the bounds that follow."""

    mix: Load
    model: CostModel
    bounds: Bounds

    @property
    def bytes_per_vertex(self) -> float:
        """Bytes of a vertex, raw and decoded, as both coexist while it is worked on."""
        both = self.model.held_bytes(self.mix) + self.model.working_bytes(self.mix)
        return both / float(self.mix[VERTICES])


@pytest.fixture(scope="module")
def handlers() -> Iterator[ProcessPool]:
    """One real handler process that tests validity, area and bounds."""
    with running_pool("consumer.handlers:validate", slot_bytes=8 << 20) as pool:
        yield pool


def load_of_values(values: list[bytes]) -> Load:
    vertices = counted_vertices(values)
    payload_bytes = np.array([len(value) for value in values], dtype=np.int64)
    units = sizes_units(vertices, payload_bytes)
    together = np.zeros(len(values), dtype=np.int64)
    row: Load = load_rows(together, 1, vertices, payload_bytes, units, classes_of(units))[0]
    return row


def recommend(pool: ProcessPool, records: list[sample_records.Record]) -> Recommendation:
    """Measure records chunk by chunk in the handler process, and size from that."""
    values = [value for _, value in records]
    seconds, working_bytes = Rates(Quantity.SECONDS), Rates(Quantity.BYTES)
    each = -(-len(values) // CHUNKS)
    for number in range(CHUNKS):
        part = values[number * each : (number + 1) * each]
        outcome = run(pool, chunk(number, part, sample=True))
        assert outcome.seconds is not None
        assert outcome.working_bytes is not None
        class_units = load_of_values(part)[CLASS_UNITS]
        seconds.observe(class_units, outcome.seconds)
        working_bytes.observe(class_units, float(outcome.working_bytes))
    mix = load_of_values(values)
    model = CostModel(seconds.in_force, working_bytes.in_force)
    heaviest = [load_of_values([value]) for value in values]
    bounds = bounds_of_mix(
        mix,
        model,
        Situation(PROCESSES, MEMORY_BYTES, DEADLINE_SECONDS, 0.06, 2 << 20),
        largest_chain_ratio=0.05,
        heaviest_working_bytes=max(map(model.working_bytes, heaviest)),
        heaviest_seconds=max(map(model.seconds, heaviest)),
    )
    return Recommendation(mix, model, bounds)


def test_the_smaller_bound_wins(handlers: ProcessPool) -> None:
    """The budget is the smaller bound, and says which one that is."""
    bounds = recommend(handlers, sample_records.mixed(4_800)).bounds
    assert bounds.budget_vertices == min(bounds.vertices["memory"], bounds.vertices["deadline"])
    assert bounds.budget_messages == min(bounds.messages["memory"], bounds.messages["deadline"])
    assert bounds.binding in {"memory", "deadline"}
    # The binding bound is the one whose relief raises the budget.
    assert bounds.budget_vertices == bounds.vertices[bounds.binding]


def test_heavy_sample_produces_a_smaller_budget_than_a_light_one(handlers: ProcessPool) -> None:
    """Of parcels fewer may be in flight than of pings: the property that makes samples matter."""
    # The article compares vertices and takes a ping's vertex for the cheapest of all, at 900,000
    # of them a second. It is the dearest: a whole message, its envelope and its parsing come with
    # it. So the comparison is in messages, the same limit in another unit.
    light = recommend(handlers, sample_records.pings(9_600))
    heavy = recommend(handlers, sample_records.parcels(4_800))
    assert heavy.bounds.budget_messages < light.bounds.budget_messages
    assert heavy.bounds.messages["deadline"] < light.bounds.messages["deadline"]
    assert heavy.bounds.messages["memory"] < light.bounds.messages["memory"]


def test_budget_drains_inside_the_deadline(handlers: ProcessPool) -> None:
    """What the deadline bound exists to guarantee."""
    sized = recommend(handlers, sample_records.mixed(4_800))
    messages = sized.bounds.budget_messages
    seconds = messages * sized.model.seconds(sized.mix) / float(sized.mix[RECORDS])
    drain = predicted_drain_seconds(
        messages,
        seconds,
        0.05 * seconds,
        parent_seconds_per_message=sized.model.parent_seconds_per_message,
        effective=sized.bounds.effective_processes,
    )
    assert drain <= DEADLINE_SECONDS


def test_bytes_per_vertex_is_not_the_naive_figure(handlers: ProcessPool) -> None:
    """16 bytes for two doubles would size the budget several times too high."""
    # Of coastlines too, where nearly all bytes are vertices, and not the text around them.
    for records in (sample_records.mixed(4_800), sample_records.heavy(24)):
        sized = recommend(handlers, records)
        assert sized.bytes_per_vertex > LEAST_BYTES_PER_VERTEX_OF_TEXT
        # And the geometry is in it, not only the text.
        assert sized.model.working_bytes(sized.mix) > 16 * float(sized.mix[VERTICES])


# -- the figures -------------------------------------------------------------------------------

BYTES_PER_VERTEX = 140.0
HEAVY_VERTICES_PER_SECOND = 120_000.0
#: figure 2 and 3: the busiest hour
BUSY_VERTICES_PER_SECOND = 140_000.0


def deadline_bound(vertices_per_second: float) -> int:
    return article_deadline_bound_vertices(vertices_per_second, MAX_POLL_INTERVAL_SECONDS, 0.5)


def test_figure_1_binds_by_the_deadline_at_both_ends() -> None:
    """At 800,000 vertices a second as at 120,000: the deadline is the smaller bound."""
    # 15 s * 800,000 = 12 M and 15 s * 120,000 = 1.8 M; 2 x 10^9 / 140 = 14.29 M. The article says
    # that the curves cross near 15 % of heavy geometry, and gives 12 M under 14 M at 0 %: with its
    # own numbers memory never binds, and nothing crosses.
    memory = article_memory_bound_vertices(2e9, BYTES_PER_VERTEX)
    assert memory == 14_285_714
    assert deadline_bound(800_000.0) == 12_000_000 < memory
    assert deadline_bound(HEAVY_VERTICES_PER_SECOND) == 1_800_000 < memory


def test_figure_1_crosses_only_above_952_000_light_vertices_a_second() -> None:
    """The rate at which both bounds are equal: memory bound / 15 s."""
    # 14.29 M / 15 s = 952,381; with the article's rounded 14 M, 933,333.
    memory = article_memory_bound_vertices(2e9, BYTES_PER_VERTEX)
    assert deadline_bound(952_380.0) < memory < deadline_bound(952_382.0)
    assert deadline_bound(933_333.0) < 14_000_000 < deadline_bound(933_334.0)


def test_figure_2_a_night_of_pings_is_wrong_by_two_minutes() -> None:
    """A budget of the 03:00 sample, drained at the rate of polygons."""
    # 900,000 * 15 s = 13.5 M; at 100,000 a second 135 s, against a poll interval of 30 s.
    night = deadline_bound(900_000.0)
    assert night == 13_500_000
    assert night / 100_000.0 == 135.0 > MAX_POLL_INTERVAL_SECONDS
    busy = deadline_bound(BUSY_VERTICES_PER_SECOND)
    assert busy == 2_100_000
    assert busy / BUSY_VERTICES_PER_SECOND == pytest.approx(15.0)


def test_figure_3_flips_between_27_and_28_processes() -> None:
    """8 x 10^9 bytes shared by P processes, and a deadline bound of 2.1 M in each."""
    # 8 x 10^9 / 140 / 2.1 M = 27.2. The article has memory bind at 16, with 1.7 M: half a gigabyte
    # at 140 bytes a vertex is 3.57 M, so the deadline still binds there.
    deadline = deadline_bound(BUSY_VERTICES_PER_SECOND)

    def memory(processes: int) -> int:
        return article_memory_bound_vertices(8e9 / processes, BYTES_PER_VERTEX)

    assert [memory(p) for p in (4, 8, 16)] == [14_285_714, 7_142_857, 3_571_428]
    assert memory(16) > deadline
    assert memory(27) > deadline > memory(28)


def test_doubling_the_processes_flips_the_binding_bound_of_a_mix() -> None:
    """More processes drain faster and leave less room: the deadline bound rises, memory binds."""
    # Records of 2,000 units: 2,000 * 0.14 us = 0.28 ms, 280,000 bytes decoded, 40,200 held.
    model = CostModel(np.full(16, 1.4e-7), np.full(16, 140.0), 0.0)
    record = np.array([2_000])
    mix = load_rows(np.array([0]), 1, record, np.array([40_000]), record, classes_of(record))[0]

    def bounds(processes: int) -> Bounds:
        situation = Situation(processes, 4 * 10**9, 15.0, 0.06, 2 << 20)
        return bounds_of_mix(
            mix,
            model,
            situation,
            largest_chain_ratio=0.0,
            heaviest_working_bytes=280_000.0,
            heaviest_seconds=2.8e-4,
        )

    # One process: 14.88 s / 0.28 ms = 53,142 messages. Two: 106,285, less the half of one, since
    # the last record has a process to itself. A chunk of 2 MiB is 52 messages, 14.7 MB decoded:
    # with room for P + 1 of them, (4 GB - 3 * 14.7 MB) / 40,200 = 98,407 may wait.
    one, two = bounds(1), bounds(2)
    assert (one.messages["deadline"], two.messages["deadline"]) == (53_142, 106_284)
    assert (one.binding, two.binding) == ("deadline", "memory")
    assert two.messages["memory"] == pytest.approx(98_407, abs=2)
    assert one.messages["memory"] > two.messages["memory"]
