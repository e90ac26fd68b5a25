"""What the processes could do at best: a schedule that knows the true costs.

Owns a greedy list schedule of the same arrivals under the same constraints: a chain runs once at
a time, the running work fits the memory, the parent handles every record. A partition is read in
order, and no further while one of its chains holds its share of the deadline; nothing else limits
what it sees.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumer.core.config import Ordering
from tests.core.partition_log import PartitionLog

#: most true work in one task of light records
TASK_SECONDS = 0.06


@dataclass(frozen=True, slots=True)
class Task:
    """Consecutive records of one chain, handled at once."""

    arrived_at: float
    partition: int
    chain: int
    records: int
    seconds: float
    working_bytes: float
    held_bytes: float


@dataclass(frozen=True)
class Limits:
    """What the oracle must keep to, as the core must."""

    processes: int
    ordering: Ordering
    shards: int
    available_bytes: float
    parent_seconds_per_message: float
    #: seconds of a chunk beside its records
    overhead_seconds: float
    #: a partition is read on while none of its chains holds more
    chain_seconds: float
    #: handler seconds from here on take so many times as long
    slower_from: float = float("inf")
    slower_factor: float = 1.0


def make_tasks(logs: Sequence[PartitionLog], limits: Limits) -> list[Task]:
    """Cut every chain into tasks, in order of arrival of their first record."""
    tasks: list[Task] = []
    for log in logs:
        if limits.ordering is Ordering.PARTITION:
            chains = np.zeros(len(log), dtype=np.int64)
        else:
            chains = log.key_hashes % limits.shards
        for shard in np.unique(chains).tolist():
            mine = np.flatnonzero(chains == shard)
            chain = hash((log.partition[1], shard))
            tasks.extend(_tasks_of(log, mine, chain, len(tasks), limits))
    tasks.sort(key=lambda task: task.arrived_at)
    return tasks


def _tasks_of(
    log: PartitionLog, mine: NDArray[np.int64], chain: int, unique: int, limits: Limits
) -> list[Task]:
    total = np.cumsum(log.true_seconds[mine])
    is_heavy = log.true_seconds[mine] > TASK_SECONDS
    # A task ends where its work passes a multiple of the limit, and around every heavy record.
    bucket = np.floor(total / TASK_SECONDS).astype(np.int64) + 2 * np.cumsum(is_heavy)
    edges = np.flatnonzero(np.diff(bucket)) + 1
    tasks = []
    for number, part in enumerate(np.split(mine, edges)):
        free = limits.ordering is Ordering.UNORDERED
        tasks.append(
            Task(
                float(log.arrived_at[part[0]]),
                log.partition[1],
                -1 - unique - number if free else chain,
                len(part),
                float(log.true_seconds[part].sum()),
                float(log.true_working_bytes[part].sum()),
                float(log.payload_bytes[part].sum()),
            )
        )
    return tasks


def busy_seconds(tasks: Sequence[Task], limits: Limits, begin: float, end: float) -> float:
    """Return the seconds of work between ``begin`` and ``end``, over all processes."""
    schedule = _Schedule(tasks, limits)
    while schedule.now < end:
        schedule.read()
        schedule.start()
        schedule.advance(end)
    return sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in schedule.work)


class _Schedule:
    """The greedy schedule at one moment."""

    def __init__(self, tasks: Sequence[Task], limits: Limits) -> None:
        self.limits = limits
        self.now = 0.0
        #: (start, stop) of every task
        self.work: list[tuple[float, float]] = []
        self._parent_free_at = 0.0
        #: partition -> tasks that are not read yet
        self._unread: dict[int, deque[Task]] = {}
        for task in tasks:
            self._unread.setdefault(task.partition, deque()).append(task)
        #: partition -> its chain that holds too much
        self._blocked: dict[int, int] = {}
        #: chain -> tasks behind the one that is ready or running, and its unfinished seconds
        self._behind: dict[int, deque[Task]] = {}
        self._unfinished: dict[int, float] = {}
        self._ready: deque[Task] = deque()
        self._running: list[tuple[float, int, Task]] = []
        self._working_bytes = 0.0

    def read(self) -> None:
        """Read what has arrived, in every partition that may be read on."""
        for partition, unread in self._unread.items():
            chain = self._blocked.get(partition)
            if chain is not None and self._holds_too_much(chain):
                continue
            self._blocked.pop(partition, None)
            while unread and unread[0].arrived_at <= self.now:
                task = unread.popleft()
                held = self._unfinished.get(task.chain, 0.0)
                self._unfinished[task.chain] = held + task.seconds
                if task.chain in self._behind:
                    self._behind[task.chain].append(task)
                else:
                    self._behind[task.chain] = deque()
                    self._ready.append(task)
                if self._holds_too_much(task.chain):
                    self._blocked[partition] = task.chain
                    break

    def _holds_too_much(self, chain: int) -> bool:
        return self._unfinished.get(chain, 0.0) > self.limits.chain_seconds

    def start(self) -> None:
        """Start ready tasks, passing over what the memory does not hold now."""
        passed_over: list[Task] = []
        limits = self.limits
        while self._ready and len(self._running) < limits.processes and len(passed_over) < 50:
            task = self._ready.popleft()
            needs = task.working_bytes + task.held_bytes
            if self._running and self._working_bytes + needs > limits.available_bytes:
                passed_over.append(task)
                continue
            start = max(self._parent_free_at, self.now)
            start += task.records * limits.parent_seconds_per_message
            self._parent_free_at = start
            factor = limits.slower_factor if start >= limits.slower_from else 1.0
            stop = start + task.seconds * factor + limits.overhead_seconds
            self.work.append((start, stop))
            self._working_bytes += needs
            heapq.heappush(self._running, (stop, len(self.work), task))
        self._ready.extendleft(reversed(passed_over))

    def advance(self, end: float) -> None:
        """Go to the next end of a task, or to the next arrival while a process is free."""
        heads = [unread[0].arrived_at for unread in self._unread.values() if unread]
        arrival = min((at for at in heads if at > self.now), default=end)
        is_full = len(self._running) == self.limits.processes
        if self._running and (is_full or self._running[0][0] <= arrival):
            self.now = max(self.now, self._running[0][0])
            self._end_tasks()
        else:
            self.now = arrival

    def _end_tasks(self) -> None:
        while self._running and self._running[0][0] <= self.now:
            _, _, done = heapq.heappop(self._running)
            self._working_bytes -= done.working_bytes + done.held_bytes
            self._unfinished[done.chain] -= done.seconds
            if self._behind[done.chain]:
                self._ready.append(self._behind[done.chain].popleft())
            else:
                del self._behind[done.chain]
