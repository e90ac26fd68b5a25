"""Pieces, chains, runs and partitions: the objects that hold what is in flight.

Owns their fields and the offset rule: the committed end of a partition is the lowest unfinished
record of its oldest run. Reading changes nothing; pieces, chains and runs are written by
``pieces`` alone.

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

from consumer.core.ledger.columns import Columns, FetchedRun, Partition
from consumer.core.reasons import PauseReason
from sizing.load import Load, zero_load
from sizing.model import CostModel

#: shard of the chain whose records have no order among themselves
FREE_SHARD = -1


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
    row: int
    #: waiting pieces in order; while the chain waits for a retry they are RETRYING
    pieces: deque[Piece] = field(default_factory=deque)
    #: pieces in a handler process
    inside: int = 0
    #: monotonic time of the next attempt; None when none is due
    retry_at: float | None = None
    #: since when dispatch passed over it for want of memory
    passed_over_since: float | None = None

    @property
    def ordered(self) -> bool:
        """Whether one piece must be done before the next begins."""
        return self.row >= 0

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
    #: records that are settled in runs which are not finished
    settled_above: int = 0
    #: lowest offset that was let go undone; None for none
    let_go_from: int | None = None
    fenced: bool = False
    revoking: bool = False
    #: why this partition alone is paused, in words
    own_pauses: dict[PauseReason, str] = field(default_factory=dict)
    #: next number of a chain that holds one piece only (negative, below FREE_SHARD)
    next_lone_shard: int = FREE_SHARD - 1

    def committed_end(self) -> int | None:
        """Lowest offset that is not settled: what may be committed. None: nothing was read."""
        blocking = self.blocking_piece()
        if blocking is not None:
            end = blocking.first_offset
        elif self.pending:
            end = int(self.pending[0].fetched.columns.offsets[0])
        elif self.position is not None:
            end = self.position
        else:
            return None
        return end if self.let_go_from is None else min(end, self.let_go_from)

    def blocking_piece(self) -> Piece | None:
        """Return the piece that holds the committed end back; None when nothing is unfinished."""
        if not self.runs:
            return None
        return min(self.runs[0].unfinished, key=lambda piece: piece.first_offset)

    def note_let_go(self, offset: int) -> None:
        """Note that a record was let go undone: nothing from it on may be committed."""
        self.let_go_from = offset if self.let_go_from is None else min(offset, self.let_go_from)
