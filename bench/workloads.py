"""The traffic that the benchmarks run on: pings, a mix, heavy records, and a polygon layer.

Real records where ``VERTEX_BUDGET_CORPUS`` names a corpus (``derived/pings.ndjson``,
``derived/mixed_stream.ndjson``, ``good/natural-earth``), generated ones of the same shape
otherwise. A kind of traffic is a list of a few thousand records that is repeated to any length.
Each repetition stands for other vehicles and areas, so its keys are those of the data with the
number of the copy behind them (up to ``COPIES``, then from the first again).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consumer.traffic import shapes
from consumer.traffic.shapes import Record

KINDS = ("pings", "mixed", "heavy")
#: The generated world: degrees of longitude and latitude.
WORLD = shapes.Box(-12.0, 40.0, 20.0, 60.0)

#: Countries and city districts, of very different size and detail: 536 features.
LAYER_FILES = (
    "natural-earth/ne_110m_admin_0_countries",
    "natural-earth/ne_10m_antarctic_ice_shelves_polys",
    "click_that_hood/milwaukee",
    "click_that_hood/kaiserslautern",
)

#: Copies with keys of their own. One key may hold nearly half of the work of a few records.
COPIES = 16


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
    return Traffic(kind, _generated_records(kind, seed), "generated")


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
        features = _grid(seed)
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


def _generated_records(kind: str, seed: int) -> list[Record]:
    rng = np.random.default_rng(seed)
    records = []
    if kind != "heavy":
        n = 4_000 if kind == "pings" else 1_800
        records += shapes.pings(rng, n, vehicles=120, within=WORLD)
    if kind == "mixed":
        records += shapes.lines(rng, 600, most=60, within=WORLD)
        records += shapes.parcels(rng, 350, within=WORLD)
    if kind != "pings":
        n = 200 if kind == "heavy" else 40
        records += shapes.coastlines(rng, n, least=20, most=7_000, within=WORLD)
    return [records[i] for i in rng.permutation(len(records)).tolist()]


def _grid(seed: int) -> list[dict[str, Any]]:
    """Return a polygon of 65 vertices for every cell of a grid; neighbours overlap a little."""
    columns, rows = 24, 22
    width, height = (WORLD.east - WORLD.west) / columns, (WORLD.north - WORLD.south) / rows
    centres = np.array(
        [
            (WORLD.west + (column + 0.5) * width, WORLD.south + (row + 0.5) * height)
            for column in range(columns)
            for row in range(rows)
        ]
    )
    rng = np.random.default_rng(seed)
    counts = np.full(len(centres), 65)
    rings = shapes.rings(rng, centres, counts, 0.55 * min(width, height), spread=0.1)
    return [
        {
            "type": "Feature",
            "properties": {"name": f"area-{i // rows}-{i % rows}"},
            "geometry": {"type": "Polygon", "coordinates": [ring.tolist()]},
        }
        for i, ring in enumerate(rings)
    ]
