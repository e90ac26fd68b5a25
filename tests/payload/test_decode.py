"""What the decoder makes of good and bad values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import orjson
import pytest
import shapely
from hypothesis import given

from consumer.core.reasons import Reason
from consumer.payload.counting import counted_vertices
from consumer.payload.decode import decode
from consumer.payload.geojson_scan import COLLECTION_DEPTH_LIMIT
from tests.payloads import features, geometries, json_values, simple_geometries, written

PING = b'{"type":"Feature","id":"a","properties":{"v":7},"geometry":{"type":"Point","coordinates":[1,2]}}'

needs_corpus = pytest.mark.skipif(
    "VERTEX_BUDGET_CORPUS" not in os.environ, reason="VERTEX_BUDGET_CORPUS is not set"
)


def corpus() -> Path:
    """Return the folder of real inputs."""
    return Path(os.environ["VERTEX_BUDGET_CORPUS"])


def same(decoded, expected) -> bool:
    """Whether two geometries are the same to the last bit and dimension."""
    return shapely.to_wkb(decoded, output_dimension=4) == shapely.to_wkb(
        expected, output_dimension=4
    )


def reason_of(document: object) -> str:
    """Return the reason for which one document is refused, "" when it is not."""
    value = document if isinstance(document, bytes) else json.dumps(document).encode()
    fault = decode([value]).faults.get(0)
    return fault.reason if fault else ""


def geometry(kind: str, coordinates: object) -> dict[str, object]:
    return {"type": kind, "coordinates": coordinates}


@given(st.lists(written(geometries), max_size=6))
def test_geometries_are_what_shapely_reads(cases):
    """Decoded together, each geometry equals what GEOS reads from its text alone."""
    values = [text for _, text in cases]
    decoded = decode(values)

    assert not decoded.faults
    for value, built in zip(values, decoded.geometries, strict=True):
        assert same(built, shapely.from_geojson(value.decode()))
    assert decoded.exact_vertices == sum(map(shapely.get_num_coordinates, decoded.geometries))


@given(st.lists(written(features), max_size=4))
def test_features_keep_all_but_their_geometry(cases):
    """Properties, id and foreign members are there as parsed; a null geometry is None."""
    decoded = decode([text for _, text in cases])

    assert not decoded.faults
    for (document, text), built, kept in zip(
        cases, decoded.geometries, decoded.documents, strict=True
    ):
        whole = orjson.loads(text)
        assert kept == {name: item for name, item in whole.items() if name != "geometry"}
        assert (built is None) == (document["geometry"] is None)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=40),
            st.builds(orjson.dumps, json_values),
            st.builds(
                lambda kind, item: json.dumps({"type": kind, "coordinates": item}).encode(),
                st.sampled_from(["Point", "LineString", "Polygon", "MultiPoint", "MultiPolygon"]),
                json_values,
            ),
            st.builds(
                lambda item, inner: json.dumps({**item, "geometries": inner}).encode(),
                st.just({"type": "GeometryCollection"}),
                json_values | st.lists(json_values | simple_geometries(), max_size=3),
            ),
            written(features).map(lambda case: case[1]),
        ),
        max_size=10,
    )
)
def test_bad_values_never_raise_and_never_touch_the_others(values):
    """Each record of a mixture comes out as it does alone."""
    together = decode(values)

    for index, value in enumerate(values):
        alone = decode([value])
        assert together.faults.get(index) == alone.faults.get(0)
        assert (index in together.skipped) == bool(alone.skipped)
        assert same(together.geometries[index], alone.geometries[0])
        if index in together.faults:
            assert together.geometries[index] is None


CLOSED = [[0, 0], [1, 0], [1, 1], [0, 0]]
SPIRAL: dict[str, Any] = geometry("Point", [0, 0])
for _ in range(COLLECTION_DEPTH_LIMIT + 1):
    SPIRAL = {"type": "GeometryCollection", "geometries": [SPIRAL]}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", Reason.MALFORMED_JSON),
        (b'{"type":"Point","coordinates":[1,2', Reason.MALFORMED_JSON),
        (b'{"type":"Point","coordinates":[NaN,2]}', Reason.MALFORMED_JSON),
        (b'{"type":"Point","coordinates":[1e999,2]}', Reason.MALFORMED_JSON),
        (PING + b"\n" + PING, Reason.MALFORMED_JSON),
        (PING.decode().encode("utf-16"), Reason.MALFORMED_JSON),
        (b"[" * 2000 + b"]" * 2000, Reason.TOO_DEEP),
        ([], Reason.NOT_GEOJSON),
        (7, Reason.NOT_GEOJSON),
        ({"lat": 1, "lon": 2}, Reason.NOT_GEOJSON),
        ({"type": ["Point"], "coordinates": [1, 2]}, Reason.NOT_GEOJSON),
        ({"type": "Feature", "properties": {}}, Reason.NOT_GEOJSON),
        ({"type": "Feature", "geometry": [], "properties": {}}, Reason.NOT_GEOJSON),
        ({"type": "Feature", "geometry": "Point", "properties": {}}, Reason.NOT_GEOJSON),
        ({"type": "Feature", "geometry": SPIRAL, "properties": []}, Reason.NOT_GEOJSON),
        ({"type": "Feature", "geometry": None, "id": {}}, Reason.NOT_GEOJSON),
        ({"type": "Feature", "geometry": orjson.loads(PING)}, Reason.UNSUPPORTED_TYPE),
        ({"type": "Circle", "coordinates": [0, 0]}, Reason.UNSUPPORTED_TYPE),
        ({"type": "GeometryCollection"}, Reason.NOT_GEOJSON),
        ({"type": "GeometryCollection", "geometries": [None]}, Reason.NOT_GEOJSON),
        (SPIRAL, Reason.TOO_DEEP),
        ({"type": "FeatureCollection", "features": []}, Reason.UNSUPPORTED_FORMAT),
        ({"op": "c", "before": None, "after": {}}, Reason.UNSUPPORTED_FORMAT),
        (b"POINT (1 2)", Reason.UNSUPPORTED_FORMAT),
        (b"\x1f\x8b\x08\x00", Reason.UNSUPPORTED_FORMAT),
        (geometry("Point", None), Reason.BAD_COORDINATES),
        ({"type": "Point"}, Reason.BAD_COORDINATES),
        (geometry("Point", [1]), Reason.BAD_COORDINATES),
        (geometry("Point", [1, 2, 3, 4]), Reason.BAD_COORDINATES),
        (geometry("Point", ["1", "2"]), Reason.BAD_COORDINATES),
        (geometry("Point", "12"), Reason.BAD_COORDINATES),
        (geometry("Point", [True, False]), Reason.BAD_COORDINATES),
        (geometry("Point", [1, None]), Reason.BAD_COORDINATES),
        (geometry("Point", {"x": 1, "y": 2}), Reason.BAD_COORDINATES),
        (geometry("Point", [[1, 2]]), Reason.BAD_COORDINATES),
        (geometry("MultiPoint", [1, 2]), Reason.BAD_COORDINATES),
        (geometry("MultiPoint", [[]]), Reason.BAD_COORDINATES),
        (geometry("LineString", [[0, 0]]), Reason.BAD_COORDINATES),
        (geometry("LineString", [[0, 0], [1, 1, 1]]), Reason.BAD_COORDINATES),
        (geometry("LineString", {"ab": 1, "cd": 2}), Reason.BAD_COORDINATES),
        (geometry("Polygon", CLOSED), Reason.BAD_COORDINATES),
        (geometry("Polygon", [[[0, 0], [1, 0], [0, 0]]]), Reason.BAD_COORDINATES),
        (geometry("Polygon", [[], CLOSED]), Reason.BAD_COORDINATES),
        (geometry("Polygon", [CLOSED, [[0, 0], [1, 0], [1, 1], [0, 1]]]), Reason.OPEN_RING),
        (geometry("Polygon", [[[0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 0, 2]]]), Reason.OPEN_RING),
        (geometry("MultiPolygon", [None]), Reason.BAD_COORDINATES),
    ],
)
def test_reason_codes(document, reason):
    """Each kind of bad input has its reason."""
    assert reason_of(document) == reason


@pytest.mark.parametrize(
    ("kind", "coordinates", "expected"),
    [
        ("Point", [], "POINT EMPTY"),
        ("LineString", [], "LINESTRING EMPTY"),
        ("Polygon", [], "POLYGON EMPTY"),
        ("Polygon", [[]], "POLYGON EMPTY"),
        ("Polygon", [CLOSED, []], "POLYGON ((0 0, 1 0, 1 1, 0 0), EMPTY)"),
        ("MultiPoint", [], "MULTIPOINT EMPTY"),
        ("MultiLineString", [[]], "MULTILINESTRING (EMPTY)"),
        ("MultiPolygon", [[]], "MULTIPOLYGON (EMPTY)"),
    ],
)
def test_empty_geometries_are_geometries(kind, coordinates, expected):
    """Empty arrays are read as GEOS reads them, beside full ones of the same type."""
    full = {"Point": [1, 2], "Polygon": [CLOSED]}.get(kind, coordinates)
    values = [orjson.dumps(geometry(kind, item)) for item in (full, coordinates, full)]
    decoded = decode(values)

    assert not decoded.faults
    assert shapely.to_wkt(decoded.geometries[1]) == expected


def test_deepest_collection_that_is_read():
    """The limit itself is allowed."""
    assert reason_of(SPIRAL["geometries"][0]) == ""


def test_a_bad_member_spoils_its_record_only():
    """A collection with one bad member is refused whole; its neighbours are not."""
    good = {"type": "GeometryCollection", "geometries": [geometry("Point", [0, 0])]}
    bad = {
        "type": "GeometryCollection",
        "geometries": [good, geometry("Point", [0, "x"]), geometry("LineString", [[0, 0], [1, 1]])],
    }
    decoded = decode([orjson.dumps(item) for item in (good, bad, good)])

    assert list(decoded.faults) == [1]
    assert decoded.exact_vertices == 2


def test_tombstones_are_skipped():
    """A null value is no fault; an empty one is."""
    decoded = decode([None, PING, b"", None])

    assert decoded.skipped == [0, 3]
    assert list(decoded.faults) == [2]


def test_faults_hold_no_data_of_the_payload():
    """A fault's text goes to logs and headers: it says what is wrong and quotes no value."""
    secret = json.dumps(geometry("Point", ["secret-1", 2])).encode()

    assert "secret" not in decode([secret]).faults[0].text


def test_one_bad_record_leaves_the_batch_vectorised(monkeypatch):
    """Among 1,000 points, finding the bad one takes calls in its logarithm."""
    calls = []
    points = shapely.points

    def counting_points(array):
        calls.append(len(array))
        return points(array)

    monkeypatch.setattr(shapely, "points", counting_points)
    values = [orjson.dumps(geometry("Point", [i, 0])) for i in range(1000)]
    values[500] = b'{"type":"Point","coordinates":["x",0]}'
    decoded = decode(values)

    assert list(decoded.faults) == [500]
    assert len(calls) <= 2 * 10


@needs_corpus
@pytest.mark.parametrize("name", ["pings.ndjson", "mixed_stream.ndjson", "earcut_polygons.ndjson"])
def test_derived_corpus_equals_shapely(name):
    """Real traffic is decoded to what GEOS reads, and is never undercounted."""
    values = []
    for line in (corpus() / "derived" / name).read_bytes().splitlines():
        document = orjson.loads(line)
        values.append(orjson.dumps(document.get("value", document)))
    decoded = decode(values)

    compare_with_shapely(values, decoded)


def compare_with_shapely(values, decoded):
    counted = counted_vertices(values)
    for index, value in enumerate(values):
        document = orjson.loads(value)
        shape = document["geometry"] if document["type"] == "Feature" else document
        if index in decoded.faults or shape is None:
            assert decoded.geometries[index] is None
            continue
        assert same(decoded.geometries[index], shapely.from_geojson(orjson.dumps(shape).decode()))
        assert counted[index] >= shapely.get_num_coordinates(decoded.geometries[index])


@needs_corpus
def test_good_corpus_equals_shapely():
    """Every feature of the real files comes out as GEOS reads it; the refused have a reason."""
    files = [p for p in (corpus() / "good").rglob("*") if p.suffix in (".geojson", ".json")]
    for path in files:
        document = orjson.loads(path.read_bytes())
        if not isinstance(document, dict) or "features" not in document:
            continue
        values = [orjson.dumps(feature) for feature in document["features"]]
        decoded = decode(values)
        compare_with_shapely(values, decoded)
        assert len(decoded.faults) <= 0.01 * len(values), (path, decoded.faults)


@needs_corpus
def test_bad_corpus_never_raises():
    """Every bad file, alone and all together, comes out as a geometry or a fault."""
    values = [path.read_bytes() for path in sorted((corpus() / "bad").rglob("*")) if path.is_file()]
    together = decode(values)

    for index, value in enumerate(values):
        assert decode([value]).faults.get(0) == together.faults.get(index)
    exact = shapely.get_num_coordinates(together.geometries)
    assert (counted_vertices(values) >= np.asarray(exact)).all()


@needs_corpus
def test_hand_made_cases_as_expected():
    """Of the hand-made GeoJSON and JSON cases, the rejected are refused and the accepted read."""
    folder = corpus() / "bad" / "own"
    for line in (folder / "manifest.jsonl").read_bytes().splitlines():
        case = orjson.loads(line)
        if case["format"] not in ("json", "geojson") or case["expect"] == "policy":
            continue
        refused = bool(decode([(folder / case["file"]).read_bytes()]).faults)
        assert refused == (case["expect"] == "reject"), case
