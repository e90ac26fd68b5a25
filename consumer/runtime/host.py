"""The machine under the worker: memory limit, memory in use, and the pool's size.

Owns what is at rest (the baseline) and what the parent has grown beyond what it is charged for.
Reads files; decides nothing about records.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sizing.limits import memory_limit
from sizing.memory import data_bytes, proportional_set_bytes, trim

#: Growth of the parent that is not explained by what it holds is given back to the system first.
TRIM_BYTES = 16 * 1024 * 1024
#: Share of what is not taken at rest that one handler process may grow by, and the least of it.
CONFINED_RATIO = 0.9
LEAST_GROWTH_BYTES = 32 * 1024 * 1024
#: A JSON parser sets aside twice what it comes to use.
RAISED_FACTOR = 2
#: The growth that counts is the largest of so many samples, in steps: what is free for work must
#: not follow every breath of the allocator.
GROWTHS_REMEMBERED = 15
GROWTH_STEP_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of the container and of everything in it."""

    limit_bytes: int
    baseline_bytes: int
    prefetch_bytes: int
    used_bytes: int


class HostMemory:
    """Memory of the container, of the parent and of the handler processes.

    Parameters
    ----------
    limit_bytes : int or None
        Fixed limit; None: the container's, read again at every sample.
    pids : callable
        The handler processes now.
    parent_at_rest_bytes : int
        The parent before it reads records, without its side of the slots.
    parent_slots_bytes : int
        The parent's side of all slots.
    processes_at_rest_bytes : int
        All handler processes with the handler open, with both sides of their slots.
    prefetch_bytes : int
        What the client's prefetch may take.
    """

    def __init__(
        self,
        limit_bytes: int | None,
        pids: Callable[[], tuple[int, ...]],
        *,
        parent_at_rest_bytes: int,
        parent_slots_bytes: int,
        processes_at_rest_bytes: int,
        prefetch_bytes: int,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._pids = pids
        self._at_rest_bytes = parent_at_rest_bytes + processes_at_rest_bytes
        self._explained_bytes = parent_at_rest_bytes + parent_slots_bytes + prefetch_bytes
        self._prefetch_bytes = prefetch_bytes
        #: process id -> what it had set aside when its handler was open
        self._data_at_rest: dict[int, int] = {}
        self._growths: deque[int] = deque(maxlen=GROWTHS_REMEMBERED)

    def confine(self, pid: int, *, raised: bool = False) -> None:
        """Limit a handler process to what would exceed the container if it took all the rest.

        Then a record that is larger than the container raises ``MemoryError`` in its own process,
        instead of having the kernel choose what to kill. The kernel counts memory that is set
        aside as well as used, so the process keeps what it has set aside at rest, and a record
        for which memory ran short is tried once more with the limit ``raised``.
        """
        limit = memory_limit().limit_bytes if self._limit_bytes is None else self._limit_bytes
        rest = limit - self._at_rest_bytes - self._prefetch_bytes
        allowance = max(LEAST_GROWTH_BYTES, int(CONFINED_RATIO * rest))
        if raised:
            allowance *= RAISED_FACTOR
        try:
            at_rest = self._data_at_rest.setdefault(pid, data_bytes(pid))
            _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
            resource.prlimit(pid, resource.RLIMIT_DATA, (at_rest + allowance, hard))
        except (OSError, ValueError):
            # It has ended, or a stricter limit is set already.
            self._data_at_rest.pop(pid, None)

    def sample(self, held_bytes: float) -> MemoryReading:
        """Measure memory now.

        The baseline is what everything had at the start, plus any growth of the parent that the
        records it holds, the slots and the prefetch do not explain.
        """
        parent = proportional_set_bytes([os.getpid()])
        grown = parent - self._explained_bytes - held_bytes
        if grown > TRIM_BYTES:
            trim()
            parent = proportional_set_bytes([os.getpid()])
            grown = parent - self._explained_bytes - held_bytes
        self._growths.append(max(0, int(grown)))
        steps = -(-max(self._growths) // GROWTH_STEP_BYTES)
        baseline = self._at_rest_bytes + steps * GROWTH_STEP_BYTES
        limit = self._limit_bytes
        if limit is None:
            limit = memory_limit().limit_bytes
        used = parent + proportional_set_bytes(self._pids())
        return MemoryReading(limit, baseline, self._prefetch_bytes, used)
