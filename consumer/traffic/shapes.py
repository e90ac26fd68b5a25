"""What records look like: pings of moving vehicles, road lines, parcels, coastlines.

Owns the geometries and the properties beside them, as GeoJSON Features in bytes with their keys.
Every function draws from the generator that it is given and from nothing else, so a seed decides
every byte; coordinates are made for all records at once. Every geometry is valid.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

#: key and value
Record: TypeAlias = tuple[bytes, bytes]
Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]


class Box(NamedTuple):
    """Degrees of longitude and latitude that records are made in."""

    west: float
    south: float
    east: float
    north: float

    def points(self, rng: np.random.Generator, n: int) -> Floats:
        """Return ``n`` positions, spread evenly."""
        return rng.uniform((self.west, self.south), (self.east, self.north), (n, 2))


#: A town and the country round it.
TOWN = Box(-3.15, 53.25, -2.65, 53.55)
#: Vehicles on the road, unless told otherwise.
VEHICLES = 200
#: Largest coastline that a broker with its default settings takes (1 MB), with room.
LARGEST_BY_DEFAULT = 20_000
#: Largest coastline that is ever made: about 4.5 MB.
GIANT = 200_000

#: A ring has at least three corners and its first position again.
LEAST_RING = 4
#: A ping every so often: the whole fleet's pace.
_PING_MS = 20
_START_MS = np.datetime64("2026-01-26T00:00:00", "ms")
#: Radius of parcels and their courtyards, of the smallest coastline, in degrees.
_PARCEL_DEGREES = 4e-4
_COURTYARD_DEGREES = 1e-4
_COAST_DEGREES = 0.02


def pings(
    rng: np.random.Generator,
    n: int,
    *,
    first: int = 0,
    vehicles: int = VEHICLES,
    within: Box = TOWN,
) -> list[Record]:
    """Return positions of vehicles, each circling its own quarter; about 180 bytes, one vertex.

    Parameters
    ----------
    rng : numpy.random.Generator
        Decides everything that ``first`` does not.
    n : int
        Records.
    first : int, optional
        Number of the first one; vehicles move on, and clocks go on, with the numbers.
    vehicles : int, optional
        Keys are those of the vehicles.
    within : Box, optional
        Where.
    """
    numbers = first + np.arange(n)
    vehicle = rng.integers(vehicles, size=n)
    angle = numbers / 500.0 + vehicle
    size = np.array([within.east - within.west, within.north - within.south])
    # Spread by the golden ratio: neighbours in number are far apart on the map.
    home = np.column_stack([vehicle * 0.618 % 1.0, vehicle * 0.324 % 1.0]) * 0.6 + 0.2
    circle = np.column_stack([np.cos(angle), np.sin(angle)]) * 0.15
    noise = rng.normal(0.0, 2e-4, (n, 2))
    positions = np.array([within.west, within.south]) + (home + circle) * size + noise
    bearing = np.degrees(-angle + rng.normal(0.0, 0.1, n)) % 360.0
    times = np.datetime_as_string(_START_MS + (numbers * _PING_MS).astype("timedelta64[ms]"))
    rows = zip(
        (4000 + vehicle).tolist(),
        times.tolist(),
        bearing.round(1).tolist(),
        (vehicle % 40).tolist(),
        positions[:, 0].round(6).tolist(),
        positions[:, 1].round(6).tolist(),
        strict=True,
    )
    return [
        (
            b"%d" % number,
            (
                f'{{"type":"Feature","properties":{{"vehicle_id":"{number}","ts":"{at}Z",'
                f'"bearing":{heading},"route":"{route}"}},'
                f'"geometry":{{"type":"Point","coordinates":[{x},{y}]}}}}'
            ).encode(),
        )
        for number, at, heading, route, x, y in rows
    ]


def lines(
    rng: np.random.Generator, n: int, *, first: int = 0, most: int = 40, within: Box = TOWN
) -> list[Record]:
    """Return road segments of 2 to ``most`` vertices that bend as roads do."""
    counts = _mostly_few(rng, n, 2, most)
    total = int(counts.sum())
    stops = np.cumsum(counts)
    starts = stops - counts
    road = np.repeat(np.arange(n), counts)
    turn = np.cumsum(rng.normal(0.0, 0.25, total))
    heading = rng.uniform(0.0, 2.0 * np.pi, n)[road] + turn - turn[starts][road]
    length = rng.uniform(2e-4, 6e-4, total)
    way = np.cumsum(np.column_stack([np.cos(heading), np.sin(heading)]) * length[:, None], axis=0)
    positions = (within.points(rng, n)[road] + way - way[starts][road]).round(7)
    lanes = rng.integers(1, 5, n).tolist()
    keys = rng.integers(100, size=n).tolist()
    return [
        (
            b"line-%d" % keys[i],
            _feature("LineString", positions[start:stop], segment=first + i, lanes=lanes[i]),
        )
        for i, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True))
    ]


def parcels(
    rng: np.random.Generator, n: int, *, first: int = 0, most: int = 60, within: Box = TOWN
) -> list[Record]:
    """Return plots whose outline has 5 to ``most`` vertices; a third have a courtyard, a hole."""
    centres = within.points(rng, n)
    outlines = rings(rng, centres, _mostly_few(rng, n, 5, most), _PARCEL_DEGREES)
    with_hole = np.flatnonzero(rng.random(n) < 1 / 3)
    holes = rings(
        rng, centres[with_hole], _mostly_few(rng, len(with_hole), 5, 12), _COURTYARD_DEGREES
    )
    polygons = [[outline] for outline in outlines]
    for at, hole in zip(with_hole.tolist(), holes, strict=True):
        polygons[at].append(hole)
    keys = rng.integers(100, size=n).tolist()
    return [
        (b"parcel-%d" % keys[i], _feature("Polygon", polygons[i], parcel=first + i, zone="R-2"))
        for i in range(n)
    ]


def coastlines(
    rng: np.random.Generator,
    n: int,
    *,
    first: int = 0,
    least: int = 1_000,
    most: int = LARGEST_BY_DEFAULT,
    within: Box = TOWN,
) -> list[Record]:
    """Return coasts with bays within bays, of ``least`` to ``most`` vertices.

    Small ones are common and large ones rare: every doubling is as likely as the next.
    """
    sizes = np.exp(rng.uniform(np.log(least), np.log(most + 1), n)).astype(np.int64)
    return [
        coastline(rng, size, number=first + i, within=within)
        for i, size in enumerate(np.clip(sizes, least, most).tolist())
    ]


def coastline(
    rng: np.random.Generator, vertices: int, *, number: int = 0, within: Box = TOWN
) -> Record:
    """Return one coast of exactly so many vertices, the closing one included, at least 4."""
    ring = within.points(rng, 1) + _coast_ring(rng, vertices)
    key = b"coast-%d" % rng.integers(30)
    return key, _feature("Polygon", [ring.round(7)], coast=number)


def rings(
    rng: np.random.Generator,
    centres: Floats,
    counts: Counts,
    radius: float,
    *,
    spread: float = 0.3,
) -> list[Floats]:
    """Return closed rings round centres: star-shaped, so they are valid whatever the radii.

    Parameters
    ----------
    centres : ndarray, shape (n, 2)
        One ring round each.
    counts : ndarray, shape (n,)
        Vertices of each, the closing one included, >= 4.
    radius, spread : float
        Degrees, and by how much of it a corner may be nearer or further away.
    """
    if not len(counts):
        return []
    corners = counts - 1
    stops = np.cumsum(corners)
    starts = stops - corners
    ring = np.repeat(np.arange(len(counts)), corners)
    angle = 2.0 * np.pi * (np.arange(stops[-1]) - starts[ring]) / corners[ring]
    reach = radius * rng.uniform(1.0 - spread, 1.0 + spread, stops[-1])
    points = centres[ring] + np.column_stack([np.cos(angle), np.sin(angle)]) * reach[:, None]
    points = points.round(7)
    return [
        np.concatenate([points[start:stop], points[start : start + 1]])
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]


def _feature(kind: str, coordinates: Floats | list[Floats], **properties: Any) -> bytes:
    feature = {
        "type": "Feature",
        "properties": properties,
        "geometry": {"type": kind, "coordinates": coordinates},
    }
    return orjson.dumps(feature, option=orjson.OPT_SERIALIZE_NUMPY)


def _mostly_few(rng: np.random.Generator, n: int, least: int, most: int) -> Counts:
    """Return counts that are mostly small, with a long tail as real ones have."""
    tail = rng.exponential((most - least) / 6.0, n).astype(np.int64)
    return np.minimum(most, least + tail)


def _coast_ring(rng: np.random.Generator, vertices: int) -> Floats:
    """Return a closed ring round the origin whose radius is a fractal of its angle.

    Larger ones have a longer coast, so that positions stay further apart than what seven decimals
    of a degree can tell.
    """
    corners = max(LEAST_RING, vertices) - 1
    radius = _COAST_DEGREES * max(1.0, (corners / 2_000) ** 0.6)
    reach = radius * np.exp(_fractal(rng, corners))
    angle = np.linspace(0.0, 2.0 * np.pi, corners, endpoint=False)
    points = np.column_stack([np.cos(angle), np.sin(angle)]) * reach[:, None]
    return np.concatenate([points, points[:1]])


def _fractal(rng: np.random.Generator, n: int) -> Floats:
    """Return ``n`` heights of a closed fractal, by midpoint displacement."""
    roughness, spread = 0.85, 0.3
    heights = rng.normal(0.0, spread, 8)
    while len(heights) < n:
        spread *= 2.0**-roughness
        finer = np.empty(2 * len(heights))
        finer[0::2] = heights
        middle = (heights + np.roll(heights, -1)) / 2.0
        finer[1::2] = middle + rng.normal(0.0, spread, len(heights))
        heights = finer
    # Evenly spaced heights of the finest that there are: detail at every scale.
    return heights[np.linspace(0, len(heights), n, endpoint=False).astype(np.int64)]
