"""Traffic with hidden true costs, generated in columns from a seed.

Owns the kinds of record and how a partition's log is made of them. Knows nothing of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumer.core.ledger.columns import Partition
from tests.core.partition_log import PartitionLog

Random = np.random.Generator

#: one record in so many takes ten times its seconds
OUTLIER_EVERY = 2_000
OUTLIER_FACTOR = 10.0
#: records become readable in batches of this: a producer lingers, a fetch is a round trip
BATCH_SECONDS = 0.02
#: vertices at which a validity test costs twice what it costs by vertex
SUPERLINEAR_VERTICES = 150_000


@dataclass(frozen=True)
class Kind:
    """Records of one content, and what they truly cost."""

    name: str
    #: draws counted vertices
    vertices: Callable[[Random, int], NDArray[np.int64]]
    payload_bytes_per_vertex: float
    payload_bytes_per_message: float
    seconds_per_message: float
    seconds_per_vertex: float
    working_bytes_per_vertex: float
    working_bytes_per_message: float = 400.0

    def true_seconds(self, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds in a handler process without noise: more than linear in vertices."""
        superlinear = 1.0 + vertices / SUPERLINEAR_VERTICES
        return self.seconds_per_message + self.seconds_per_vertex * vertices * superlinear


def constant(vertices: int) -> Callable[[Random, int], NDArray[np.int64]]:
    """Every record has so many vertices."""
    return lambda _random, n: np.full(n, vertices, dtype=np.int64)


def log_normal(
    median: float, sigma: float, least: int, most: int
) -> Callable[[Random, int], NDArray[np.int64]]:
    """Sizes with a long tail, cut at both ends."""

    def draw(random: Random, n: int) -> NDArray[np.int64]:
        drawn = random.lognormal(np.log(median), sigma, n)
        return np.clip(drawn, least, most).astype(np.int64)

    return draw


PING = Kind("ping", constant(1), 0, 179, 150e-6, 0, 0)
#: so quick that the parent cannot feed four processes
QUICK_PING = Kind("quick-ping", constant(1), 0, 179, 25e-6, 0, 0)
PARCEL = Kind("parcel", log_normal(60, 0.6, 5, 1_000), 40, 200, 60e-6, 3e-6, 90)
#: wait for a database, once a message
STORED_PARCEL = Kind("stored-parcel", log_normal(60, 0.6, 5, 1_000), 40, 200, 2e-3, 3e-6, 90)
STORED_POLYGON = Kind("stored-polygon", log_normal(800, 0.3, 300, 2_000), 30, 300, 2e-3, 4e-6, 90)
POLYGON = Kind("polygon", log_normal(800, 1.0, 50, 60_000), 30, 300, 100e-6, 4e-6, 90)
COASTLINE = Kind("coastline", log_normal(50_000, 0.6, 20_000, 200_000), 25, 500, 1e-3, 2.3e-6, 100)
HEAVY = Kind("heavy", log_normal(100_000, 0.03, 90_000, 110_000), 25, 500, 1e-3, 2.3e-6, 100)
GIANT = Kind("giant", constant(400_000), 25, 500, 1e-3, 2.3e-6, 100)

Mix = Sequence[tuple[Kind, float]]
PINGS: Mix = ((PING, 1.0),)
QUICK_PINGS: Mix = ((QUICK_PING, 1.0),)
MIXED: Mix = ((PING, 0.80), (PARCEL, 0.15), (POLYGON, 0.049), (COASTLINE, 0.001))
COASTLINES: Mix = ((COASTLINE, 1.0),)
HEAVIES: Mix = ((HEAVY, 1.0),)
POLYGONS: Mix = ((POLYGON, 1.0),)


def mean_seconds(mix: Mix) -> float:
    """Mean true seconds of a record of a mix, outliers included."""
    random = np.random.default_rng(0)
    outliers = 1.0 + (OUTLIER_FACTOR - 1.0) / OUTLIER_EVERY
    each = [(kind.true_seconds(kind.vertices(random, 20_000)).mean(), w) for kind, w in mix]
    return float(outliers * sum(s * w for s, w in each) / sum(w for _, w in each))


@dataclass(frozen=True)
class Phase:
    """Arrivals of one mix during an interval, over all partitions."""

    from_seconds: float
    to_seconds: float
    records_per_second: float
    mix: Mix
    #: payload and working bytes, times this
    payload_factor: float = 1.0
    working_factor: float = 1.0


@dataclass(frozen=True)
class Spread:
    """How records are spread over partitions and keys."""

    partitions: int = 4
    keys: int = 5_000
    #: share of the records that have key 0 in partition 0
    hot_key_share: float = 0.0
    #: share of the records that go to partition 0, whatever their key
    hot_partition_share: float = 0.0


def make_logs(phases: Sequence[Phase], spread: Spread, seed: int) -> list[PartitionLog]:
    """Generate every partition's log, in order of arrival."""
    random = np.random.default_rng(seed)
    columns = [_phase_columns(phase, random) for phase in phases]
    joined = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
    total = len(joined["vertices"])
    keys = random.integers(1, spread.keys + 1, total)
    where = keys % spread.partitions
    if spread.hot_partition_share:
        where[random.random(total) < spread.hot_partition_share] = 0
    if spread.hot_key_share:
        hot = random.random(total) < spread.hot_key_share
        keys[hot], where[hot] = 0, 0
    # A key is hashed, so that neighbours do not share a chain by chance of numbering.
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    hashes = (mixed >> np.uint64(8)).astype(np.int64)
    logs = []
    for number in range(spread.partitions):
        partition: Partition = ("traffic", number)
        log = PartitionLog(partition)
        mine = np.flatnonzero(where == number)
        log.fill(
            offsets=np.arange(len(mine), dtype=np.int64),
            key_hashes=hashes[mine],
            vertices=joined["vertices"][mine],
            payload_bytes=joined["payload_bytes"][mine],
            arrived_at=joined["arrived_at"][mine],
            true_seconds=joined["true_seconds"][mine],
            typical_seconds=joined["typical_seconds"][mine],
            true_working_bytes=joined["true_working_bytes"][mine],
            distinct_values=False,
        )
        logs.append(log)
    return logs


def _phase_columns(phase: Phase, random: Random) -> dict[str, NDArray[np.generic]]:
    n = max(1, round((phase.to_seconds - phase.from_seconds) * phase.records_per_second))
    weights = np.array([weight for _, weight in phase.mix])
    kind_of = random.choice(len(weights), n, p=weights / weights.sum())
    vertices = np.zeros(n, dtype=np.int64)
    payload = np.zeros(n)
    seconds = np.zeros(n)
    working = np.zeros(n)
    for number, (kind, _) in enumerate(phase.mix):
        mine = np.flatnonzero(kind_of == number)
        drawn = kind.vertices(random, len(mine))
        vertices[mine] = drawn
        payload[mine] = kind.payload_bytes_per_message + kind.payload_bytes_per_vertex * drawn
        seconds[mine] = kind.true_seconds(drawn)
        working[mine] = kind.working_bytes_per_message + kind.working_bytes_per_vertex * drawn
    sent_at = random.uniform(phase.from_seconds, phase.to_seconds, n)
    outliers = np.where(random.random(n) < 1 / OUTLIER_EVERY, OUTLIER_FACTOR, 1.0)
    return {
        "vertices": vertices,
        "payload_bytes": (payload * phase.payload_factor).astype(np.int64),
        "arrived_at": np.ceil(np.sort(sent_at) / BATCH_SECONDS) * BATCH_SECONDS,
        "true_seconds": seconds * outliers,
        "typical_seconds": seconds,
        "true_working_bytes": working * phase.working_factor,
    }
