"""Generated traffic: pings, lines, parcels with holes, coastlines. The same seed, the same bytes.

Every function returns a list of ``(key, value)``; each value is a GeoJSON Feature as text.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

Record: TypeAlias = tuple[bytes, bytes]

#: Shares of the mixed stream, in records.
MIX = {"ping": 0.645, "line": 0.215, "parcel": 0.125, "heavy": 0.015}
#: Vehicles that send pings, unless told otherwise.
VEHICLES = 200
_START = datetime(2026, 1, 26, 6, 0, tzinfo=UTC)


def pings(n: int, seed: int = 1, *, vehicles: int = VEHICLES) -> list[Record]:
    """Return positions of about 180 bytes, keyed by vehicle; consecutive ones of a key move on."""
    rng = random.Random(seed)
    return [_ping(rng, i, vehicles) for i in range(n)]


def lines(n: int, seed: int = 1) -> list[Record]:
    """Return road segments of 2 to 40 vertices."""
    rng = random.Random(seed)
    return [_line(rng, i) for i in range(n)]


def parcels(n: int, seed: int = 1) -> list[Record]:
    """Return plots of 5 to 60 vertices, a third of them with holes."""
    rng = random.Random(seed)
    return [_parcel(rng, i) for i in range(n)]


def heavy(n: int, seed: int = 1, *, max_vertices: int = 20_000) -> list[Record]:
    """Return coastlines of a quarter of ``max_vertices`` up to ``max_vertices``."""
    rng = random.Random(seed)
    return [_coast(rng, i, rng.randint(max_vertices // 4, max_vertices)) for i in range(n)]


def coastline(vertices: int, seed: int = 1) -> Record:
    """Return one coastline of exactly so many vertices (the closing one included), at least 5."""
    return _coast(random.Random(seed), 0, vertices)


def mixed(n: int, seed: int = 1) -> list[Record]:
    """Return the mixed stream: of the corpus when there is one, else generated.

    The corpus's stream is repeated as often as it takes, and the seed says where to begin.
    """
    corpus = os.environ.get("VERTEX_BUDGET_CORPUS")
    if corpus:
        stream = read_stream(Path(corpus) / "derived" / "mixed_stream.ndjson")
        begin = random.Random(seed).randrange(len(stream))
        return list(itertools.islice(itertools.cycle(stream), begin, begin + n))
    return generated_mix(n, seed)


def generated_mix(n: int, seed: int = 1) -> list[Record]:
    """Return the mixed stream of our own, whether or not there is a corpus."""
    rng = random.Random(seed)
    make: dict[str, Callable[[random.Random, int], Record]] = {
        "ping": lambda rng, i: _ping(rng, i, VEHICLES),
        "line": _line,
        "parcel": _parcel,
        "heavy": lambda rng, i: _coast(rng, i, rng.randint(1_000, 8_000)),
    }
    kinds = rng.choices(list(MIX), weights=list(MIX.values()), k=n)
    return [make[kind](rng, i) for i, kind in enumerate(kinds)]


def read_stream(path: Path) -> list[Record]:
    """Read a stream file: one JSON object a line, with ``key`` and ``value``."""
    return list(_read(path))


def write_stream(path: Path, records: list[Record]) -> None:
    """Write a stream file that `read_stream` reads."""
    with path.open("wb") as out:
        for key, value in records:
            out.write(b'{"key":%b,"value":%b}\n' % (orjson.dumps(key.decode()), value))


def _read(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for line in file:
            record = orjson.loads(line)
            yield record["key"].encode(), orjson.dumps(record["value"])


def _feature(geometry: dict[str, Any], **properties: Any) -> bytes:
    feature = {"type": "Feature", "properties": properties, "geometry": geometry}
    return orjson.dumps(feature, option=orjson.OPT_SERIALIZE_NUMPY)


def _ping(rng: random.Random, i: int, vehicles: int) -> Record:
    vehicle = rng.randrange(vehicles)
    # A vehicle circles its own quarter of the town.
    angle = i / 500 + vehicle
    position = [
        round(-2.95 + 0.08 * math.cos(angle) + rng.gauss(0, 2e-4), 6),
        round(53.41 + 0.05 * math.sin(angle) + rng.gauss(0, 2e-4), 6),
    ]
    value = _feature(
        {"type": "Point", "coordinates": position},
        vehicle_id=str(4000 + vehicle),
        ts=(_START + timedelta(milliseconds=20 * i)).isoformat(),
        bearing=round(rng.uniform(0, 360), 1),
        route=str(vehicle % 40),
    )
    return str(4000 + vehicle).encode(), value


def _line(rng: random.Random, i: int) -> Record:
    steps = np.array([[rng.gauss(4e-4, 1e-4), rng.gauss(0, 1e-4)] for _ in range(_few(rng, 2, 40))])
    positions = _origin(rng) + np.cumsum(steps, axis=0)
    value = _feature(
        {"type": "LineString", "coordinates": positions.round(7)},
        segment=i,
        lanes=rng.randint(1, 4),
    )
    return f"line-{rng.randrange(100)}".encode(), value


def _parcel(rng: random.Random, i: int) -> Record:
    centre = _origin(rng)
    rings = [_ring(rng, centre, 4e-4, _few(rng, 5, 60))]
    if rng.random() < 1 / 3:
        rings.append(_ring(rng, centre, 1e-4, 5))
    value = _feature({"type": "Polygon", "coordinates": rings}, parcel=i, zone="R-2")
    return f"parcel-{rng.randrange(100)}".encode(), value


def _coast(rng: random.Random, i: int, vertices: int) -> Record:
    positions = _origin(rng) + _fractal_ring(vertices, rng.randrange(2**32))
    value = _feature({"type": "Polygon", "coordinates": [positions.round(7)]}, coast=i)
    return f"coast-{rng.randrange(30)}".encode(), value


def _few(rng: random.Random, least: int, most: int) -> int:
    """Return a count that is mostly small: the real ones have long tails."""
    return min(most, least + int(rng.expovariate(6 / (most - least))))


def _origin(rng: random.Random) -> NDArray[np.float64]:
    return np.array([rng.uniform(-77.1, -76.9), rng.uniform(38.8, 39.0)])


def _ring(
    rng: random.Random, centre: NDArray[np.float64], radius: float, vertices: int
) -> NDArray[np.float64]:
    """Return a closed star-shaped ring: valid whatever the radii."""
    angles = np.linspace(0, 2 * np.pi, vertices - 1, endpoint=False)
    radii = radius * np.array([rng.uniform(0.7, 1.3) for _ in angles])
    points = centre + np.column_stack([np.cos(angles), np.sin(angles)]) * radii[:, None]
    return np.vstack([points, points[:1]]).round(7)


def _fractal_ring(vertices: int, seed: int) -> NDArray[np.float64]:
    """Return a closed ring with bays within bays; star-shaped, so that it is valid."""
    rng = np.random.default_rng(seed)
    angles = np.linspace(0, 2 * np.pi, vertices - 1, endpoint=False)
    octaves = 2.0 ** np.arange(1, 9)
    phases = rng.uniform(0, 2 * np.pi, octaves.size)
    waves = np.sin(angles[:, None] * octaves + phases) * octaves**-0.8
    radii = 0.05 * np.exp(0.4 * waves.sum(axis=1) + rng.normal(0, 0.002, angles.size))
    points = np.column_stack([np.cos(angles), np.sin(angles)]) * radii[:, None]
    return np.vstack([points, points[:1]])
