"""Pool size, GDAL's cache and scan slots: hand-computed numbers and laws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing.errors import PoolDoesNotFitError
from sizing.pool import (
    LEAST_PREFETCH_BYTES,
    PoolSize,
    gdal_cache_bytes,
    gdal_environment,
    pool_bytes,
    pool_size,
    scan_slots,
)

MIB = 1 << 20
GIB = 1 << 30


def test_cores_limit() -> None:
    """Much memory, 4 cores: 4 processes.

    8192 * 0.8 = 6553 MiB, less 100, 16 and 819.2 (a tenth) = 5618 MiB; / 200 = 28 would fit.
    """
    size = pool_size(4, 8192 * MIB, 100 * MIB, 16 * MIB, 200 * MIB, 20 * MIB)
    assert (size.processes, size.by_cores, size.by_memory) == (4, 4, 28)
    assert size.limited_by == "cores"
    assert size.least_in_flight_bytes == 858_993_460  # ceil(8192 MiB / 10)
    assert size.prefetch_bytes == 16 * MIB


def test_memory_limits() -> None:
    """512 MiB: 409.6 to plan for, less 100, 8 and 51.2 leave 250.4 MiB: 2 processes of 120."""
    size = pool_size(16, 512 * MIB, 100 * MIB, 8 * MIB, 120 * MIB, 10 * MIB)
    assert (size.processes, size.by_cores, size.by_memory) == (2, 16, 2)
    assert size.limited_by == "memory"
    assert 250 * MIB < size.room_bytes < 251 * MIB


def test_two_of_the_largest_chunks_stay_free() -> None:
    """Chunks of 100 MiB: 200 MiB stay free and not a tenth, 51.2; 101.6 MiB hold one of 100."""
    size = pool_size(16, 512 * MIB, 100 * MIB, 8 * MIB, 100 * MIB, 100 * MIB)
    assert size.least_in_flight_bytes == 200 * MIB
    assert size.processes == 1


@pytest.mark.parametrize(
    ("cores", "expected"), [(0.25, 1), (1.0, 1), (1.9, 1), (2.0, 2), (2.5, 2), (64, 64)]
)
def test_a_part_of_a_core_gives_no_process(cores: float, expected: int) -> None:
    """A quota is cut down to whole processes, at least one."""
    assert pool_size(cores, 64 * GIB, MIB, MIB, MIB, MIB).by_cores == expected


def test_prefetch_shrinks_before_the_first_process_is_refused() -> None:
    """256 MiB: 204.8 less 80, 25.6 and 90 leave 9.2 MiB for a prefetch that wanted 32."""
    size = pool_size(4, 256 * MIB, 80 * MIB, 32 * MIB, 90 * MIB, MIB)
    assert size.processes == 1
    assert size.limited_by == "memory"
    # 256 MiB = 268,435,456: floor(* 0.8) = 214,748,364, ceil(/ 10) = 26,843,546.
    assert size.prefetch_bytes == 214_748_364 - 80 * MIB - 26_843_546 - 90 * MIB
    assert size.room_bytes == 90 * MIB


def test_prefetch_is_not_shrunk_for_a_second_process() -> None:
    """Where one process fits the prefetch stays what was asked for."""
    size = pool_size(4, 256 * MIB, 60 * MIB, 32 * MIB, 80 * MIB, MIB)
    assert (size.processes, size.prefetch_bytes) == (1, 32 * MIB)


def test_refusal_names_the_least_limit() -> None:
    """80 + 1 + 140 MiB need 221 / 0.7 = 315.7, so 316 MiB; the error carries every number."""
    with pytest.raises(PoolDoesNotFitError) as caught:
        pool_size(4, 256 * MIB, 80 * MIB, 32 * MIB, 140 * MIB, MIB)
    error = caught.value
    assert error.least_limit_bytes == 316 * MIB
    assert (error.limit_bytes, error.footprint_bytes) == (256 * MIB, 140 * MIB)
    assert error.prefetch_bytes == LEAST_PREFETCH_BYTES
    assert "256.0 MiB" in str(error)
    assert "at least 316.0 MiB" in str(error)
    assert pool_size(4, 316 * MIB, 80 * MIB, 32 * MIB, 140 * MIB, MIB).processes == 1


@pytest.mark.parametrize(
    ("cores", "footprint_bytes", "headroom_ratio"),
    [(0, MIB, 0.8), (float("nan"), MIB, 0.8), (1, 0, 0.8), (1, MIB, 0.1), (1, MIB, 1.1)],
)
def test_arguments_out_of_range(cores: float, footprint_bytes: int, headroom_ratio: float) -> None:
    """No cores, nothing per process, or a headroom that the least in flight eats up."""
    with pytest.raises(ValueError, match="must be positive and the headroom"):
        pool_size(cores, GIB, MIB, MIB, footprint_bytes, MIB, headroom_ratio)


def size_or_refusal(*arguments: Any) -> PoolSize | PoolDoesNotFitError:
    """Return the error instead of raising it."""
    try:
        return pool_size(*arguments)
    except PoolDoesNotFitError as error:
        return error


@given(
    cores=st.floats(0.1, 512),
    limit_bytes=st.integers(16 * MIB, 1 << 42),
    parent_bytes=st.integers(0, 4 * GIB),
    prefetch_bytes=st.integers(0, GIB),
    footprint_bytes=st.integers(1, 8 * GIB),
    largest_chunk_bytes=st.integers(0, 4 * GIB),
    headroom_ratio=st.floats(0.2, 1.0),
)
def test_what_is_planned_stays_inside_the_headroom(  # noqa: PLR0917 -- drawn by name
    cores: float,
    limit_bytes: int,
    parent_bytes: int,
    prefetch_bytes: int,
    footprint_bytes: int,
    largest_chunk_bytes: int,
    headroom_ratio: float,
) -> None:
    """Either everything together fits, or the refusal's own advice works, and barely."""
    rest = (parent_bytes, prefetch_bytes, footprint_bytes, largest_chunk_bytes, headroom_ratio)
    size = size_or_refusal(cores, limit_bytes, *rest)
    if isinstance(size, PoolDoesNotFitError):
        least_bytes = size.least_limit_bytes
        assert least_bytes > limit_bytes
        assert pool_size(cores, least_bytes, *rest).processes >= 1
        assert isinstance(
            size_or_refusal(cores, least_bytes - MIB - 64, *rest), PoolDoesNotFitError
        )
        return
    planned_bytes = (
        parent_bytes
        + size.prefetch_bytes
        + size.least_in_flight_bytes
        + size.processes * footprint_bytes
    )
    assert planned_bytes <= limit_bytes * headroom_ratio
    assert size.prefetch_bytes <= prefetch_bytes
    assert 1 <= size.processes == min(size.by_cores, size.by_memory)


@given(
    cores=st.floats(1, 64),
    limit_bytes=st.integers(4 * GIB, 64 * GIB),
    parts=st.tuples(*[st.integers(1, 256 * MIB)] * 4),
    which=st.integers(0, 3),
    more=st.integers(1, 256 * MIB),
)
def test_monotone(
    cores: float, limit_bytes: int, parts: tuple[int, int, int, int], which: int, more: int
) -> None:
    """More cores or memory never give fewer processes; anything that takes more, never more."""
    processes = pool_size(cores, limit_bytes, *parts).processes
    assert pool_size(cores + 1, limit_bytes, *parts).processes >= processes
    assert pool_size(cores, limit_bytes + 100 * more, *parts).processes >= processes
    assert pool_size(cores, limit_bytes, *parts, headroom_ratio=0.9).processes >= processes
    larger = [part + more * (index == which) for index, part in enumerate(parts)]
    assert pool_size(cores, limit_bytes, *larger).processes <= processes


@pytest.mark.parametrize(
    ("workers", "cache_mib", "expected_gib"),
    [
        (4, 128, 9),
        (4, 512, 10),
        (4, 2048, 16),
        (8, 128, 18),
        (8, 512, 21),
        (8, 2048, 33),
        (16, 128, 36),
        (16, 512, 42),
        # The article's table says 65; its own terms give 16 * (180 + 2,048 + 2,048) MiB
        # = 68,416 MiB = 66.8 GiB. The other eight cells are these terms, cut to whole GiB.
        (16, 2048, 66),
    ],
)
def test_workers_against_cache_size(workers: int, cache_mib: int, expected_gib: int) -> None:
    """180 MiB of interpreter, 2 GiB of work and the cache, in each process."""
    taken_bytes = pool_bytes(workers, 180 * MIB + 2 * GIB, cache_mib * MIB)
    assert taken_bytes // GIB == expected_gib


@pytest.mark.parametrize(
    ("workers", "caches_mib_that_fit"), [(4, [128, 512, 2048]), (8, [128, 512]), (16, [])]
)
def test_what_fits_a_node_of_32_gib(workers: int, caches_mib_that_fit: list[int]) -> None:
    """Of 32 GiB, 25.6 may be planned for: four fit at any cache, eight to 512 MiB, sixteen never.

    The article rounds the 25.6 up to 26, which changes no cell.
    """
    fits = [
        cache_mib
        for cache_mib in (128, 512, 2048)
        if pool_bytes(workers, 180 * MIB + 2 * GIB, cache_mib * MIB) <= 32 * GIB * 0.8
    ]
    assert fits == caches_mib_that_fit


def test_gdal_default_cache_of_eight_workers() -> None:
    """Eight times 5 % of 64 GiB: 25.6 GiB before a single array is allocated."""
    assert pool_bytes(8, 0, 64 * GIB * 5 // 100) / GIB == pytest.approx(25.6)


@pytest.mark.parametrize(
    ("room_mib", "processes", "footprint_mib", "expected_mib"),
    [
        (4000, 4, 700, 300),  # 1000 - 700
        (4000, 4, 950, 64),  # 50 are left: the floor
        (4000, 2, 700, 512),  # 1300 are left: the cap
        (1000, 4, 700, 64),  # less than nothing is left
    ],
)
def test_gdal_cache(room_mib: int, processes: int, footprint_mib: int, expected_mib: int) -> None:
    """What is left of a process's share, between 64 and 512 MiB."""
    cache_bytes = gdal_cache_bytes(room_mib * MIB, processes, footprint_mib * MIB)
    assert cache_bytes == expected_mib * MIB
    assert gdal_environment(cache_bytes) == {
        "GDAL_CACHEMAX": str(expected_mib),
        "GDAL_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("limit_gib", "peak_gib", "expected"), [(8, 2, 3), (8, 3, 1), (8, 5, 1), (8, 9, 1), (64, 1, 63)]
)
def test_scan_slots(limit_gib: int, peak_gib: int, expected: int) -> None:
    """Memory over the heaviest peak, less one, at least one."""
    assert scan_slots(limit_gib * GIB, peak_gib * GIB) == expected


def test_the_ends_of_the_ranges_are_inside() -> None:
    """All of the limit may be planned for, and a process may take a single byte."""
    assert pool_size(4, GIB, MIB, MIB, MIB, MIB, headroom_ratio=1.0).processes == 4
    assert pool_size(4, GIB, MIB, MIB, 1, MIB).processes == 4


def test_of_equal_figures_the_cores_limit() -> None:
    """Two fit, as in 512 MiB above, and there are two cores: a third needs both."""
    size = pool_size(2, 512 * MIB, 100 * MIB, 8 * MIB, 120 * MIB, 10 * MIB)
    assert (size.by_cores, size.by_memory, size.limited_by) == (2, 2, "cores")


@pytest.mark.parametrize(("fixed_bytes", "least_mib"), [(231_945_009, 316), (231_945_011, 317)])
def test_the_least_limit_counts_what_rounding_takes(fixed_bytes: int, least_mib: int) -> None:
    """Of 316 MiB, floor(331,350,016 * 0.8) - ceil(331,350,016 / 10) = 231,945,010 are left."""
    parent_bytes = fixed_bytes - 141 * MIB
    with pytest.raises(PoolDoesNotFitError) as caught:
        pool_size(4, 256 * MIB, parent_bytes, 32 * MIB, 140 * MIB, MIB)
    assert caught.value.least_limit_bytes == least_mib * MIB
    assert pool_size(4, least_mib * MIB, parent_bytes, 32 * MIB, 140 * MIB, MIB).processes == 1


def test_the_least_limit_has_room_for_two_of_the_largest_chunks() -> None:
    """80 + 1 + 140 and twice 100 MiB are 421 / 0.8 = 526.25, and not 221 / 0.7 = 315.7."""
    with pytest.raises(PoolDoesNotFitError) as caught:
        pool_size(4, 256 * MIB, 80 * MIB, 32 * MIB, 140 * MIB, 100 * MIB)
    assert caught.value.least_limit_bytes == 527 * MIB


def test_a_pool_without_gdal_has_no_cache() -> None:
    """Three processes of 100 bytes."""
    assert pool_bytes(3, 100) == 300
