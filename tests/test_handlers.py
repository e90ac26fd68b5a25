"""The handlers that come with the worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from consumer import handlers
from consumer.errors import ConfigError
from consumer.testing import batch_of

SQUARES: dict[str, Any] = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "geometry": shapely.geometry.mapping(box), "properties": {"name": name}}
        for name, box in {
            "west": shapely.box(0, 0, 10, 10),
            "east": shapely.box(10, 0, 20, 10),
            "far": shapely.box(50, 50, 60, 60),
        }.items()
    ],
}


@pytest.fixture
def layer(tmp_path, monkeypatch):
    """Write a layer of three squares and set it; return its path."""
    path = tmp_path / "layer.geojson"
    path.write_bytes(orjson.dumps(SQUARES))
    monkeypatch.setenv(handlers.LAYER_SETTING, str(path))
    return path


SHAPES = [
    shapely.Point(5, 5),
    None,
    shapely.Point(10, 5),
    shapely.Point(),
    shapely.box(8, 8, 55, 55),
    shapely.Point(-1, 0),
]
MATCHES = [["west"], [], ["west", "east"], [], ["west", "east", "far"], []]


def test_join_names_the_polygons(layer, monkeypatch):
    """Each record gets the polygons that it touches, by the property that was asked for."""
    monkeypatch.setenv(handlers.PROPERTY_SETTING, "name")
    monkeypatch.setenv(handlers.OUTPUT_SETTING, "out")
    join = handlers.join()
    join.open()
    lines = list(join.handle(batch_of(*SHAPES)) or ())

    assert [index for index, _ in lines] == list(range(len(SHAPES)))
    found = [orjson.loads(line)["matches"] for _, line in lines]
    assert [sorted(names) for names in found] == [sorted(names) for names in MATCHES]


def test_join_numbers_the_polygons_without_a_property(layer, monkeypatch):
    """Without a property a polygon is named by its position in the file."""
    monkeypatch.setenv(handlers.OUTPUT_SETTING, "out")
    join = handlers.join()
    join.open()

    assert list(join.handle(batch_of(shapely.Point(15, 5))) or ()) == [(0, b'{"matches":[1]}')]


def test_join_returns_nothing_that_nobody_wants(layer):
    """Without an output topic the join is computed and nothing is returned."""
    join = handlers.join()
    join.open()

    assert join.handle(batch_of(*SHAPES)) is None
    assert [pair.tolist() for pair in join.matches(batch_of(*SHAPES).geometries)] == [
        [0, 2, 2, 4, 4, 4],
        [0, 0, 1, 0, 1, 2],
    ]


near = st.integers(-30, 90)
shapes_near_the_squares = st.one_of(
    st.none(),
    st.builds(shapely.Point, near, near),
    st.builds(shapely.LineString, st.lists(st.tuples(near, near), min_size=2, max_size=5)),
    # 129 vertices: no longer light.
    st.builds(lambda x, y, r: shapely.Point(x, y).buffer(r, 32), near, near, st.integers(1, 40)),
)


@given(st.lists(shapes_near_the_squares, min_size=1, max_size=8))
def test_join_finds_what_a_plain_loop_finds(shapes):
    """The tree, the prepared polygons and the two ways to test change nothing in the answer."""
    polygons = np.array(
        [shapely.from_geojson(orjson.dumps(f["geometry"])) for f in SQUARES["features"]]
    )
    join = handlers.join()
    join._polygons, join._tree = polygons.copy(), shapely.STRtree(polygons)
    array = batch_of(*shapes).geometries
    pairs = set(zip(*(pair.tolist() for pair in join.matches(array)), strict=True))

    assert pairs == {
        (i, j)
        for i, shape in enumerate(shapes)
        for j, polygon in enumerate(polygons)
        if shapely.intersects(polygon, shape)
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "is not JSON"),
        (b"[]", "not a GeoJSON FeatureCollection"),
        (b'{"features":[{"geometry":{"type":"Point","coordinates":[0,0]}}]}', "is a Point"),
        (b'{"features":[{"geometry":null}]}', "has no polygons"),
        (b'{"features":[{"geometry":{"type":"Polygon","coordinates":[[[0,0]]]}}]}', "feature 0"),
    ],
)
def test_a_layer_that_cannot_be_used(tmp_path, text, words):
    """What is wrong with the file is said when the handler opens."""
    path = tmp_path / "layer.geojson"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ConfigError, match=words) as caught:
        handlers.read_layer(str(path))

    assert caught.value.name == handlers.LAYER_SETTING


def test_a_layer_must_be_named(monkeypatch):
    """Without a layer the join does not guess one."""
    monkeypatch.delenv(handlers.LAYER_SETTING, raising=False)
    with pytest.raises(ConfigError, match=handlers.LAYER_SETTING):
        handlers.join().open()


def test_a_property_that_the_layer_does_not_have(layer):
    """A wrong property is told with those that exist."""
    with pytest.raises(ConfigError, match="has \\['name'\\]"):
        handlers.read_layer(str(layer), "nmae")


def test_validate_tells_validity_area_and_bounds(monkeypatch):
    """Invalid geometries have a reason; empty and missing ones have no bounds."""
    bowtie = shapely.Polygon([(0, 0), (4, 4), (4, 0), (0, 4)])
    shapes = [shapely.box(0, 0, 2, 3), bowtie, None, shapely.Polygon()]
    assert handlers.validate(batch_of(*shapes)) is None

    monkeypatch.setenv(handlers.OUTPUT_SETTING, "out")
    lines = [orjson.loads(line) for _, line in handlers.validate(batch_of(*shapes)) or ()]

    assert lines[0] == {"valid": True, "area": 6.0, "bounds": [0.0, 0.0, 2.0, 3.0]}
    assert lines[1]["valid"] is False
    assert lines[1]["reason"].startswith("Self-intersection")
    assert lines[2] == {"valid": None, "area": None, "bounds": None}
    assert lines[3] == {"valid": True, "area": 0.0, "bounds": None}


def test_join_of_light_and_heavy_together(layer):
    """Geometries with many vertices are tested another way, and give the same pairs in order."""
    join = handlers.join()
    join.open()
    angles = np.linspace(0, 2 * np.pi, 500)
    circle = shapely.Polygon(np.column_stack([10 + 3 * np.cos(angles), 5 + 3 * np.sin(angles)]))
    geometry, polygon = join.matches(batch_of(circle, shapely.Point(1, 1), None, circle).geometries)

    assert geometry.tolist() == [0, 0, 1, 3, 3]
    assert [sorted(polygon[:2].tolist()), polygon[2], sorted(polygon[3:].tolist())] == [
        [0, 1],
        0,
        [0, 1],
    ]
