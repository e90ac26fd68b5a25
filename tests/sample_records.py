"""Generated records for tests: the same seed, the same bytes. ``consumer.traffic`` makes it.

Every function returns a list of ``(key, value)``; each value is a GeoJSON Feature as text.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson

from consumer.traffic import shapes
from consumer.traffic.mix import mix_of
from consumer.traffic.shapes import VEHICLES, Record
from consumer.traffic.stream import Traffic

__all__ = ["VEHICLES", "Record"]

#: Shares of the mixed stream, in records.
MIX = {"pings": 0.645, "lines": 0.215, "polygons": 0.125, "coastlines": 0.015}


def pings(n: int, seed: int = 1, *, vehicles: int = VEHICLES) -> list[Record]:
    """Return positions of about 180 bytes, keyed by vehicle; consecutive ones of a key move on."""
    return shapes.pings(np.random.default_rng(seed), n, vehicles=vehicles)


def lines(n: int, seed: int = 1) -> list[Record]:
    """Return road segments of 2 to 40 vertices."""
    return shapes.lines(np.random.default_rng(seed), n)


def parcels(n: int, seed: int = 1) -> list[Record]:
    """Return plots of 5 to 60 vertices, a third of them with holes."""
    return shapes.parcels(np.random.default_rng(seed), n)


def heavy(n: int, seed: int = 1, *, max_vertices: int = 20_000) -> list[Record]:
    """Return coastlines of a quarter of ``max_vertices`` up to ``max_vertices``."""
    rng = np.random.default_rng(seed)
    return shapes.coastlines(rng, n, least=max_vertices // 4, most=max_vertices)


def coastline(vertices: int, seed: int = 1) -> Record:
    """Return one coastline of exactly so many vertices (the closing one included), at least 4."""
    return shapes.coastline(np.random.default_rng(seed), vertices)


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
    return Traffic(seed, coast_vertices=(1_000, 8_000)).take(n, mix_of(MIX))


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
