"""Drive the core alone and time it: no client, no processes, a clock of its own.

One ``Drive`` keeps a given number of records in flight: chunks finish one by one in the order
they were submitted, and as many records as finished are fetched again. Only ``Flow.step`` is
timed (processor time of this process); the runs are prepared before.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from consumer.core.commands import Chunk, Command, Commit, Fetch, Produce, Publish, Release, Submit
from consumer.core.config import FlowConfig
from consumer.core.events import (
    Assigned,
    ChunkFinished,
    ChunkOutcome,
    Committed,
    Event,
    Fetched,
    MemorySampled,
    ParentMeasured,
    ProcessReady,
    Tick,
)
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Columns, FetchedRun, Partition

PROCESSES = 2
FETCH_RECORDS = 5_000
GIB = 1024**3
#: A ping: 180 bytes of value and key, counted as one vertex, 2 microseconds in a process.
PING_BYTES = 180
PING_SECONDS = 2e-6
PING_WORKING_BYTES = 400
KEYS = 10_000
#: Handled before anything is timed, so that there is a size and rates have settled.
WARM_UP_RECORDS = 60_000
WARM_UP_RUNS = 4_000
#: The clock's step while no chunk is inside a process, and how many of them are suspicious.
IDLE_SECONDS = 0.005
MOST_IDLE_TURNS = 2_000


@dataclass(frozen=True, slots=True)
class CoreCost:
    """What one drive measured."""

    microseconds_per_record: float
    #: the most records that were in flight; less than asked for when a bound is smaller
    in_flight: int
    records_per_chunk: float
    steps: int


class Drive:
    """Feeds one ``Flow`` and finishes what it submits."""

    def __init__(self, partitions: int, run_records: int, seed: int) -> None:
        self.flow = Flow(
            FlowConfig(
                processes=PROCESSES,
                warmup_messages=2_000,
                warmup_seconds=0.01,
                shutdown_grace_seconds=300.0,
                max_uncommitted_messages=10_000_000,
            )
        )
        self.now = 1000.0
        self.spent_seconds = 0.0
        self.steps = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.finished_records = 0
        self.chunks = 0
        self.sized = False
        self._partitions: list[Partition] = [("pings", number) for number in range(partitions)]
        self._next_offset = [0] * partitions
        self._next_partition = 0
        self._run_records = run_records
        self._submitted: deque[tuple[int, Chunk]] = deque()
        self._wanted = 0
        self._next_memory_sample = 0.0
        self._prepared: deque[FetchedRun] = deque()
        random = np.random.default_rng(seed)
        #: as many key hashes as fit in a signed 64-bit number, by the row of a long stream
        self._hashes = random.integers(0, 2**63 - 1, KEYS, dtype=np.int64)
        self._value = b"p" * PING_BYTES
        self._start()

    def _start(self) -> None:
        self._step(Assigned(self.now, tuple(self._partitions)))
        self._sample_memory()
        for process in range(PROCESSES):
            self._step(ProcessReady(self.now, process, 60 * 1024**2))

    def _sample_memory(self) -> None:
        used = 400 * 1024**2 + self.in_flight * 3 * PING_BYTES
        self._step(MemorySampled(self.now, 64 * GIB, 300 * 1024**2, 64 * 1024**2, used))
        self._step(ParentMeasured(self.now, 100_000, 0.1))
        self._next_memory_sample = self.now + 1.0

    def _step(self, event: Event) -> None:
        begun = time.process_time()
        commands = self.flow.step(event)
        self.spent_seconds += time.process_time() - begun
        self.steps += 1
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Submit):
            self._submitted.append((command.process, command.chunk))
        elif isinstance(command, Fetch):
            self._wanted = command.max_records
        elif isinstance(command, Commit):
            self._step(Committed(self.now, command.offsets))
        elif isinstance(command, Publish):
            self.sized = True
        elif isinstance(command, Produce | Release):
            msg = f"the core was not expected to answer with {command!r}"
            raise RuntimeError(msg)

    def prepare(self, records: int) -> None:
        """Make runs for ``records`` more records, so that feeding them costs nothing."""
        for _ in range(-(-records // self._run_records)):
            number = self._next_partition
            self._next_partition = (number + 1) % len(self._partitions)
            self._prepared.append(self._run(number))

    def _run(self, number: int) -> FetchedRun:
        length = self._run_records
        first = self._next_offset[number]
        self._next_offset[number] = first + length
        columns = Columns(
            values=[self._value] * length,
            keys=[b"key"] * length,
            offsets=np.arange(first, first + length, dtype=np.int64),
            timestamps_ms=np.full(length, 1_700_000_000_000, dtype=np.int64),
            vertices=np.ones(length, dtype=np.int64),
            payload_bytes=np.full(length, PING_BYTES, dtype=np.int64),
        )
        hashes = np.take(self._hashes, np.arange(first, first + length) * 7 + number, mode="wrap")
        return FetchedRun(self._partitions[number], columns, hashes)

    def _feed(self, records: int) -> None:
        """Answer one fetch: at most one run of each partition, at least one run."""
        count = max(1, min(records, self._wanted) // self._run_records)
        count = min(count, len(self._partitions), len(self._prepared))
        runs = tuple(self._prepared.popleft() for _ in range(count))
        fed = count * self._run_records
        self.in_flight += fed
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._step(Fetched(self.now, runs))

    def _finish_one(self) -> None:
        process, chunk = self._submitted.popleft()
        records = sum(len(part.columns) for part in chunk.parts)
        self.now += records * PING_SECONDS / PROCESSES
        self.in_flight -= records
        self.finished_records += records
        self.chunks += 1
        outcome = ChunkOutcome(
            seconds=None if chunk.trace_allocations else records * PING_SECONDS,
            cpu_seconds=records * PING_SECONDS,
            working_bytes=records * PING_WORKING_BYTES if chunk.sample_bytes else None,
            resident_bytes=70 * 1024**2,
            exact_vertices=records,
        )
        self._step(ChunkFinished(self.now, process, chunk.chunk_id, outcome))

    def tick(self, target: int) -> bool:
        """Let time pass once, and fetch if the core wants to and fewer than ``target`` are held."""
        self._wanted = 0
        self._step(Tick(self.now))
        wants = self._wanted > 0 and self.in_flight < target and bool(self._prepared)
        if wants:
            self._feed(target - self.in_flight)
        return wants

    def fill(self, target: int) -> None:
        """Fetch until ``target`` records are in flight or the core wants no more."""
        while self.tick(target):
            pass

    def work(self, records: int, in_flight: int) -> None:
        """Finish ``records`` records and keep ``in_flight`` waiting behind them."""
        end = self.finished_records + records
        idle = 0
        while self.finished_records < end:
            if self._submitted:
                self._finish_one()
                idle = 0
            else:
                self.now += IDLE_SECONDS
                idle += 1
            if self.now >= self._next_memory_sample:
                self._sample_memory()
            self.fill(in_flight)
            if idle > MOST_IDLE_TURNS:
                msg = f"the core submits nothing with {self.in_flight:,} records in flight"
                raise RuntimeError(msg)


def core_cost(
    *, in_flight: int, partitions: int, run_records: int, records: int, seed: int
) -> CoreCost:
    """Measure the core at one point: warm up, fill, then time ``records`` records.

    Filling is part of the measurement of none: the timed part starts with ``in_flight`` records
    held and ends so, hence it contains as many admissions as completions.
    """
    drive = Drive(partitions, run_records, seed)
    warm_up_records = min(WARM_UP_RECORDS, WARM_UP_RUNS * run_records)
    drive.prepare(warm_up_records + in_flight + records + 4 * FETCH_RECORDS)
    drive.work(warm_up_records, min(in_flight, FETCH_RECORDS))
    if not drive.sized:
        msg = "the core did not size itself during the warm-up"
        raise RuntimeError(msg)
    drive.fill(in_flight)
    gc.collect()
    spent, finished, chunks, steps = (
        drive.spent_seconds,
        drive.finished_records,
        drive.chunks,
        drive.steps,
    )
    drive.most_in_flight = drive.in_flight
    drive.work(records, in_flight)
    done = drive.finished_records - finished
    return CoreCost(
        microseconds_per_record=1e6 * (drive.spent_seconds - spent) / done,
        in_flight=drive.most_in_flight,
        records_per_chunk=done / max(1, drive.chunks - chunks),
        steps=drive.steps - steps,
    )
