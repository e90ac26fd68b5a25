"""Minutes of traffic in seconds: the real core in a world with hidden true costs.

Owns virtual time: when fetched records arrive, how long a chunk takes, what the processes hold
in memory. Measures what came of it; judges nothing.

Run ``python -m tests.core.simulator SCENARIO ...`` (or ``all``) for a table.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig
from consumer.core.ledger.columns import FetchedRun, Partition
from consumer.core.snapshot import Snapshot
from sizing.load import VERTICES
from tests.core.harness import HELD_OVERHEAD_BYTES, Core, World
from tests.core.held import ChunkInside
from tests.core.partition_log import PartitionLog

MEBIBYTE = 1 << 20
PROCESS_BASELINE_BYTES = 40 * MEBIBYTE
PARENT_BASELINE_BYTES = 60 * MEBIBYTE
#: what one fetch may return of a partition before another has its turn
FETCH_BATCH_BYTES = MEBIBYTE
NETWORK_BYTES_PER_SECOND = 250 * MEBIBYTE
#: seconds of a chunk beside its records, and on the way in and out
CHUNK_OVERHEAD_SECONDS = 3e-4
TRANSFER_SECONDS = 5e-4
#: parent's own seconds of one turn of its loop
TURN_SECONDS = 3e-5
#: tracing allocations takes a chunk so many times as long
TRACE_FACTOR = 3.0
#: share of a chunk's working bytes that the process keeps
KEPT_SHARE = 0.2
SLICE_SECONDS = 0.25


@dataclass(frozen=True)
class Setup:
    """One simulated worker and its traffic."""

    name: str
    #: makes the logs from the seed
    logs: Callable[[int], list[PartitionLog]]
    seconds: float
    config: FlowConfig
    available_bytes: int = 512 * MEBIBYTE
    parent_seconds_per_message: float = 3e-6
    #: the shift that the figures are about; 0: none
    shift_at: float = 0.0
    #: handler seconds from the shift on take so many times as long
    slower_factor: float = 1.0
    #: partition of the hot chain, which alone is slow
    hot_partition: Partition | None = None
    #: vertices of the giant; 0: no giant
    giant_vertices: int = 0
    seed: int = 1


@dataclass(eq=False)
class Running:
    """A chunk as its process has it."""

    inside: ChunkInside
    started_at: float
    ended_at: float
    working_bytes: float


@dataclass(eq=False)
class Trace:
    """What came of a simulation."""

    #: (submitted, start, end) of every chunk
    work: list[tuple[float, float, float]] = field(default_factory=list)
    #: (time, true bytes in use / available)
    memory: list[tuple[float, float]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    #: (time, log, first index, end index) of everything fetched
    fetches: list[tuple[float, PartitionLog, int, int]] = field(default_factory=list)
    #: first chunk of which half or more came with the shift: (start, end)
    first_shifted: tuple[float, float] | None = None
    giant_fetched_at: float | None = None
    giant_drain_seconds: float = 0.0
    giant_admitted_at: float | None = None
    giant_started_at: float | None = None
    #: longest time in which records were held and none was in a process
    longest_gap_seconds: float = 0.0
    parent_busy_seconds: float = 0.0
    computing_seconds: float = 0.0


class Simulation:
    """A world whose driver follows virtual time."""

    def __init__(self, setup: Setup, make_core: Callable[[FlowConfig], Core]) -> None:
        self.setup = setup
        config = setup.config
        self.random = np.random.default_rng(setup.seed)
        self.world = World(make_core(config), config, setup.logs(setup.seed))
        self.baseline_bytes = PARENT_BASELINE_BYTES + PROCESS_BASELINE_BYTES * config.processes
        self.prefetch_bytes = config.client_queue_bytes
        planned = setup.available_bytes + self.baseline_bytes + self.prefetch_bytes
        self.limit_bytes = int(planned / config.memory_headroom_ratio) + 1
        self.trace = Trace()
        self.running: list[deque[Running]] = [deque() for _ in range(config.processes)]
        self.kept_bytes = [0.0] * config.processes
        self.free_at = [0.0] * config.processes
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._readable_from: dict[Partition, float] = {}
        self._turn: list[Partition] = []
        self._queue_bytes = float(config.client_queue_bytes)
        self._queue_filled_at = 0.0
        self._parent_records = 0
        self._parent_seconds = 0.0
        self._busy_until_gap = 0.0
        self._starting: set[int] = set()
        self._seen: set[object] = set()

    # ------------------------------------------------------------------- the loop

    def run(self) -> Trace:
        """Run to the end of the setup's time."""
        began = time.process_time()
        world = self.world
        world.after_step = lambda _event: self._after_step()
        world.assign(sorted(world.logs))
        self._sample_memory()
        self._every_second()
        self._every_slice()
        while world.now < self.setup.seconds:
            while self._due and self._due[0][0] <= world.now:
                heapq.heappop(self._due)[2]()
            fetch = world.step(ev.Tick(world.now))
            world.now += TURN_SECONDS
            self.trace.parent_busy_seconds += TURN_SECONDS
            runs = self._consume(fetch) if fetch is not None else []
            if runs:
                self._hand_over(runs)
                continue
            patience = 0.005
            if fetch is not None:
                patience = max(patience, fetch.wait_seconds)
            next_due = self._due[0][0] if self._due else np.inf
            world.now = max(world.now, min(world.now + patience, next_due))
        self.trace.computing_seconds = time.process_time() - began
        return self.trace

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._number), action))

    def _hand_over(self, runs: Sequence[FetchedRun]) -> None:
        world = self.world
        count = sum(len(run.columns) for run in runs)
        cost = count * self.setup.parent_seconds_per_message
        self._parent_records += count
        self._parent_seconds += cost
        self.trace.parent_busy_seconds += cost
        world.now += cost
        giant = self.setup.giant_vertices
        if giant and any((run.columns.vertices == giant).any() for run in runs):
            self.trace.giant_fetched_at = world.now
            snapshot = world.flow.snapshot()
            self.trace.giant_drain_seconds = snapshot.predicted_drain_seconds
        world.fetched(runs)

    def _after_step(self) -> None:
        world = self.world
        for inside in world.newly_inside:
            self._start(inside)
        self.trace.memory.append((world.now, self.true_used_bytes() / self.setup.available_bytes))
        world.newly_inside.clear()
        for number, process in enumerate(world.processes):
            if process.state == "starting" and number not in self._starting:
                self._starting.add(number)
                self._at(world.now + 0.3, partial(self._ready, number))
            elif process.state == "killed" and number not in self._starting:
                self._starting.add(number)
                self._at(world.now + 0.01, partial(self._die, number))
        if world.commit_in_flight is not None and id(world.commit_in_flight) not in self._seen:
            self._seen = {id(world.commit_in_flight)}
            self._at(world.now + 0.005, world.answer_commit)
        for delivery in world.deliveries:
            if delivery not in self._seen:
                self._seen.add(delivery)
                self._at(world.now + 0.01, partial(world.deliver, delivery))
        if self.setup.giant_vertices and self.trace.giant_admitted_at is None:
            self._watch_giant()

    def _watch_giant(self) -> None:
        """The giant is admitted once more is in flight than everything else could be."""
        if self.trace.giant_fetched_at is None:
            return
        ledger = getattr(self.world.flow, "ledger", None)
        if ledger is not None:
            from sizing.classes import classes_of
            from sizing.load import CLASS_RECORDS

            giant_class = int(classes_of(np.array([self.setup.giant_vertices]))[0])
            if int(ledger.in_flight[CLASS_RECORDS][giant_class]):
                self.trace.giant_admitted_at = self.world.now
        elif self.trace.giant_started_at is not None:
            self.trace.giant_admitted_at = self.trace.giant_started_at

    # ------------------------------------------------------------------ processes

    def _ready(self, number: int) -> None:
        self._starting.discard(number)
        self.free_at[number] = self.world.now
        self.kept_bytes[number] = 0.0
        self.world.ready(number, PROCESS_BASELINE_BYTES)

    def _die(self, number: int) -> None:
        self._starting.discard(number)
        self.running[number].clear()
        self.world.die(number)

    def _start(self, inside: ChunkInside) -> None:
        """Decide how long the chunk takes, and what it needs."""
        number = inside.process
        now = self.world.now
        start = max(now + TRANSFER_SECONDS, self.free_at[number])
        seconds = sum(float(p.log.true_seconds[p.indices].sum()) for p in inside.parts)
        working = sum(float(p.log.true_working_bytes[p.indices].sum()) for p in inside.parts)
        if self.setup.shift_at and start >= self.setup.shift_at:
            seconds *= self.setup.slower_factor
        seconds *= float(self.random.lognormal(0.0, 0.08))
        working *= float(self.random.uniform(0.97, 1.03))
        wall = seconds * (TRACE_FACTOR if inside.chunk.trace_allocations else 1.0)
        end = start + wall + CHUNK_OVERHEAD_SECONDS
        self.free_at[number] = end
        running = Running(inside, start, end, working)
        self.running[number].append(running)
        self.trace.work.append((now, start, end))
        self._at(end + TRANSFER_SECONDS, lambda: self._end(number, running, seconds))
        giant = self.setup.giant_vertices
        if giant and any((p.log.vertices[p.indices] == giant).any() for p in inside.parts):
            self.trace.giant_started_at = start
        shift_at = self.setup.shift_at
        if shift_at and self.trace.first_shifted is None:
            new = sum(int((p.log.arrived_at[p.indices] >= shift_at).sum()) for p in inside.parts)
            is_slower = self.setup.slower_factor != 1.0 and start >= shift_at
            if is_slower or 2 * new >= len(inside):
                self.trace.first_shifted = (start, end)

    def _end(self, number: int, running: Running, seconds: float) -> None:
        if not self.running[number] or self.running[number][0] is not running:
            return  # the process died in the meantime
        self.running[number].popleft()
        chunk = running.inside.chunk
        growth_bytes = max(0, int(running.working_bytes - self.kept_bytes[number]))
        self.kept_bytes[number] = max(
            0.5 * self.kept_bytes[number], KEPT_SHARE * running.working_bytes
        )
        outcome = ev.ChunkOutcome(
            seconds=None if chunk.trace_allocations else seconds,
            cpu_seconds=seconds,
            working_bytes=int(running.working_bytes) if chunk.sample_bytes else None,
            resident_bytes=PROCESS_BASELINE_BYTES + int(self.kept_bytes[number]),
            exact_vertices=int(chunk.load[VERTICES]),
            growth_bytes=growth_bytes,
        )
        self.world.finish(number, outcome)

    def true_used_bytes(self) -> float:
        """Return what everything in flight truly holds now."""
        world = self.world
        used = float(world.held_bytes + HELD_OVERHEAD_BYTES * world.held_records)
        for number, chunks in enumerate(self.running):
            started = [r.working_bytes for r in chunks if r.started_at <= world.now]
            used += max(self.kept_bytes[number], max(started, default=0.0))
        return used

    # -------------------------------------------------------------------- client

    def _consume(self, fetch: cmd.Fetch) -> list[FetchedRun]:
        """Return what the client has: batches of partitions in turn, up to what it prefetched."""
        world = self.world
        since = world.now - self._queue_filled_at
        self._queue_filled_at = world.now
        self._queue_bytes = min(
            float(world.config.client_queue_bytes),
            self._queue_bytes + since * NETWORK_BYTES_PER_SECOND,
        )
        left = fetch.max_records
        runs = []
        logs = {log.partition: log for log in world.fetchable()}
        self._turn = [p for p in self._turn if p in logs]
        self._turn += [p for p in logs if p not in self._turn]
        for partition in list(self._turn):
            if left <= 0 or self._queue_bytes <= 0:
                break
            log = logs[partition]
            if world.now < self._resumed_from(partition):
                continue
            count = self._available(log, left)
            if count:
                self.trace.fetches.append((world.now, log, log.position, log.position + count))
                run = log.take(count)
                self._queue_bytes -= float(run.columns.payload_bytes.sum()) + 400.0 * count
                runs.append(run)
                left -= count
                self._turn.remove(partition)
                self._turn.append(partition)
        return runs

    def _resumed_from(self, partition: Partition) -> float:
        """Fetching starts anew 0.3 to 0.6 s after a resume."""
        resumed_at = self.world.resumed_at.pop(partition, None)
        if resumed_at is not None:
            self._readable_from[partition] = resumed_at + float(self.random.uniform(0.3, 0.6))
        return self._readable_from.get(partition, 0.0)

    def _available(self, log: PartitionLog, most: int) -> int:
        arrived = int(np.searchsorted(log.arrived_at, self.world.now, side="right"))
        most = min(most, arrived - log.position)
        if most <= 0:
            return 0
        sizes = np.cumsum(log.payload_bytes[log.position : log.position + most])
        return max(1, int(np.searchsorted(sizes, FETCH_BATCH_BYTES, side="right")))

    # --------------------------------------------------------------- by the clock

    def _sample_memory(self) -> None:
        used = self.baseline_bytes + int(self.true_used_bytes())
        self.world.step(
            ev.MemorySampled(
                self.world.now, self.limit_bytes, self.baseline_bytes, self.prefetch_bytes, used
            )
        )

    def _every_second(self) -> None:
        self._sample_memory()
        if self._parent_records:
            self.world.step(
                ev.ParentMeasured(self.world.now, self._parent_records, self._parent_seconds)
            )
            self._parent_records, self._parent_seconds = 0, 0.0
        for log in self.world.fetchable():
            if log.position == len(log):
                self.world.end_reached(log.partition)
        self._at(self.world.now + 1.0, self._every_second)

    def _every_slice(self) -> None:
        self.trace.snapshots.append(self.world.flow.snapshot())
        if self.world.chunks_inside() or not self.world.held_records:
            self._busy_until_gap = self.world.now
        gap = self.world.now - self._busy_until_gap
        self.trace.longest_gap_seconds = max(self.trace.longest_gap_seconds, gap)
        self._at(self.world.now + SLICE_SECONDS, self._every_slice)


if __name__ == "__main__":
    from tests.core.scenarios import main

    main()
