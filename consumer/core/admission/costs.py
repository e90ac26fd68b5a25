"""What each prefix of a fetched run would add to the charge.

Owns the vectors from which admission finds the longest prefix that fits. Decides nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consumer.core.ledger.counts import charged_units, count_load
from consumer.core.ledger.in_flight import FREE_SHARD, PartitionState, PendingRun
from consumer.core.ledger.ledger import Ledger
from sizing.load import Load


class RunCosts:
    """Costs of every prefix of one pending run, computed when they are first asked for."""

    def __init__(self, ledger: Ledger, state: PartitionState, head: PendingRun) -> None:
        self._ledger = ledger
        self._head = head
        self._seconds = ledger.model.seconds_of_records(head.units, head.classes)
        # As the ledger charges the heaviest that waits.
        charged = charged_units(head.units, head.classes)
        self._heaviest_seconds = ledger.model.seconds_of_records(charged, head.classes)
        self._heaviest_bytes = ledger.model.working_bytes_of_records(charged, head.classes)
        self._free = head.shards == FREE_SHARD
        shards = head.shards[~self._free] if self._free.any() else head.shards
        self._shard_count = int(shards.max()) + 1 if len(shards) else 0
        self._base = np.zeros(self._shard_count)
        for shard, chain in state.chains.items():
            if chain.ordered and shard < self._shard_count:
                self._base[shard] = ledger.chains.seconds[chain.row]
        self._others = ledger.chains.longest_seconds()

    def load(self, count: int) -> Load:
        """Count the first ``count`` records."""
        head = self._head
        if count == len(head.units):
            return head.load
        columns = head.fetched.columns
        return count_load(
            columns.vertices[:count],
            columns.payload_bytes[:count],
            head.units[:count],
            head.classes[:count],
        )

    def heaviest_bytes(self, count: int) -> float:
        """Working bytes of the heaviest of them."""
        return float(self._heaviest_bytes[:count].max())

    def heaviest_seconds(self, count: int) -> float:
        """Seconds of the heaviest of them."""
        return float(self._heaviest_seconds[:count].max())

    def longest_chain_seconds(self, count: int) -> float:
        """Seconds of the longest chain with them."""
        if not self._shard_count:
            return self._others
        shards: NDArray[np.int64] = self._head.shards[:count]
        seconds = self._seconds[:count]
        if self._free.any():
            ordered = ~self._free[:count]
            shards, seconds = shards[ordered], seconds[ordered]
        added = np.bincount(shards, weights=seconds, minlength=self._shard_count)
        touched = np.where(added > 0, self._base + added, 0.0)
        return max(self._others, float(touched.max()))
