"""The lag: records between what is done and the end of each partition's log, and their seconds.

Owns the ends that the brokers last named, and the arithmetic. The client's own figure stands
still while a partition is paused; this one does not. Asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer.core.ledger.columns import Partition
from consumer.core.snapshot import Snapshot


class Lag:
    """Ends of the logs of the assigned partitions."""

    def __init__(self) -> None:
        self._ends: dict[Partition, int] = {}

    def note(self, ends: Mapping[Partition, int]) -> None:
        """Take in ends that the brokers have named: next offsets to be written."""
        self._ends.update(ends)

    def messages(self, picture: Snapshot) -> dict[Partition, int]:
        """Return the lag of each assigned partition whose end is known."""
        assigned = set(picture.assigned)
        self._ends = {p: end for p, end in self._ends.items() if p in assigned}
        return {
            partition: max(0, self._ends[partition] - end)
            for partition, end in picture.committed_end.items()
            if partition in self._ends
        }


def lag_seconds(picture: Snapshot, lag_messages: int) -> float:
    """Estimate the seconds to work off a lag, by the mix of the last sizing; 0 before there is one."""
    sizing = picture.sizing
    if sizing is None or not sizing.sample.messages or sizing.vertices_per_second <= 0:
        return 0.0
    vertices = lag_messages * sizing.sample.vertices / sizing.sample.messages
    return vertices / sizing.vertices_per_second
