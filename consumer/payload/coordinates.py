"""GeoJSON coordinate arrays of many records to geometries, in a few calls for all of them.

Owns the six geometry types that have coordinates, and what is wrong with those that cannot be
built. Knows nothing of JSON documents or records.

Rules: a builder takes the ``coordinates`` of n geometries of one type and gives n geometries or
raises; it never repairs. Numbers as text and booleans are refused, although numpy would take
them. Whatever a builder refuses is halved until the odd ones are alone, so one bad geometry costs
the others a logarithm and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from consumer.core.reasons import Reason
from consumer.payload.faults import Fault

Geometries = NDArray[np.object_]

_NUMBERS = frozenset({int, float})
#: a ring is closed, and encloses something with three corners or more
_LEAST_RING_POSITIONS = 4


class IrregularCoordinatesError(ValueError):
    """These coordinates cannot be built together."""


def _positions(positions: Sequence[Any]) -> NDArray[np.float64]:
    """Return positions of one dimension as an array of shape (n, 2) or (n, 3)."""
    dimensions = set(map(len, positions))
    if dimensions not in ({2}, {3}):
        raise IrregularCoordinatesError
    # numpy would read "1" and True as 1.0 and None as NaN.
    if not set(map(type, chain.from_iterable(positions))) <= _NUMBERS:
        raise IrregularCoordinatesError
    dimension = dimensions.pop()
    ordinates = np.fromiter(chain.from_iterable(positions), np.float64, dimension * len(positions))
    if not np.isfinite(ordinates).all():
        raise IrregularCoordinatesError
    return ordinates.reshape(-1, dimension)


def _flatten(nested: Sequence[Any], least: int) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the members of all, and for each member the index of what it was in."""
    if set(map(type, nested)) != {list}:
        raise IrregularCoordinatesError
    counts = np.fromiter(map(len, nested), np.int64, len(nested))
    if counts.min() < least:
        raise IrregularCoordinatesError
    return list(chain.from_iterable(nested)), np.repeat(np.arange(len(nested)), counts)


def _points(coordinates: Sequence[Any]) -> Geometries:
    return np.asarray(shapely.points(_positions(coordinates)))


def _lines(coordinates: Sequence[Any]) -> Geometries:
    positions, line_of = _flatten(coordinates, least=2)
    return np.asarray(shapely.linestrings(_positions(positions), indices=line_of))


def _rings(coordinates: Sequence[Any]) -> Geometries:
    positions, ring_of = _flatten(coordinates, least=_LEAST_RING_POSITIONS)
    array = _positions(positions)
    last = np.flatnonzero(np.diff(ring_of, append=-1))
    first = np.concatenate(([0], last[:-1] + 1))
    # shapely would close an open ring without a word.
    if not (array[first] == array[last]).all():
        raise IrregularCoordinatesError
    return np.asarray(shapely.linearrings(array, indices=ring_of))


def _polygons(coordinates: Sequence[Any]) -> Geometries:
    rings, polygon_of = _flatten(coordinates, least=1)
    return np.asarray(shapely.polygons(_rings(rings), indices=polygon_of))


def _multi_points(coordinates: Sequence[Any]) -> Geometries:
    members, whole_of = _flatten(coordinates, least=1)
    return np.asarray(shapely.multipoints(_points(members), indices=whole_of))


def _multi_lines(coordinates: Sequence[Any]) -> Geometries:
    members, whole_of = _flatten(coordinates, least=1)
    return np.asarray(shapely.multilinestrings(_lines(members), indices=whole_of))


def _multi_polygons(coordinates: Sequence[Any]) -> Geometries:
    members, whole_of = _flatten(coordinates, least=1)
    return np.asarray(shapely.multipolygons(_polygons(members), indices=whole_of))


#: geometry type -> builder
BUILDERS: dict[str, Callable[[Sequence[Any]], Geometries]] = {
    "Point": _points,
    "LineString": _lines,
    "Polygon": _polygons,
    "MultiPoint": _multi_points,
    "MultiLineString": _multi_lines,
    "MultiPolygon": _multi_polygons,
}
#: geometry type -> arrays around its positions
_DEPTHS = {
    "Point": 0,
    "LineString": 1,
    "Polygon": 2,
    "MultiPoint": 1,
    "MultiLineString": 2,
    "MultiPolygon": 3,
}
#: What a builder raises on bad input. Anything else is memory running out, or our fault.
_REFUSALS = (ValueError, TypeError, OverflowError, shapely.errors.ShapelyError)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says, in one of its many ways, that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return "bad_alloc" in text or "not enough memory" in text


def build(kind: str, coordinates: Sequence[Any]) -> tuple[Geometries, dict[int, Fault]]:
    """Return the geometries of one type, and what is wrong with those that are none.

    Parameters
    ----------
    kind : str
        One of ``BUILDERS``.
    coordinates : sequence
        The ``coordinates`` members as parsed from JSON, at least one.

    Returns
    -------
    geometries : ndarray of object, shape (n,)
        None where a fault is.
    faults : dict
        Index -> fault.

    Raises
    ------
    MemoryError
        When memory ran out.
    """
    try:
        return BUILDERS[kind](coordinates), {}
    except _REFUSALS as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from None
    geometries = np.full(len(coordinates), None, dtype=np.object_)
    faults: dict[int, Fault] = {}
    # Geometries with and without height are each regular, only not together.
    of_dimension: dict[int, list[int]] = {}
    for index, item in enumerate(coordinates):
        of_dimension.setdefault(_first_dimension(item), []).append(index)
    for indices in of_dimension.values():
        _build_halves(kind, coordinates, indices, geometries, faults)
    return geometries, faults


def _build_halves(
    kind: str,
    coordinates: Sequence[Any],
    indices: list[int],
    geometries: Geometries,
    faults: dict[int, Fault],
) -> None:
    try:
        geometries[indices] = BUILDERS[kind]([coordinates[index] for index in indices])
    except _REFUSALS as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from None
        if len(indices) == 1:
            _build_odd(kind, coordinates[indices[0]], indices[0], geometries, faults)
            return
        half = len(indices) // 2
        _build_halves(kind, coordinates, indices[:half], geometries, faults)
        _build_halves(kind, coordinates, indices[half:], geometries, faults)


def _build_odd(
    kind: str, item: Any, index: int, geometries: Geometries, faults: dict[int, Fault]
) -> None:
    """Build one geometry that has empty parts, or say what is wrong with it."""
    fault = _fault(kind, item)
    if fault is None:
        try:
            geometries[index] = shapely.from_geojson(
                orjson.dumps({"type": kind, "coordinates": item})
            )
        except (ValueError, TypeError, shapely.errors.ShapelyError) as error:
            if is_out_of_memory(error):
                raise MemoryError(str(error)) from None
            fault = Fault(Reason.BAD_COORDINATES, f"{kind}: {_first_line(error)}")
    if fault is not None:
        faults[index] = fault


def _first_dimension(item: Any) -> int:
    """Return the number of ordinates of the first position; 0 where there is none."""
    while type(item) is list and item:
        if type(item[0]) is not list:
            return len(item)
        item = item[0]
    return 0


def _fault(kind: str, item: Any) -> Fault | None:
    """Return what is wrong with the coordinates of one geometry; None if only parts are empty."""
    if type(item) is not list:
        return _bad(kind, f"coordinates are {json_name(item)}, not an array")
    if not item:
        return None
    #: arrays of positions, once the loop has ended
    parts: list[Any] = []
    level: list[Any] = [item]
    for _ in range(_DEPTHS[kind]):
        for member in level:
            if type(member) is not list:
                return _bad(kind, f"{json_name(member)} where an array belongs")
        parts = level
        level = list(chain.from_iterable(level))
    fault = _position_fault(kind, level)
    if fault is None and kind.endswith("LineString"):
        fault = _line_fault(kind, parts)
    if fault is None and kind.endswith("Polygon"):
        fault = _ring_fault(kind, parts)
    return fault


def _position_fault(kind: str, positions: list[Any]) -> Fault | None:
    dimensions = set()
    for position in positions:
        if type(position) is not list:
            return _bad(kind, f"{json_name(position)} where a position belongs")
        if len(position) not in (2, 3):
            return _bad(kind, f"a position of {len(position)} ordinates")
        dimensions.add(len(position))
        for ordinate in position:
            if type(ordinate) not in _NUMBERS:
                return _bad(kind, f"an ordinate is {json_name(ordinate)}")
            if not math.isfinite(ordinate):
                return _bad(kind, "an ordinate is not finite")
    return _bad(kind, "positions of 2 and of 3 ordinates") if len(dimensions) > 1 else None


def _line_fault(kind: str, lines: list[Any]) -> Fault | None:
    if any(len(line) == 1 for line in lines):
        return _bad(kind, "a line of one position")
    return None


def _ring_fault(kind: str, rings: list[Any]) -> Fault | None:
    for ring in rings:
        if ring and ring[0] != ring[-1]:
            return Fault(Reason.OPEN_RING, f"{kind}: a ring's last position is not its first")
        if 0 < len(ring) < _LEAST_RING_POSITIONS:
            return _bad(kind, f"a ring of {len(ring)} positions")
    return None


def _bad(kind: str, text: str) -> Fault:
    return Fault(Reason.BAD_COORDINATES, f"{kind}: {text}")


def json_name(item: Any) -> str:
    """Return what JSON calls the type of a parsed value, with its article."""
    return {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }[type(item)]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]
