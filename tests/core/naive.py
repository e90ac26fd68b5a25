"""The ledger's sums, counted record by record: slow, and too simple to be wrong.

Owns the counts by state. Reads the world, never the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.core.harness import World
from tests.core.partition_log import AWAITING_ACK, INSIDE, RETRYING, WAITING

#: records, vertices, payload bytes
Sums = tuple[int, int, int]

STATE_NAMES = {
    WAITING: "waiting",
    INSIDE: "inside",
    RETRYING: "retrying",
    AWAITING_ACK: "unacknowledged",
}


def sums_by_state(world: World) -> dict[str, Sums]:
    """Count every record that the core holds, by state.

    ``waiting`` has what was fetched and not admitted as well: nothing outside the core tells
    the two apart. ``inside`` has what a process still works on for an assignment that ended.
    """
    counts = {name: [0, 0, 0] for name in STATE_NAMES.values()}
    for partition in sorted(world.assigned):
        log = world.logs[partition]
        for index in range(log.first, log.position):
            name = STATE_NAMES.get(int(log.state[index]))
            if name is not None:
                _add(counts[name], int(log.vertices[index]), int(log.payload_bytes[index]))
    for inside in world.chunks_inside():
        for part, index in inside.records():
            if not world.is_current(part):
                log = part.log
                _add(counts["inside"], int(log.vertices[index]), int(log.payload_bytes[index]))
    return {name: (c[0], c[1], c[2]) for name, c in counts.items()}


def total(sums: Mapping[Any, Sums]) -> Sums:
    """Add up the states."""
    records = sum(each[0] for each in sums.values())
    vertices = sum(each[1] for each in sums.values())
    payload_bytes = sum(each[2] for each in sums.values())
    return records, vertices, payload_bytes


def _add(count: list[int], vertices: int, payload_bytes: int) -> None:
    count[0] += 1
    count[1] += vertices
    count[2] += payload_bytes
