"""Chunks for the tests, and a pool that is closed and checked afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import orjson

from consumer.core.commands import Chunk, ChunkPart
from consumer.core.events import ChunkFinished, ChunkOutcome, ProcessDied, ProcessReady
from consumer.core.ledger.columns import Columns, Headers
from consumer.payload.counting import counted_vertices
from consumer.processes.pool import ProcessPool
from sizing.load import zero_load

T = TypeVar("T", ProcessReady, ProcessDied, ChunkFinished)

DEADLINE_SECONDS = 30.0
HANDLERS = "tests.processes.sample_handlers"


def feature(do: str = "", **properties: object) -> bytes:
    """Return a point that tells the handler what to do."""
    return orjson.dumps(
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [1.5, 2.5]},
            "properties": {"do": do, **properties},
        }
    )


def columns(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    first_offset: int = 0,
    headers: dict[int, Headers] | None = None,
) -> Columns:
    offsets = np.arange(first_offset, first_offset + len(values))
    sizes = np.array([len(value or b"") for value in values], dtype=np.int64)
    return Columns(
        values, keys, offsets, offsets + 1000, counted_vertices(values), sizes, headers or {}
    )


def chunk(
    chunk_id: int,
    *parts: Columns | Sequence[bytes | None],
    sample: bool = False,
    trace: bool = False,
) -> Chunk:
    """Return a chunk; part n comes from partition n of topic "t"."""
    made = tuple(
        ChunkPart(("t", number), part if isinstance(part, Columns) else columns(part))
        for number, part in enumerate(parts)
    )
    return Chunk(
        chunk_id, made, zero_load(), 0.1, 1000, sample_bytes=sample, trace_allocations=trace
    )


@contextmanager
def running_pool(
    name: str,
    count: int = 1,
    environment: Mapping[str, str] | None = None,
    *,
    slot_bytes: int = 1 << 20,
) -> Iterator[ProcessPool]:
    """Start a pool whose processes are ready; afterwards none of them is left."""
    pool = ProcessPool(
        name if ":" in name else f"{HANDLERS}:{name}",
        count,
        environment={**os.environ, **(environment or {})},
        slot_bytes=slot_bytes,
    )
    pids: tuple[int, ...] = ()
    try:
        for number in range(count):
            pool.start(number)
        pids = pool.pids
        collect(pool, ProcessReady, count)
        yield pool
    finally:
        pool.close(DEADLINE_SECONDS)
        assert not [pid for pid in pids if is_running(pid)]


def collect(pool: ProcessPool, kind: type[T], count: int = 1) -> list[T]:
    """Poll until so many events of a kind have come; no other kind may come."""
    found: list[T] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{count} x {kind.__name__} did not come: {found}"
        for event in pool.poll(1.0):
            assert isinstance(event, kind), event
            found.append(event)
    assert len(found) == count
    return found


def run(pool: ProcessPool, given: Chunk, process: int = 0) -> ChunkOutcome:
    """Hand over one chunk and return what came of it."""
    pool.submit(process, given)
    (finished,) = collect(pool, ChunkFinished)
    assert (finished.process, finished.chunk_id) == (process, given.chunk_id)
    return finished.outcome


def died(pool: ProcessPool) -> ProcessDied:
    """Return the next event, which is a death."""
    return collect(pool, ProcessDied)[0]


def is_running(pid: int) -> bool:
    """Whether a process runs: it exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
