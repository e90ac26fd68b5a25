"""Hypothesis strategies for GeoJSON: valid documents, written in every way that JSON allows."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

ordinates = st.one_of(
    st.integers(-180, 180),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.floats(allow_nan=False, allow_infinity=False),
)


def positions(dimension: int) -> st.SearchStrategy[list[Any]]:
    """Positions of 2 or 3 ordinates."""
    return st.lists(ordinates, min_size=dimension, max_size=dimension)


@st.composite
def rings(draw: st.DrawFn, dimension: int) -> list[Any]:
    """Closed rings, not always simple."""
    corners = draw(st.lists(positions(dimension), min_size=3, max_size=8))
    return [*corners, corners[0]]


@st.composite
def simple_geometries(draw: st.DrawFn) -> dict[str, Any]:
    """Geometries of the six types with coordinates."""
    dimension = draw(st.sampled_from([2, 3]))
    position = positions(dimension)
    line = st.lists(position, min_size=2, max_size=8)
    polygon = st.lists(rings(dimension), min_size=1, max_size=3)
    kind, coordinates = draw(
        st.one_of(
            st.tuples(st.just("Point"), position),
            st.tuples(st.just("LineString"), line),
            st.tuples(st.just("Polygon"), polygon),
            st.tuples(st.just("MultiPoint"), st.lists(position, max_size=5)),
            st.tuples(st.just("MultiLineString"), st.lists(line, max_size=3)),
            st.tuples(st.just("MultiPolygon"), st.lists(polygon, max_size=3)),
        )
    )
    return {"type": kind, "coordinates": coordinates}


geometries = st.recursive(
    simple_geometries(),
    lambda members: st.builds(
        lambda items: {"type": "GeometryCollection", "geometries": items},
        st.lists(members, max_size=4),
    ),
    max_leaves=8,
)

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["[[[", '"[', "\\[", "]"]
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
features = st.builds(
    lambda geometry, properties, extra: {
        **extra,
        "type": "Feature",
        "geometry": geometry,
        "properties": properties,
    },
    geometries | st.none(),
    st.none() | st.dictionaries(texts, json_values, max_size=4),
    st.fixed_dictionaries({}, optional={"id": texts | st.integers(0, 9), "bbox": json_values}),
)


@st.composite
def written(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> tuple[Any, bytes]:
    """A document and one way to write it."""
    document = draw(documents)
    text = json.dumps(
        document,
        indent=draw(st.sampled_from([None, 0, 3, "\t"])),
        separators=draw(st.sampled_from([(",", ":"), (" , ", " : "), (",\r\n", ":\t")])),
        ensure_ascii=draw(st.booleans()),
    )
    around = st.text(" \t\r\n", max_size=80)
    return document, (draw(around) + text + draw(around)).encode()
