"""What one chunk costs, measured from inside the handler process.

Owns the clock readings and the memory readings around a chunk, and the giving back of free
memory. Decides nothing about which chunks are sampled.

Rules: growth over "resident before" reads 0 where an allocator has kept free pages, so a sampled
chunk is preceded by a trim, and what the allocators have given out is read as well: at the
moments that the decoder calls ``look``, and at the end. The larger figure counts. Pages of files and of shared memory are not the chunk's: a library
that is paged in at its first use would make the first small chunk look enormous. Trimming happens
outside the measured seconds.
"""

from __future__ import annotations

import os
import time
import tracemalloc
from dataclasses import dataclass

from consumer.processes.allocators import in_use_bytes
from sizing.memory import peak_resident_bytes, reset_peak, trim

#: A process that has kept this much more than after its last trim is trimmed.
TRIM_GROWTH_BYTES = 32 * 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one chunk cost."""

    #: None when allocations were traced, which slows what it measures
    seconds: float | None
    cpu_seconds: float
    #: None when the chunk was not sampled
    working_bytes: int | None
    growth_bytes: int
    resident_bytes: int


class Meter:
    """Measures chunks, one after the other."""

    __slots__ = (
        "_can_reset",
        "_cpu_started",
        "_in_use_before",
        "_in_use_peak",
        "_kept_bytes",
        "_resident_before",
        "_sampled",
        "_shared_before",
        "_started",
        "_statm",
        "_traced",
    )

    def __init__(self) -> None:
        # Kept open: a read is then two microseconds.
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        trim()
        #: resident bytes after the last trim
        self._kept_bytes = self.resident_bytes()
        self._can_reset = False
        self._sampled = False
        self._traced = False
        self._in_use_before = 0
        self._in_use_peak = 0
        self._resident_before = 0
        self._shared_before = 0
        self._started = 0.0
        self._cpu_started = 0.0

    def resident_bytes(self) -> int:
        """Return the resident bytes of this process."""
        return self._resident_and_shared()[0]

    def _resident_and_shared(self) -> tuple[int, int]:
        words = os.pread(self._statm, 256, 0).split()
        return int(words[1]) * _PAGE_BYTES, int(words[2]) * _PAGE_BYTES

    def start(self, *, sample: bool, trace: bool) -> None:
        """Begin to measure one chunk.

        Parameters
        ----------
        sample : bool
            Measure working bytes, after a trim.
        trace : bool
            Measure the peak of Python's allocations instead: it sees what lives only for a
            moment, but neither GEOS nor seconds, and counts what is reserved and never touched.
        """
        self._sampled = sample or trace
        self._traced = trace
        if self._sampled:
            trim()
            self._in_use_before = self._in_use_peak = in_use_bytes()
        self._can_reset = reset_peak()
        self._resident_before, self._shared_before = self._resident_and_shared()
        if trace:
            tracemalloc.start()
        self._cpu_started = time.process_time()
        self._started = time.perf_counter()

    def look(self) -> None:
        """Note what is in use now; of use where a chunk holds most."""
        if self._sampled and not self._traced:
            self._in_use_peak = max(self._in_use_peak, in_use_bytes())

    def stop(self) -> Measurement:
        """End the measurement; call it before what the chunk needed is let go."""
        seconds = time.perf_counter() - self._started
        cpu_seconds = time.process_time() - self._cpu_started
        resident_bytes, shared_bytes = self._resident_and_shared()
        peak_bytes = peak_resident_bytes() if self._can_reset else resident_bytes
        self.look()
        # What came in from files and shared memory stays in after the chunk.
        shared_growth_bytes = max(0, shared_bytes - self._shared_before)
        growth_bytes = max(0, peak_bytes - self._resident_before - shared_growth_bytes)
        working_bytes = max(growth_bytes, self._in_use_peak - self._in_use_before)
        if self._traced:
            working_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            # The tracer's own tables can outweigh what it traces.
            growth_bytes = 0
        return Measurement(
            seconds=None if self._traced else seconds,
            cpu_seconds=cpu_seconds,
            working_bytes=working_bytes if self._sampled else None,
            growth_bytes=growth_bytes,
            resident_bytes=resident_bytes,
        )

    def settle(self) -> int:
        """Give back what is free if it is much, and return the resident bytes.

        Called after what the chunk needed was let go.
        """
        resident_bytes = self.resident_bytes()
        if resident_bytes > self._kept_bytes + TRIM_GROWTH_BYTES:
            trim()
            # A handler that keeps what it has loaded is not trimmed in vain after every chunk.
            resident_bytes = self._kept_bytes = self.resident_bytes()
        return resident_bytes
