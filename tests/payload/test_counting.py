"""The count over raw bytes is never below the vertices inside."""

from __future__ import annotations

import base64
import zlib

import hypothesis.strategies as st
import orjson
import shapely
from hypothesis import given

from consumer.payload.counting import counted_vertices, key_hashes
from consumer.payload.decode import decode
from tests.payloads import features, geometries, simple_geometries, written


@given(written(geometries | features))
def test_json_is_never_undercounted(case):
    """Whatever the whitespace, the properties and the nesting, no vertex is missed."""
    _, text = case
    decoded = decode([text])

    assert not decoded.faults
    assert counted_vertices([text])[0] >= decoded.exact_vertices


@given(simple_geometries(), st.booleans(), st.sampled_from(["", " ", "\n\t"]))
def test_other_encodings_are_never_undercounted(geometry, little_endian, space):
    """WKB, its texts and WKT are counted as densely as they can be written."""
    shape = shapely.from_geojson(orjson.dumps(geometry))
    order = 1 if little_endian else 0
    raw = shapely.to_wkb(shape, byte_order=order)
    hexadecimal = shapely.to_wkb(shape, hex=True, byte_order=order)
    ewkb = shapely.to_wkb(shapely.set_srid(shape, 4326), include_srid=True)
    values = [
        raw,
        ewkb,
        hexadecimal.encode(),
        hexadecimal.lower().encode(),
        base64.b64encode(raw),
        (space + shapely.to_wkt(shape)).encode(),
        shapely.to_wkt(shape, rounding_precision=0, trim=True).replace(", ", ",").encode(),
        b"SRID=4326;" + shapely.to_wkt(shape).lower().encode(),
    ]

    vertices = int(shapely.get_num_coordinates(shape))
    assert (counted_vertices(values) >= vertices).all()


def test_a_ping_counts_one_vertex():
    """The count is not only safe but close: a point is one vertex."""
    assert counted_vertices([b'{"type":"Point","coordinates":[1.5,2.5]}']).tolist() == [1]


def test_values_without_geometry():
    """Tombstones, empty values and JSON without arrays hold nothing."""
    assert counted_vertices([None, b"", b"   ", b'{"a":1}']).tolist() == [0, 0, 0, 0]


def test_json_behind_a_byte_order_mark_or_long_whitespace():
    """What stands before the document does not hide it."""
    text = b'{"type":"MultiPoint","coordinates":[[0,0],[1,1],[2,2]]}'

    assert (counted_vertices([b"\xef\xbb\xbf" + text, b" " * 200 + text]) >= 3).all()


def test_a_change_event_is_counted_by_its_base64():
    """The geometry of a change event has no brackets of its own."""
    line = shapely.LineString([(i, i) for i in range(1000)])
    wkb = base64.b64encode(shapely.to_wkb(line))

    assert counted_vertices([b' {"after":{"geom":{"wkb":"' + wkb + b'"}}}'])[0] >= 1000
    assert counted_vertices([b'{"after":{"geom":{"wkb":"' + wkb + b'"}}}'])[0] >= 1000


@given(st.lists(st.none() | st.binary(max_size=20), max_size=20))
def test_any_bytes_can_be_counted(values):
    """Nothing raises, and there is a count for each value."""
    counts = counted_vertices(values)

    assert len(counts) == len(values)
    assert (counts >= 0).all()


@given(st.lists(st.none() | st.binary(max_size=20), max_size=20))
def test_key_hashes(keys):
    """A key's hash depends on the key alone; null keys hash to 0."""
    assert key_hashes(keys).tolist() == [0 if key is None else zlib.crc32(key) for key in keys]
