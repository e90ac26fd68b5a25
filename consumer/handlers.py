"""Two handlers that come with the worker: ``join`` and ``validate``.

Owns what they compute and what they return. They are examples as well: every step is one call for
the whole batch, and records become objects only where an output is wanted.

Both return one compact JSON object for each record when ``VERTEX_BUDGET_OUTPUT_TOPIC`` is set, and
nothing otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import shapely
from numpy.typing import NDArray

from consumer.batch import Batch
from consumer.errors import ConfigError

LAYER_SETTING = "VERTEX_BUDGET_JOIN_LAYER"
PROPERTY_SETTING = "VERTEX_BUDGET_JOIN_PROPERTY"
OUTPUT_SETTING = "VERTEX_BUDGET_OUTPUT_TOPIC"

#: A prepared polygon answers fast, and keeps room for the largest geometry that it has met: after
#: one ocean of 60,000 vertices, a megabyte in each of 177 countries. Heavier geometries are
#: therefore prepared themselves, for the one query.
LIGHT_VERTICES = 64

_AREAL = frozenset({"Polygon", "MultiPolygon"})


def _outputs_wanted() -> bool:
    return bool(os.environ.get(OUTPUT_SETTING))


class join:  # noqa: N801 - named as in the setting, consumer.handlers:join
    """Find the polygons of a layer that each geometry intersects.

    ``VERTEX_BUDGET_JOIN_LAYER`` is the path of a GeoJSON file of polygons. An output is
    ``{"matches": [...]}``: for each polygon its property ``VERTEX_BUDGET_JOIN_PROPERTY``, or its
    position in the file.
    """

    def open(self) -> None:
        """Read the layer, index it, and prepare its polygons (each process has its own)."""
        self._outputs = _outputs_wanted()
        polygons, self._names = read_layer(
            os.environ.get(LAYER_SETTING, ""), os.environ.get(PROPERTY_SETTING, "")
        )
        # Preparing pays because each polygon is tested against many geometries.
        shapely.prepare(polygons)
        self._polygons = polygons
        self._tree = shapely.STRtree(polygons)

    def matches(self, geometries: NDArray[np.object_]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return pairs of indices (geometry, polygon) that intersect, ordered by geometry."""
        # Absurd coordinates overflow inside GEOS; the answer stands.
        with np.errstate(all="ignore"):
            light = shapely.get_num_coordinates(geometries) <= LIGHT_VERTICES
            if light.all():
                return self._matches_light(geometries)
            lights, heavies = geometries.copy(), geometries.copy()
            lights[~light] = heavies[light] = None
            geometry, polygon = self._matches_light(lights)
            more, more_polygon = self._tree.query(heavies, predicate="intersects")
        geometry = np.concatenate([geometry, more])
        order = np.argsort(geometry, kind="stable")
        return geometry[order], np.concatenate([polygon, more_polygon])[order]

    def _matches_light(self, geometries: NDArray[np.object_]) -> tuple[NDArray[Any], NDArray[Any]]:
        geometry, polygon = self._tree.query(geometries)
        hits = shapely.intersects(self._polygons[polygon], geometries[geometry])
        return geometry[hits], polygon[hits]

    def handle(self, batch: Batch) -> Iterable[tuple[int, bytes]] | None:
        """Join one batch."""
        geometry, polygon = self.matches(batch.geometries)
        if not self._outputs:
            return None
        return self._lines(len(batch), geometry, polygon)

    def _lines(
        self, records: int, geometry: NDArray[Any], polygon: NDArray[Any]
    ) -> Iterator[tuple[int, bytes]]:
        ends = np.cumsum(np.bincount(geometry, minlength=records)).tolist()
        names = [self._names[index] for index in polygon.tolist()]
        start = 0
        for index, end in enumerate(ends):
            yield index, orjson.dumps({"matches": names[start:end]})
            start = end


def validate(batch: Batch) -> Iterable[tuple[int, bytes]] | None:
    """Tell validity, area and bounds of each geometry.

    An output is ``{"valid": ..., "reason": ..., "area": ..., "bounds": [...]}``; the reason is
    there for invalid geometries only, and a record without a geometry has nulls. Area is planar,
    in square units of the coordinates.
    """
    geometries = batch.geometries
    missing = shapely.is_missing(geometries)
    with np.errstate(all="ignore"):
        valid = shapely.is_valid(geometries)
        area = shapely.area(geometries)
        bounds = shapely.bounds(geometries)
    if not _outputs_wanted():
        return None
    reasons = {
        index: shapely.is_valid_reason(geometries[index])
        for index in np.flatnonzero(~valid & ~missing).tolist()
    }
    verdicts = [None if gone else bool(ok) for ok, gone in zip(valid, missing, strict=True)]
    return _validity_lines(verdicts, reasons, area.tolist(), bounds.tolist())


def _validity_lines(
    valid: list[bool | None],
    reasons: dict[int, str],
    area: list[float],
    bounds: list[list[float]],
) -> Iterator[tuple[int, bytes]]:
    for index, (is_valid, size, box) in enumerate(zip(valid, area, bounds, strict=True)):
        line: dict[str, Any] = {"valid": is_valid}
        if index in reasons:
            line["reason"] = reasons[index]
        line["area"] = size
        # orjson writes NaN, which an empty or missing geometry has, as null.
        line["bounds"] = None if box[0] != box[0] else box
        yield index, orjson.dumps(line)


def read_layer(path: str, name_property: str = "") -> tuple[NDArray[np.object_], list[Any]]:
    """Read the polygons of a GeoJSON file.

    Parameters
    ----------
    path : str
        A FeatureCollection. Features without a geometry are passed over.
    name_property : str, optional
        The property that names a polygon in an output; its position in the file otherwise.

    Returns
    -------
    polygons : ndarray of object, shape (n,)
    names : list
        One for each polygon.

    Raises
    ------
    ConfigError
        With what is wrong with the file.
    """
    if not path:
        raise ConfigError(LAYER_SETTING, path, "must be the path of a GeoJSON file of polygons")
    try:
        document = orjson.loads(Path(path).read_bytes())
    except OSError as error:
        text = f"cannot be read: {error.strerror}; is it mounted where the worker runs?"
        raise ConfigError(LAYER_SETTING, path, text) from None
    except ValueError as error:
        raise ConfigError(LAYER_SETTING, path, f"is not JSON: {error}") from None
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or not features:
        raise ConfigError(LAYER_SETTING, path, "is not a GeoJSON FeatureCollection with features")
    polygons, names = [], []
    for position, feature in enumerate(features):
        geometry = feature.get("geometry")
        if geometry is None:
            continue
        if geometry.get("type") not in _AREAL:
            text = f"feature {position} is a {geometry.get('type')}, not a polygon"
            raise ConfigError(LAYER_SETTING, path, text)
        properties = feature.get("properties") or {}
        if name_property and name_property not in properties:
            text = f"feature {position} of {path} has no such property; has {sorted(properties)}"
            raise ConfigError(PROPERTY_SETTING, name_property, text)
        try:
            polygons.append(shapely.from_geojson(orjson.dumps(geometry)))
        except shapely.errors.ShapelyError as error:
            text = f"feature {position}: {str(error).strip()}"
            raise ConfigError(LAYER_SETTING, path, text) from None
        names.append(properties[name_property] if name_property else position)
    if not polygons:
        raise ConfigError(LAYER_SETTING, path, "has no polygons")
    return np.array(polygons, dtype=np.object_), names
