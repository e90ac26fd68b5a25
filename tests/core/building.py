"""Small builders for the specifications of the core's rooms, with costs that are easy to multiply.

A record of n vertices has n units. A unit costs a millisecond and 100 working bytes, and a record
of 64 payload bytes holds 264.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Columns, FetchedRun, Partition
from consumer.core.ledger.ledger import Ledger
from consumer.core.limits import LIMITS, Limits
from sizing.model import CostModel

C = TypeVar("C", bound=cmd.Command)

MiB = 1 << 20
TOWN = ("town", 0)
#: 64 of payload and 200 for its objects
HELD = 264


def costs(
    seconds_per_unit: float = 1e-3,
    bytes_per_unit: float = 100.0,
    *,
    parent_seconds_per_message: float = 0.0,
) -> CostModel:
    """One rate for every size class; the parent costs nothing unless told otherwise."""
    return CostModel(
        np.full(16, seconds_per_unit), np.full(16, bytes_per_unit), parent_seconds_per_message
    )


def ledger_of(processes: int = 2, *, available_bytes: int = 1_000_000) -> Ledger:
    """An empty ledger with these costs, and chunks of 50 ms."""
    ledger = Ledger(processes, 0.05)
    ledger.use_model(costs())
    ledger.use_available_bytes(available_bytes)
    return ledger


def run_of(
    first_offset: int,
    vertices: Sequence[int],
    keys: Sequence[int] | None = None,
    *,
    partition: Partition = TOWN,
    payload_bytes: int = 64,
) -> FetchedRun:
    """Consecutive records; a key below 16 is its own shard, and without keys there is no order."""
    count = len(vertices)
    columns = Columns(
        values=[b"v"] * count,
        keys=None if keys is None else [b"%d" % key for key in keys],
        offsets=np.arange(first_offset, first_offset + count),
        timestamps_ms=np.zeros(count, dtype=np.int64),
        vertices=np.array(vertices, dtype=np.int64),
        payload_bytes=np.full(count, payload_bytes),
    )
    return FetchedRun(partition, columns, None if keys is None else np.array(keys))


def outcome(
    records: int = 1, *, seconds_per_record: float = 1e-3, vertices_per_record: int = 1
) -> ev.ChunkOutcome:
    """A chunk in which every record is done."""
    seconds = seconds_per_record * records
    return ev.ChunkOutcome(seconds, seconds, None, 0, vertices_per_record * records)


def of_kind(kind: type[C], commands: Iterable[cmd.Command]) -> list[C]:
    """Return the commands of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def offsets_in(chunk: cmd.Chunk) -> list[int]:
    """Return the offsets of a chunk's records, in order."""
    return [offset for part in chunk.parts for offset in part.columns.offsets.tolist()]


def begun(
    config: FlowConfig, *partitions: Partition, limits: Limits = LIMITS
) -> tuple[Flow, list[cmd.Command]]:
    """Return a worker whose processes are ready, at 0 s: 0.8 * 512 - 116 = 293.6 MiB are free."""
    flow = Flow(config, limits=limits)
    said = flow.step(ev.MemorySampled(0.0, 512 * MiB, 100 * MiB, 16 * MiB, 100 * MiB))
    for process in range(config.processes):
        said += flow.step(ev.ProcessReady(0.0, process, 40 * MiB))
    said += flow.step(ev.Assigned(0.0, partitions or (TOWN,)))
    return flow, said


#: A worker is sized after 400 records and 0.2 s of them.
SMALL_WARM_UP = FlowConfig(2, warmup_messages=400, warmup_seconds=0.2)


def sized(
    config: FlowConfig = SMALL_WARM_UP, *, limits: Limits = LIMITS
) -> tuple[Flow, list[cmd.Command]]:
    """Return a worker after its first sizing, with nothing in flight, and what it has said.

    It was given runs of 40 records of 20 vertices, which took 1 ms each.
    """
    flow, said = begun(config, limits=limits)
    now, offset = 0.0, 0
    while not of_kind(cmd.Publish, said):
        now += 0.1
        assert now < 60.0, "never sized"
        run = run_of(offset, [20] * 40, payload_bytes=1_000)
        answer = flow.step(ev.Tick(now)) + flow.step(ev.Fetched(now, (run,)))
        offset += 40
        said += answer
        while submits := of_kind(cmd.Submit, answer):
            answer = []
            for submit in submits:
                done = outcome(len(offsets_in(submit.chunk)), vertices_per_record=20)
                answer += flow.step(
                    ev.ChunkFinished(now, submit.process, submit.chunk.chunk_id, done)
                )
            said += answer
    return flow, said
