"""The traffic that the benchmarks run on: pings, a mix, heavy records, and a polygon layer.

Real records where ``VERTEX_BUDGET_CORPUS`` names a corpus (``derived/pings.ndjson``,
``derived/mixed_stream.ndjson``, ``good/natural-earth``), generated ones of the same shape
otherwise. A kind of traffic is a list of a few thousand records that is repeated to any length;
each repetition
stands for other vehicles and areas, so its keys are those of the data with the number of the copy
behind them (up to ``COPIES``, then from the first again).
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("pings", "mixed", "heavy")
#: The generated world: degrees of longitude and latitude.
WEST, SOUTH, EAST, NORTH = -12.0, 40.0, 20.0, 60.0

#: Countries and city districts, of very different size and detail: 536 features.
LAYER_FILES = (
    "natural-earth/ne_110m_admin_0_countries",
    "natural-earth/ne_10m_antarctic_ice_shelves_polys",
    "click_that_hood/milwaukee",
    "click_that_hood/kaiserslautern",
)

#: Copies with keys of their own. One key may hold nearly half of the work of a few records.
COPIES = 16

Record = tuple[bytes, bytes]
Position = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Records of one kind, to be repeated."""

    kind: str
    #: (key, value)
    records: list[Record]
    #: "corpus" or "generated"
    source: str

    @property
    def mean_bytes(self) -> float:
        """Mean value bytes of a record."""
        return sum(len(value) for _, value in self.records) / len(self.records)


def corpus() -> Path | None:
    """Return the corpus folder, when there is one."""
    folder = os.environ.get("VERTEX_BUDGET_CORPUS")
    return Path(folder) if folder and Path(folder).is_dir() else None


def load_traffic(kind: str, seed: int) -> Traffic:
    """Return the records of one kind: from the corpus, or generated."""
    folder = corpus()
    if folder is not None:
        return Traffic(kind, _corpus_records(folder, kind), "corpus")
    return Traffic(kind, _generated_records(kind, random.Random(seed)), "generated")


def with_copies(records: list[Record], copies: int) -> list[Record]:
    """Return the records repeated, each copy with keys of its own; one copy keeps the keys."""
    if copies == 1:
        return records
    return [(b"%b-%d" % (key, copy), value) for copy in range(copies) for key, value in records]


def write_layer(path: Path, seed: int) -> int:
    """Write a polygon layer of about 500 features as GeoJSON and return their number."""
    folder = corpus()
    if folder is not None:
        features = []
        for name in LAYER_FILES:
            text = (folder / "good" / f"{name}.geojson").read_text()
            features += json.loads(text)["features"]
    else:
        features = _grid(random.Random(seed))
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return len(features)


def _corpus_records(folder: Path, kind: str) -> list[Record]:
    if kind == "pings":
        records = []
        for line in (folder / "derived" / "pings.ndjson").read_text().splitlines():
            key = json.loads(line)["properties"]["vehicle_id"]
            records.append((str(key).encode(), line.encode()))
        return records
    rows = map(json.loads, (folder / "derived" / "mixed_stream.ndjson").read_text().splitlines())
    return [
        (row["key"].encode(), _packed(row["value"]))
        for row in rows
        if kind == "mixed" or row["class"] == "heavy"
    ]


def _packed(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _feature(geometry_type: str, coordinates: object, properties: dict[str, Any]) -> bytes:
    geometry = {"type": geometry_type, "coordinates": coordinates}
    return _packed({"type": "Feature", "properties": properties, "geometry": geometry})


def _position(rng: random.Random) -> Position:
    return round(rng.uniform(WEST, EAST), 6), round(rng.uniform(SOUTH, NORTH), 6)


def _ring(rng: random.Random, centre: Position, radius: float, vertices: int) -> list[Position]:
    """Return a closed ring of ``vertices`` positions, the closing one included."""
    corners = []
    for corner in range(vertices - 1):
        angle = 2 * math.pi * corner / (vertices - 1)
        reach = radius * rng.uniform(0.9, 1.1)
        corners.append(
            (
                round(centre[0] + reach * math.cos(angle), 8),
                round(centre[1] + reach * math.sin(angle), 8),
            )
        )
    return [*corners, corners[0]]


def _ping(rng: random.Random) -> Record:
    vehicle = f"bus-{rng.randrange(120)}"
    properties = {
        "vehicle_id": vehicle,
        "trip_id": str(rng.randrange(1000, 2000)),
        "ts": f"2026-01-26T15:{rng.randrange(60):02}:{rng.randrange(60):02}Z",
        "bearing": rng.choice([None, float(rng.randrange(360))]),
        "route": str(rng.randrange(1, 99)),
    }
    return vehicle.encode(), _feature("Point", _position(rng), properties)


def _line(rng: random.Random) -> Record:
    road = f"line-{rng.randrange(100)}"
    x, y = _position(rng)
    line = []
    for _ in range(min(120, 2 + int(rng.expovariate(1 / 8)))):
        x, y = round(x + rng.gauss(0, 1e-4), 14), round(y + rng.gauss(0, 1e-4), 14)
        line.append((x, y))
    return road.encode(), _feature("LineString", line, {"id": road, "class": "minor"})


def _parcel(rng: random.Random) -> Record:
    lot = f"parcel-{rng.randrange(100)}"
    vertices = 5 + min(400, int(rng.expovariate(1 / 8)))
    ring = _ring(rng, _position(rng), 5e-4, vertices)
    return lot.encode(), _feature("Polygon", [ring], {"lot": lot, "use": "residential"})


def _heavy(rng: random.Random) -> Record:
    area = f"heavy-{rng.randrange(32)}"
    vertices = min(7000, 8 + int(rng.lognormvariate(5.0, 1.3)))
    ring = _ring(rng, _position(rng), 0.5, vertices)
    return area.encode(), _feature("Polygon", [ring], {"name": area})


def _generated_records(kind: str, rng: random.Random) -> list[Record]:
    makers: dict[str, list[tuple[Callable[[random.Random], Record], int]]] = {
        "pings": [(_ping, 4000)],
        "mixed": [(_ping, 1800), (_line, 600), (_parcel, 350), (_heavy, 40)],
        "heavy": [(_heavy, 200)],
    }
    records = [maker(rng) for maker, count in makers[kind] for _ in range(count)]
    rng.shuffle(records)
    return records


def _grid(rng: random.Random) -> list[dict[str, Any]]:
    columns, rows = 24, 22
    width, height = (EAST - WEST) / columns, (NORTH - SOUTH) / rows
    features = []
    for column in range(columns):
        for row in range(rows):
            centre = (WEST + (column + 0.5) * width, SOUTH + (row + 0.5) * height)
            geometry = {
                "type": "Polygon",
                "coordinates": [_ring(rng, centre, 0.55 * min(width, height), 65)],
            }
            properties = {"name": f"area-{column}-{row}"}
            features.append({"type": "Feature", "properties": properties, "geometry": geometry})
    return features
