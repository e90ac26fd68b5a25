"""A window of traffic: what consecutive admitted records of each partition add up to.

Owns the counts of a sample. Windows are merged in the order of time; they hold no payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consumer.core.ledger.columns import Partition
from consumer.core.ledger.counts import heaviest_units
from consumer.core.ledger.in_flight import Run
from sizing.load import CLASS_RECORDS, CLASS_UNITS, RECORDS, Load, zero_load
from sizing.model import CostModel

#: Second moment over squared mean of sizes spread evenly over one class (1 to 4): 7 / 6.25.
WITHIN_CLASS_FACTOR = 1.12


@dataclass(slots=True)
class Window:
    """Counts of consecutive records of each partition."""

    #: monotonic seconds
    started_at: float = 0.0
    load: Load = field(default_factory=zero_load)
    #: predicted seconds of each chain, by (partition, shard); records without order are left out
    chain_seconds: dict[tuple[Partition, int], float] = field(default_factory=dict)
    #: first and last offset
    offsets: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    #: size class -> largest size (of a light class: the largest that it can have)
    heaviest_units: dict[int, int] = field(default_factory=dict)
    #: wall clock of the first and the last admission
    first_wall: float = 0.0
    last_wall: float = 0.0

    @property
    def messages(self) -> int:
        """Records in the window."""
        return int(self.load[RECORDS])

    def add(self, run: Run, model: CostModel, now_wall: float) -> None:
        """Add a run that was just admitted (all of its pieces are unfinished)."""
        if not self.messages:
            self.first_wall = now_wall
        self.last_wall = now_wall
        partition = run.partition.partition
        self.load = self.load + run.load
        for piece in run.unfinished:
            if piece.chain.ordered:
                piece.value(model)
                key = (partition, piece.chain.shard)
                self.chain_seconds[key] = self.chain_seconds.get(key, 0.0) + piece.seconds
        self._note_heaviest(heaviest_units(run.load, run.heavy_units.__getitem__))
        known = self.offsets.get(partition)
        self.offsets[partition] = (known[0] if known else run.first_offset, run.last_offset)

    def add_window(self, later: Window) -> None:
        """Add a window that follows this one."""
        if not later.messages:
            return
        if not self.messages:
            self.first_wall = later.first_wall
            self.started_at = later.started_at
        self.last_wall = later.last_wall
        self.load = self.load + later.load
        for key, seconds in later.chain_seconds.items():
            self.chain_seconds[key] = self.chain_seconds.get(key, 0.0) + seconds
        for partition, (first, last) in later.offsets.items():
            known = self.offsets.get(partition)
            self.offsets[partition] = (known[0] if known else first, last)
        self._note_heaviest(later.heaviest_units)

    def _note_heaviest(self, largest: Mapping[int, int]) -> None:
        for size_class, units in largest.items():
            if units > self.heaviest_units.get(size_class, 0):
                self.heaviest_units[size_class] = units

    def relative_error(self, model: CostModel) -> float:
        """Return the relative standard error of the window's mean cost of a record.

        Where few records hold most of the cost, as coastlines among pings, a mean over thousands
        of records is known no better than the number of those few.
        """
        records = np.maximum(self.load[CLASS_RECORDS], 1)
        costs = model.seconds_per_unit * self.load[CLASS_UNITS]
        total = float(costs.sum())
        if total <= 0:
            return 1.0
        return float(np.sqrt(WITHIN_CLASS_FACTOR * (costs * costs / records).sum())) / total

    def holds_any_of(self, classes: NDArray[np.bool_]) -> bool:
        """Whether the window has records of any of these size classes."""
        return bool(((self.load[CLASS_RECORDS] > 0) & classes).any())

    def largest_chain_ratio(self, model: CostModel) -> float:
        """Share of the window's seconds in its largest chain, in [0, 1]."""
        total = model.seconds(self.load)
        if not self.chain_seconds or total <= 0:
            return 0.0
        return min(1.0, max(self.chain_seconds.values()) / total)
