"""Pieces, chains, runs and partitions: the objects that hold what is in flight.

Owns their fields and the offset rule: the committed end of a partition is the lowest unfinished
record of its oldest run. Decides nothing about admission, dispatch or pausing.

Rules: a piece is settled as a whole; what has to be treated differently is split off first.
A chain is inside one process at a time. An epoch is one assignment of a partition; pieces of a
fenced epoch free what they hold and move no offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from consumer.core.columns import Columns, FetchedRun, Partition
from sizing.classes import classes_of, sizes_units
from sizing.load import Load, load_rows, zero_load
from sizing.model import CostModel

#: shard of the chain whose records have no order among themselves
FREE_SHARD = -1
#: classes below this one are light in any setting: their largest size stands for all of them
HEAVY_CLASS_FROM = 4


class PieceState(IntEnum):
    """Where a piece is; the first four are rows of the ledger."""

    WAITING = 0
    INSIDE = 1
    RETRYING = 2
    UNACKNOWLEDGED = 3
    SETTLED = 4


@dataclass(slots=True, eq=False)
class Run:
    """Consecutive records of one partition, admitted together."""

    partition: PartitionState
    #: order of fetching across all partitions
    sequence: int
    first_offset: int
    last_offset: int
    #: in order (a set would be walked by address, and a replay would differ)
    unfinished: dict[Piece, None] = field(default_factory=dict)
    #: counts of the whole run, as admitted
    load: Load = field(default_factory=zero_load)
    #: largest size of each heavy class in the run
    heavy_units: Mapping[int, int] = field(default_factory=dict)
    #: records of this run that are settled
    settled_records: int = 0


@dataclass(slots=True, eq=False)
class Piece:
    """Records of one run that belong to one chain."""

    run: Run
    chain: Chain
    columns: Columns
    units: NDArray[np.int64]
    classes: NDArray[np.int64]
    load: Load
    first_offset: int
    #: largest size of each heavy class; empty for light records
    heavy_units: Mapping[int, int]
    state: PieceState = PieceState.WAITING
    #: predicted cost, by the model that valued it last
    valued_by: CostModel | None = None
    seconds: float = 0.0
    working_bytes: float = 0.0
    #: dispatch one record at a time: one of them may have killed a process
    alone: bool = False
    #: memory ran short for it: it is tried with the process's limit raised
    short_of_memory: bool = False
    attempts: int = 0
    #: deliveries that must be acknowledged before the piece is settled
    deliveries_pending: int = 0
    #: its mark among the heaviest that wait
    waiting_token: list[bool] | None = None

    def __len__(self) -> int:
        return len(self.units)

    def value(self, model: CostModel) -> None:
        """Bring ``seconds`` and ``working_bytes`` up to the model in force."""
        if self.valued_by is not model:
            self.seconds = model.seconds(self.load)
            self.working_bytes = model.working_bytes(self.load)
            self.valued_by = model


@dataclass(slots=True, eq=False)
class Chain:
    """Records that must be handled one after another (or, free, records without any order)."""

    partition: PartitionState
    shard: int
    #: row in the chain table; -1 for a chain without order
    slot: int
    #: waiting pieces in order; while the chain waits for a retry they are RETRYING
    pieces: deque[Piece] = field(default_factory=deque)
    #: pieces in a handler process
    inside: int = 0
    #: monotonic time of the next attempt; None when none is due
    retry_at: float | None = None
    queued: bool = False
    #: since when dispatch passed over it for want of memory
    passed_over_since: float | None = None

    @property
    def ordered(self) -> bool:
        """Whether one piece must be done before the next begins."""
        return self.slot >= 0

    @property
    def ready(self) -> bool:
        """Whether dispatch may take its first piece now."""
        return (
            bool(self.pieces)
            and self.retry_at is None
            and not (self.ordered and (self.inside or self.shard in self.partition.blocked_shards))
        )


@dataclass(slots=True, eq=False)
class PendingRun:
    """A fetched run, counted and not (wholly) admitted."""

    fetched: FetchedRun
    sequence: int
    units: NDArray[np.int64]
    classes: NDArray[np.int64]
    #: shard of each record; FREE_SHARD where it has no order
    shards: NDArray[np.int64]
    load: Load
    #: largest size of each heavy class
    heavy_units: Mapping[int, int]
    #: since when its head does not fit
    refused_since: float | None = None


@dataclass(slots=True, eq=False)
class PartitionState:
    """One epoch of one assigned partition."""

    partition: Partition
    epoch: int
    runs: deque[Run] = field(default_factory=deque)
    pending: deque[PendingRun] = field(default_factory=deque)
    chains: dict[int, Chain] = field(default_factory=dict)
    #: shards of an older epoch that are still inside a process
    blocked_shards: set[int] = field(default_factory=set)
    #: next offset after everything fetched; None before the first
    position: int | None = None
    committed: int | None = None
    highest_finished: int = -1
    #: records settled in runs that are not popped
    settled_above: int = 0
    #: lowest offset that was let go undone; None for none
    let_go_from: int | None = None
    fenced: bool = False
    revoking: bool = False
    #: why this partition alone is paused: cause -> words
    own_pauses: dict[str, str] = field(default_factory=dict)
    #: next number of a chain that holds one piece only (negative, below FREE_SHARD)
    next_lone_shard: int = FREE_SHARD - 1

    def committed_end(self) -> int | None:
        """Lowest offset that is not settled: what may be committed. None: nothing was read."""
        while self.runs and not self.runs[0].unfinished:
            self.settled_above -= self.runs.popleft().settled_records
        if self.runs:
            end = min(piece.first_offset for piece in self.runs[0].unfinished)
        elif self.pending:
            end = int(self.pending[0].fetched.columns.offsets[0])
        elif self.position is not None:
            end = self.position
        else:
            return None
        return end if self.let_go_from is None else min(end, self.let_go_from)

    def let_go(self, offset: int) -> None:
        """Note that a record was let go undone: nothing from it on may be committed."""
        self.let_go_from = offset if self.let_go_from is None else min(offset, self.let_go_from)

    def blocking_piece(self) -> Piece | None:
        """Return the piece that holds the committed end back."""
        if self.committed_end() is None or not self.runs:
            return None
        return min(self.runs[0].unfinished, key=lambda piece: piece.first_offset)


def pending_run(fetched: FetchedRun, sequence: int, shard_count: int, mode: str) -> PendingRun:
    """Count a fetched run and give each record its shard."""
    columns = fetched.columns
    units = sizes_units(columns.vertices, columns.payload_bytes)
    classes = classes_of(units)
    count = len(columns)
    if mode == "unordered" or (mode == "key" and fetched.key_hashes is None):
        shards = np.full(count, FREE_SHARD, dtype=np.int64)
    elif mode == "partition" or fetched.key_hashes is None:
        shards = np.zeros(count, dtype=np.int64)
    else:
        shards = fetched.key_hashes % shard_count
        if fetched.null_keys is not None:
            shards = np.where(fetched.null_keys, FREE_SHARD, shards)
    load = count_load(columns.vertices, columns.payload_bytes, units, classes)
    heavy = heaviest_units(units, classes)
    return PendingRun(fetched, sequence, units, classes, shards, load, heavy)


def count_load(
    vertices: NDArray[np.int64],
    payload_bytes: NDArray[np.int64],
    units: NDArray[np.int64],
    classes: NDArray[np.int64],
) -> Load:
    """Count some records into one load row."""
    group = np.zeros(len(units), dtype=np.int64)
    row: Load = load_rows(group, 1, vertices, payload_bytes, units, classes)[0]
    return row


def heaviest_units(units: NDArray[np.int64], classes: NDArray[np.int64]) -> dict[int, int]:
    """Return the largest size of each heavy class among some records."""
    largest: dict[int, int] = {}
    if int(classes.max()) < HEAVY_CLASS_FROM:
        return largest
    heavy = classes >= HEAVY_CLASS_FROM
    for size_class, size in zip(classes[heavy].tolist(), units[heavy].tolist(), strict=True):
        if size > largest.get(size_class, 0):
            largest[size_class] = size
    return largest


def piece_part(piece: Piece, which: slice | NDArray[np.int64]) -> Piece:
    """Return a new piece of some of a piece's records, with its attempts and chain."""
    if isinstance(which, slice):
        columns = piece.columns.part(which.start, which.stop)
    else:
        columns = piece.columns.take(which)
    units = piece.units[which]
    classes = piece.classes[which]
    return Piece(
        run=piece.run,
        chain=piece.chain,
        columns=columns,
        units=units,
        classes=classes,
        load=count_load(columns.vertices, columns.payload_bytes, units, classes),
        first_offset=int(columns.offsets[0]),
        heavy_units=heaviest_units(units, classes) if piece.heavy_units else piece.heavy_units,
        state=piece.state,
        alone=piece.alone,
        short_of_memory=piece.short_of_memory,
        attempts=piece.attempts,
    )


def pending_part(run: PendingRun, start: int, stop: int) -> PendingRun:
    """Return a part of a pending run, counted anew."""
    fetched = run.fetched
    columns = fetched.columns.part(start, stop)
    units, classes = run.units[start:stop], run.classes[start:stop]
    hashes = None if fetched.key_hashes is None else fetched.key_hashes[start:stop]
    nulls = None if fetched.null_keys is None else fetched.null_keys[start:stop]
    return PendingRun(
        FetchedRun(fetched.partition, columns, hashes, nulls),
        run.sequence,
        units,
        classes,
        run.shards[start:stop],
        load=count_load(columns.vertices, columns.payload_bytes, units, classes),
        heavy_units=heaviest_units(units, classes) if run.heavy_units else run.heavy_units,
    )
