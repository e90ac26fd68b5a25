"""The scenarios that the core must master, by name.

Owns the traffic and the worker of each. Arrivals exceed what the processes can do unless the
scenario is about little traffic, so that a process without work is the core's doing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from consumer.core.config import FlowConfig, Ordering
from tests.core.figures import Figures, judge
from tests.core.simulator import MEBIBYTE, Setup, Simulation
from tests.core.true_costs import (
    COASTLINES,
    GIANT,
    HEAVIES,
    HEAVY,
    MIXED,
    PARCEL,
    PINGS,
    POLYGONS,
    QUICK_PINGS,
    STORED_PARCEL,
    STORED_POLYGON,
    Kind,
    Mix,
    Phase,
    Spread,
    make_logs,
    mean_seconds,
)

#: arrivals over what the processes can do
OVERLOAD = 1.3
#: nothing is judged before, and before a second after the first sizing: until then a small
#: budget holds
WARM_SECONDS = 4.0


def saturating(mix: Mix, processes: int, share: float = OVERLOAD) -> float:
    """Return the arrivals that keep so many processes busy, in records a second."""
    return share * processes / mean_seconds(mix)


def make_setup(
    name: str,
    phases: Sequence[Phase],
    *,
    processes: int = 4,
    ordering: Ordering = Ordering.KEY,
    spread: Spread | None = None,
    **others: Any,
) -> Setup:
    """Return a setup whose config has defaults but for what is named."""
    spread = spread or Spread()
    return Setup(
        name=name,
        logs=partial(make_logs, phases, spread),
        seconds=phases[-1].to_seconds,
        config=FlowConfig(processes, ordering, remeasure_interval_seconds=10.0),
        **others,
    )


def steady(
    name: str,
    mix: Mix,
    *,
    seconds: float = 20.0,
    processes: int = 4,
    records_per_second: float = 0.0,
    **others: Any,
) -> Setup:
    """Return a setup of one mix from beginning to end."""
    rate = records_per_second or saturating(mix, processes)
    return make_setup(name, [Phase(0, seconds, rate, mix)], processes=processes, **others)


def night_to_busy() -> Setup:
    """A few pings, then everything at once, polygons included."""
    busy = saturating(POLYGONS, 4)
    phases = [Phase(0, 12, 400, PINGS), Phase(12, 30, busy, POLYGONS)]
    return make_setup("night-to-busy", phases, shift_at=12.0)


def giant_among_pings() -> Setup:
    """One record of 400,000 vertices in a stream of pings."""
    rate = saturating(PINGS, 4)
    phases = [
        Phase(0, 10, rate, PINGS),
        Phase(10, 10.001, 1_000, ((GIANT, 1.0),)),
        Phase(10.001, 45, rate, PINGS),
    ]
    return make_setup(
        "giant-among-pings", phases, giant_vertices=400_000, spread=Spread(keys=20_000)
    )


def ten_times_slower() -> Setup:
    """A handler's database falls ill."""
    mix: Mix = ((PARCEL, 1.0),)
    phases = [Phase(0, 24, saturating(mix, 4), mix)]
    return make_setup("ten-times-slower", phases, shift_at=12.0, slower_factor=10.0)


def bytes_shift(name: str, kind: Kind, payload_factor: float, **others: Any) -> Setup:
    """The same vertices, and 25 times the bytes."""
    mix: Mix = ((kind, 1.0),)
    rate = saturating(mix, 4)
    phases = [
        Phase(0, 12, rate, mix),
        Phase(12, 30, rate, mix, payload_factor=payload_factor, working_factor=25.0),
    ]
    return make_setup(name, phases, shift_at=12.0, **others)


def barely(name: str, heavies: float) -> Setup:
    """Memory for so many heavy records at once, raw and decoded."""
    one = (HEAVY.working_bytes_per_vertex + HEAVY.payload_bytes_per_vertex) * 110_000
    return steady(name, HEAVIES, available_bytes=int(heavies * one), seconds=40.0)


SCENARIOS: dict[str, Callable[[], Setup]] = {
    "pings": lambda: steady("pings", PINGS, seconds=12.0),
    "parent-bound": lambda: steady(
        "parent-bound", QUICK_PINGS, seconds=10.0, parent_seconds_per_message=1e-5
    ),
    "mix": lambda: steady("mix", MIXED),
    "coastlines": lambda: steady("coastlines", COASTLINES, seconds=40.0),
    "night-to-busy": night_to_busy,
    "giant-among-pings": giant_among_pings,
    "hot-key": lambda: steady(
        "hot-key",
        MIXED,
        spread=Spread(hot_key_share=0.5),
        hot_partition=("traffic", 0),
        seconds=40.0,
    ),
    "hot-partition": lambda: steady("hot-partition", MIXED, spread=Spread(hot_partition_share=0.7)),
    "ten-times-slower": ten_times_slower,
    "bytes-in-payload": lambda: bytes_shift("bytes-in-payload", STORED_PARCEL, 25.0),
    "bytes-hidden": lambda: bytes_shift(
        "bytes-hidden", STORED_POLYGON, 1.0, available_bytes=128 * MEBIBYTE
    ),
    "memory-for-two": lambda: barely("memory-for-two", 2.4),
    "memory-for-one": lambda: barely("memory-for-one", 1.3),
    "mix-p1": lambda: steady("mix-p1", MIXED, processes=1, seconds=30.0),
    "mix-p2": lambda: steady("mix-p2", MIXED, processes=2),
    "mix-p16": lambda: steady("mix-p16", MIXED, processes=16, seconds=12.0),
    "mix-by-partition": lambda: steady(
        "mix-by-partition", MIXED, ordering=Ordering.PARTITION, spread=Spread(partitions=16)
    ),
    "mix-unordered": lambda: steady("mix-unordered", MIXED, ordering=Ordering.UNORDERED),
}


def simulate(name: str, seed: int = 1) -> tuple[Simulation, Figures]:
    """Run a scenario with the real core, and judge it."""
    from consumer.core.flow import Flow

    setup = replace(SCENARIOS[name](), seed=seed)
    simulation = Simulation(setup, Flow)
    simulation.run()
    sized_at = simulation.world.published[0][0] if simulation.world.published else 0.0
    return simulation, judge(simulation, busy_from=max(WARM_SECONDS, sized_at + 1.0))


HEADER = (
    f"{'scenario':18} {'records':>8} {'busy':>5} {'oracle':>6} {'rel':>5} {'peak':>5} {'shift':>5}"
    f" {'dlq':>3} {'p/min':>5} {'share':>5} {'mem/t':>6} {'ddl/t':>6} {'giant':>11} {'gap':>4}"
    f" {'limit':>8} {'cpu':>5} sizings"
)


def row(figures: Figures) -> str:
    """Return one line of the table."""
    giant = "-"
    if figures.giant_allowed_seconds:
        giant = f"{figures.giant_seconds:.2f}/{figures.giant_allowed_seconds:.2f}"
    return (
        f"{figures.name:18} {figures.records:8d} {figures.busy_ratio:5.3f}"
        f" {figures.oracle_ratio:6.3f} {figures.relative_busy:5.3f} {figures.peak_ratio:5.2f}"
        f" {figures.shift_peak_ratio:5.2f} {figures.dead_letters:3d}"
        f" {figures.pauses_per_minute:5.1f} {figures.least_share_ratio:5.2f}"
        f" {figures.memory_bound_ratio:6.2f} {figures.deadline_bound_ratio:6.2f} {giant:>11}"
        f" {figures.longest_gap_seconds:4.1f} {figures.limited_by:>8}"
        f" {figures.computing_seconds:5.1f} {figures.sizings}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of the named scenarios, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args(arguments)
    chosen = parsed.scenario
    names = list(SCENARIOS) if "all" in chosen else chosen
    sys.stdout.write(HEADER + "\n")
    for name in names:
        sys.stdout.write(row(simulate(name, parsed.seed)[1]) + "\n")
        sys.stdout.flush()
