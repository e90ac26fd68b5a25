"""What a simulation is judged by, each figure computed from the true costs.

Owns the figures; what is wanted of them is said by the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumer.core.config import FlowConfig, Ordering
from consumer.core.ledger.columns import Partition
from consumer.core.snapshot import Snapshot
from sizing.bounds import Bounds, Situation, bounds_of_mix, drain_deadline
from sizing.classes import CLASS_COUNT, classes_of, sizes_units
from sizing.load import load_rows
from sizing.model import CostModel
from sizing.report import SampleWindow
from tests.core import oracle
from tests.core.partition_log import FINISHED, PartitionLog
from tests.core.simulator import CHUNK_OVERHEAD_SECONDS, TRANSFER_SECONDS, Simulation

Indices = NDArray[np.int64]

#: the bounds are judged so many seconds after the first chunk of a shift began: what was in flight
#: before has to be handled first
SETTLE_SECONDS = 5.0
#: of the drain deadline, one chain may hold so much while others wait
CHAIN_SHARE = 0.5
#: the true bounds are those of what was handled in so many seconds before
MIX_SECONDS = 6.0


@dataclass(frozen=True)
class Figures:
    """One simulation in numbers."""

    name: str
    records: int
    #: of the processes' time after the warm-up, and the oracle's of the same time
    busy_ratio: float
    oracle_ratio: float
    #: true peak over available, without the first chunk after a shift
    peak_ratio: float
    shift_peak_ratio: float
    dead_letters: int
    pauses: int
    seconds: float
    #: least served share of a partition's arrivals, over the mean
    least_share_ratio: float
    #: core's bound over the true one, at the end of the settling and at the end of all
    memory_bound_ratio: float
    deadline_bound_ratio: float
    #: seconds from fetched to admitted, and what was allowed
    giant_seconds: float
    giant_allowed_seconds: float
    longest_gap_seconds: float
    sizings: str
    limited_by: str
    computing_seconds: float

    @property
    def pauses_per_minute(self) -> float:
        """Pauses, one of everything counted as one, in a minute."""
        return self.pauses / self.seconds * 60.0

    @property
    def relative_busy(self) -> float:
        """Busy time over the oracle's."""
        return self.busy_ratio / self.oracle_ratio if self.oracle_ratio else 1.0


def judge(simulation: Simulation, *, busy_from: float) -> Figures:
    """Compute the figures of a simulation that has run."""
    setup, trace, world = simulation.setup, simulation.trace, simulation.world
    end = setup.seconds
    span = (end - busy_from) * setup.config.processes
    busy = sum(max(0.0, min(e, end) - max(s, busy_from)) for _, s, e in trace.work)
    limits = oracle.Limits(
        setup.config.processes,
        setup.config.ordering,
        world.shards,
        setup.available_bytes,
        setup.parent_seconds_per_message,
        CHUNK_OVERHEAD_SECONDS,
        CHAIN_SHARE * _drain_deadline(setup.config),
        setup.shift_at if setup.slower_factor != 1.0 else float("inf"),
        setup.slower_factor,
    )
    logs = list(world.logs.values())
    best = oracle.busy_seconds(oracle.make_tasks(logs, limits), limits, busy_from, end)
    peak, shift_peak = _peaks(simulation)
    judged_at = end
    if trace.first_shifted is not None:
        judged_at = min(end, trace.first_shifted[0] + SETTLE_SECONDS)
    memory_ratio, deadline_ratio = bound_ratios(simulation, judged_at)
    giant_seconds = giant_allowed = 0.0
    if trace.giant_fetched_at is not None:
        admitted_at = trace.giant_admitted_at or float("inf")
        giant_seconds = admitted_at - trace.giant_fetched_at
        giant_allowed = 1.0 + trace.giant_drain_seconds
    elif setup.giant_vertices:
        giant_seconds = float("inf")
    last = trace.snapshots[-1]
    return Figures(
        name=setup.name,
        records=sum(int(log.handled.sum()) for log in logs),
        busy_ratio=busy / span,
        oracle_ratio=best / span,
        peak_ratio=peak,
        shift_peak_ratio=shift_peak,
        dead_letters=len(world.dead_letters),
        pauses=len(world.pauses),
        seconds=end,
        least_share_ratio=_least_share(simulation),
        memory_bound_ratio=memory_ratio,
        deadline_bound_ratio=deadline_ratio,
        giant_seconds=giant_seconds,
        giant_allowed_seconds=giant_allowed,
        longest_gap_seconds=trace.longest_gap_seconds,
        sizings=" ".join(f"{k}:{v}" for k, v in last.sizings_total.items() if v),
        limited_by=last.limited_by,
        computing_seconds=trace.computing_seconds,
    )


def _peaks(simulation: Simulation) -> tuple[float, float]:
    """Return the peak, and that while chunks of the first moment after a shift ran.

    What was dispatched before the first chunk of the new traffic had ended could not know.
    """
    trace = simulation.trace
    exempt = (float("inf"), float("-inf"))
    if trace.first_shifted is not None:
        first_start, first_end = trace.first_shifted
        known_at = first_end + TRANSFER_SECONDS
        ends = [e for submitted, _, e in trace.work if submitted <= known_at and e >= first_start]
        exempt = (first_start, max(ends))
    peak = shift_peak = 0.0
    for at, ratio in trace.memory:
        if exempt[0] <= at <= exempt[1] + 0.1:
            shift_peak = max(shift_peak, ratio)
        else:
            peak = max(peak, ratio)
    return peak, shift_peak


def _least_share(simulation: Simulation) -> float:
    """Return the least served share of a partition's arrivals, over the mean share.

    The partition of a hot chain is not looked at: it is as slow as that chain.
    """
    end = simulation.setup.seconds
    shares = []
    for log in simulation.world.logs.values():
        if log.partition == simulation.setup.hot_partition:
            continue
        arrived = int(np.searchsorted(log.arrived_at, end))
        if arrived:
            served = int((log.state[:arrived] == FINISHED).sum())
            shares.append(served / arrived)
    return min(shares) / float(np.mean(shares)) if np.mean(shares) else 0.0


def bound_ratios(simulation: Simulation, at: float) -> tuple[float, float]:
    """Return the core's bounds over those of the true costs, at a time."""
    snapshot = next(
        (s for s in simulation.trace.snapshots if s.at >= at), simulation.trace.snapshots[-1]
    )
    true = true_bounds(simulation, snapshot)
    memory = snapshot.bound_vertices["memory"] / max(true.vertices["memory"], 1)
    return memory, snapshot.bound_vertices["deadline"] / max(true.vertices["deadline"], 1)


def true_bounds(simulation: Simulation, snapshot: Snapshot) -> Bounds:
    """Return both bounds from the hidden costs, outliers left out (no rate can foretell them).

    In steady traffic those of the very records that the sizing names, so that the luck of a sample
    with a long tail is not taken for a wrong rate; after a shift, of what was fetched lately.
    """
    setup, world = simulation.setup, simulation.world
    at = snapshot.at
    slower = setup.slower_factor if setup.shift_at and at > setup.shift_at else 1.0
    if setup.shift_at or snapshot.sizing is None:
        since = max(at - MIX_SECONDS, setup.shift_at if at > setup.shift_at else 0.0)
        parts = [(log, _lately(simulation, log, since, at)) for log in world.logs.values()]
    else:
        parts = [_sampled(world.logs, window) for window in snapshot.sizing.sample.windows]
    vertices = np.concatenate([log.vertices[i] for log, i in parts])
    payload = np.concatenate([log.payload_bytes[i] for log, i in parts])
    seconds = np.concatenate([log.typical_seconds[i] for log, i in parts]) * slower
    working = np.concatenate([log.true_working_bytes[i] for log, i in parts])
    units = sizes_units(vertices, payload)
    classes = classes_of(units)
    units_by_class = np.bincount(classes, weights=units, minlength=CLASS_COUNT)
    safe = np.maximum(units_by_class, 1.0)
    model = CostModel(
        np.bincount(classes, weights=seconds, minlength=CLASS_COUNT) / safe,
        np.bincount(classes, weights=working, minlength=CLASS_COUNT) / safe,
        setup.parent_seconds_per_message,
    )
    everything = np.zeros(len(units), dtype=np.int64)
    mix = load_rows(everything, 1, vertices, payload, units, classes)[0]
    situation = Situation(
        setup.config.processes,
        setup.available_bytes,
        _drain_deadline(setup.config),
        setup.config.chunk_seconds,
        setup.config.chunk_bytes,
        tuple(simulation.kept_bytes),
    )
    return bounds_of_mix(
        mix,
        model,
        situation,
        largest_chain_ratio=_largest_chain_ratio(simulation, parts, seconds),
        heaviest_working_bytes=float(working.max()),
        heaviest_seconds=float(model.seconds_of_records(units, classes).max()),
    )


def _drain_deadline(config: FlowConfig) -> float:
    seconds, _ = drain_deadline(
        config.max_poll_interval_seconds,
        config.shutdown_grace_seconds,
        config.deadline_headroom_ratio,
    )
    return seconds


def _sampled(
    logs: Mapping[Partition, PartitionLog], window: SampleWindow
) -> tuple[PartitionLog, Indices]:
    """Return the records that a sizing names."""
    log = logs[window.topic, window.partition]
    first, last = np.searchsorted(log.offsets, [window.first_offset, window.last_offset])
    return log, np.arange(first, last + 1)


def _lately(simulation: Simulation, log: PartitionLog, since: float, at: float) -> Indices:
    """Return the records of a partition that were fetched in an interval."""
    shift_at = simulation.setup.shift_at if at > simulation.setup.shift_at else 0.0
    spans = [
        np.arange(first, end)
        for when, whose, first, end in simulation.trace.fetches
        if whose is log and since <= when <= at
    ]
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *spans])
    return indices[log.arrived_at[indices] >= shift_at]


def _largest_chain_ratio(
    simulation: Simulation, parts: list[tuple[PartitionLog, Indices]], seconds: NDArray[np.float64]
) -> float:
    ordering = simulation.setup.config.ordering
    if ordering is Ordering.UNORDERED:
        return 0.0
    shards = simulation.world.shards if ordering is Ordering.KEY else 1
    chain = np.concatenate(
        [log.partition[1] * shards + log.key_hashes[i] % shards for log, i in parts]
    )
    by_chain = np.bincount(chain, weights=seconds)
    return float(by_chain.max() / by_chain.sum())
