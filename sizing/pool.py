"""How many handler processes fit, and what each may take: pure arithmetic.

Owns the size of the pool, of GDAL's cache in each process and of the number of concurrent scans.
Measures nothing: footprints and limits are arguments (``sizing.limits``, ``sizing.memory``).

A container that holds no process at all is an error with the least limit that would do, never a
pool of zero, which would consume nothing in silence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from sizing.errors import PoolDoesNotFitError
from sizing.units import MIB

#: Share of the limit that must stay for what is in flight.
LEAST_IN_FLIGHT_RATIO: Final = 0.1
#: A smaller client queue than this holds no fetch of one mebibyte, Kafka's usual largest record.
LEAST_PREFETCH_BYTES: Final = 1 * MIB
GDAL_CACHE_FLOOR_BYTES: Final = 64 * MIB
GDAL_CACHE_CAP_BYTES: Final = 512 * MIB


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The number of handler processes, and both figures that it is the smaller of."""

    #: >= 1
    processes: int
    #: whole cores, >= 1
    by_cores: int
    #: processes that fit beside parent, prefetch and the least in flight; >= 1
    by_memory: int
    #: kept free for what is in flight
    least_in_flight_bytes: int
    #: which of the two is the smaller; "cores" when they are equal
    limited_by: Literal["cores", "memory"]
    #: what the Kafka client may prefetch: as asked for, or shrunk so that one process fits
    prefetch_bytes: int
    #: what all processes together may take
    room_bytes: int


def pool_size(  # noqa: PLR0917 -- the order of the formula
    cores: float,
    limit_bytes: int,
    parent_bytes: int,
    prefetch_bytes: int,
    footprint_bytes: int,
    largest_chunk_bytes: int,
    headroom_ratio: float = 0.8,
    least_prefetch_bytes: int = LEAST_PREFETCH_BYTES,
) -> PoolSize:
    """Return how many handler processes to start.

    Parameters
    ----------
    cores : float
        Cores or quota, > 0.
    limit_bytes : int
        Memory limit of the container.
    parent_bytes : int
        What the parent takes, without prefetch and records.
    prefetch_bytes : int
        What the Kafka client may prefetch, if there is room.
    footprint_bytes : int
        One process with the real handler open, its slots included, > 0.
    largest_chunk_bytes : int
        Working bytes of the largest chunk.
    headroom_ratio : float
        Share of the limit that may be planned for, in (0.1, 1].
    least_prefetch_bytes : int
        How far the prefetch may be shrunk for the first process.

    Returns
    -------
    PoolSize

    Raises
    ------
    PoolDoesNotFitError
        If one process does not fit although the prefetch is at its floor.
    ValueError
        If ``cores``, ``footprint_bytes`` or ``headroom_ratio`` is out of range.

    Notes
    -----
    Units: bytes / (bytes / process) = processes.
    Formula: min(floor(cores), floor((limit * headroom - parent - prefetch - least) / footprint)),
    with least = max(limit / 10, 2 * largest chunk).
    A fraction of a core gives no process: more runnable threads than the quota are throttled all
    together, and the parent's thread that must keep polling with them.
    Monotone: never falls when cores, limit or headroom rise (but for a byte of rounding),
    never rises with the other arguments.

    Source
    ------
    min(cores, floor(limit * 0.8 / footprint)) is the common rule for worker pools of GDAL; it
    leaves nothing for the parent, the prefetch and what is in flight, which are added here.

    Examples
    --------
    A container of 2 GiB: 1,638 MiB to plan for, less 120 (parent), 8 (prefetch) and 204 (a tenth
    of the limit) leave 1,306 MiB, in which 8 processes of 150 MiB fit; there are 4 cores.

    >>> mib = 1 << 20
    >>> size = pool_size(4, 2048 * mib, 120 * mib, 8 * mib, 150 * mib, 20 * mib)
    >>> size.processes, size.by_cores, size.by_memory, size.limited_by
    (4, 4, 8, 'cores')
    """
    if not cores > 0 or footprint_bytes <= 0 or not LEAST_IN_FLIGHT_RATIO < headroom_ratio <= 1:
        msg = (
            "cores and footprint must be positive and the headroom in (0.1, 1], not"
            f" {cores} cores, {footprint_bytes} bytes and {headroom_ratio}"
        )
        raise ValueError(msg)
    least_bytes = max(math.ceil(limit_bytes * LEAST_IN_FLIGHT_RATIO), 2 * largest_chunk_bytes)
    free_bytes = int(limit_bytes * headroom_ratio) - parent_bytes - least_bytes
    least_prefetch_bytes = min(least_prefetch_bytes, prefetch_bytes)
    if free_bytes - prefetch_bytes < footprint_bytes:
        prefetch_bytes = max(free_bytes - footprint_bytes, least_prefetch_bytes)
    room_bytes = free_bytes - prefetch_bytes
    by_memory = room_bytes // footprint_bytes
    if by_memory < 1:
        fixed_bytes = parent_bytes + least_prefetch_bytes + footprint_bytes
        raise PoolDoesNotFitError(
            limit_bytes=limit_bytes,
            headroom_ratio=headroom_ratio,
            parent_bytes=parent_bytes,
            prefetch_bytes=prefetch_bytes,
            least_in_flight_bytes=least_bytes,
            footprint_bytes=footprint_bytes,
            least_limit_bytes=_least_limit_bytes(fixed_bytes, largest_chunk_bytes, headroom_ratio),
        )
    by_cores = max(1, math.floor(cores))
    return PoolSize(
        processes=min(by_cores, by_memory),
        by_cores=by_cores,
        by_memory=by_memory,
        least_in_flight_bytes=least_bytes,
        limited_by="cores" if by_cores <= by_memory else "memory",
        prefetch_bytes=prefetch_bytes,
        room_bytes=room_bytes,
    )


def _least_limit_bytes(fixed_bytes: int, largest_chunk_bytes: int, headroom_ratio: float) -> int:
    """Solve limit * headroom - max(limit / 10, 2 * chunk) >= fixed for the limit, in whole MiB."""
    # Two bytes for what rounding takes on either side.
    needed_bytes = fixed_bytes + 2
    limit_bytes = max(
        needed_bytes / (headroom_ratio - LEAST_IN_FLIGHT_RATIO),
        (needed_bytes + 2 * largest_chunk_bytes) / headroom_ratio,
    )
    return math.ceil(limit_bytes / MIB) * MIB


def pool_bytes(processes: int, process_bytes: int, gdal_cache_bytes: int = 0) -> int:
    """Return what a pool takes: GDAL's cache is per process, not per machine.

    Parameters
    ----------
    processes : int
        Number of processes.
    process_bytes : int
        One process and its work, without GDAL's cache.
    gdal_cache_bytes : int
        GDAL's cache in each process.

    Returns
    -------
    int
        Bytes.

    Notes
    -----
    Units: processes * bytes / process = bytes.

    Source
    ------
    "Sizing Worker Pools for GDAL-Bound Queues", its table of workers against cache size.

    Examples
    --------
    >>> pool_bytes(8, process_bytes=2228 << 20, gdal_cache_bytes=512 << 20) / (1 << 30)
    21.40625
    """
    return processes * (process_bytes + gdal_cache_bytes)


def gdal_cache_bytes(room_bytes: int, processes: int, footprint_bytes: int) -> int:
    """Return the size of GDAL's block cache in each process.

    Parameters
    ----------
    room_bytes : int
        What all processes together may take (``PoolSize.room_bytes``).
    processes : int
        Number of processes, >= 1.
    footprint_bytes : int
        One process with the handler open, its slots included, without the cache.

    Returns
    -------
    int
        Bytes: what is left of a process's share, at least 64 MiB and at most 512 MiB.

    Notes
    -----
    Units: bytes / processes - bytes = bytes.
    The floor holds although nothing may be left: a footprint meant for a handler that uses GDAL
    must include it, so that the pool is sized for it.

    Source
    ------
    "Sizing Worker Pools for GDAL-Bound Queues", ``gdal_cache_bytes``.

    Examples
    --------
    >>> [gdal_cache_bytes(room << 20, 4, 150 << 20) >> 20 for room in (600, 1306, 8000)]
    [64, 176, 512]
    """
    left_bytes = room_bytes // processes - footprint_bytes
    return max(GDAL_CACHE_FLOOR_BYTES, min(GDAL_CACHE_CAP_BYTES, left_bytes))


def gdal_environment(cache_bytes: int) -> dict[str, str]:
    """Return the variables that a process must have *before* it imports anything of GDAL.

    Parameters
    ----------
    cache_bytes : int
        Size of the block cache in this process.

    Returns
    -------
    dict of str to str
        ``GDAL_CACHEMAX`` (otherwise 5 % of the machine's memory in every process) and
        ``GDAL_NUM_THREADS`` (the pool supplies the parallelism).

    Notes
    -----
    Units: bytes to mebibytes: GDAL reads a number under 100,000 as mebibytes.

    Source
    ------
    GDAL's configuration options.

    Examples
    --------
    >>> gdal_environment(176 << 20)
    {'GDAL_CACHEMAX': '176', 'GDAL_NUM_THREADS': '1'}
    """
    return {"GDAL_CACHEMAX": str(cache_bytes // MIB), "GDAL_NUM_THREADS": "1"}


def scan_slots(memory_limit_bytes: int, heaviest_query_peak_bytes: int) -> int:
    """Return how many scans of an analytical engine may run at once.

    Parameters
    ----------
    memory_limit_bytes : int
        What the engine may use.
    heaviest_query_peak_bytes : int
        Measured peak of the heaviest query, alone, > 0.

    Returns
    -------
    int
        Slots, >= 1. One is given even if the heaviest query alone exceeds the limit: no number
        of slots helps then, and the query must be split.

    Notes
    -----
    Units: bytes / (bytes / query) = queries.
    One less than fit, for headroom. The core count does not enter: one query uses every core.

    Source
    ------
    "Bounding Concurrency for Async Spatial Scans".

    Examples
    --------
    >>> scan_slots(8 << 30, 2 << 30)
    3
    """
    return max(1, memory_limit_bytes // heaviest_query_peak_bytes - 1)
