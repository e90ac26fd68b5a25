"""Files as records: what is in them is sent as it stands, and mistakes are told with their place."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import orjson
import pytest
from hypothesis import HealthCheck, given, settings

from consumer.traffic import files
from consumer.traffic.files import FileError, read_placed_records, read_records

POINT = b'{"type":"Point","coordinates":[1.50,2.0]}'
texts = st.text(st.characters(codec="utf-8"), max_size=8)
features = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("Feature"),
            "id": st.one_of(st.none(), st.integers(0, 99), texts),
            "properties": st.dictionaries(texts, st.one_of(texts, st.integers(0, 9))),
            "geometry": st.just(orjson.loads(POINT)),
        }
    ),
    max_size=6,
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def collection(items: bytes, before: bytes = b'"type":"FeatureCollection",') -> bytes:
    return b"{%b" % before + b'"features":[' + items + b"]}"


def test_ndjson_is_sent_line_by_line_as_it_stands(tmp_path):
    """Digits stay as they were written; empty lines are no records; ids become keys."""
    path = write(tmp_path / "a.ndjson", POINT + b'\n\n{"id":7,"type":"Feature"}\r\n')

    assert list(read_records(path)) == [(None, POINT), (b"7", b'{"id":7,"type":"Feature"}')]


def test_a_line_may_bring_its_own_key(tmp_path):
    """A stream that was saved with its keys is replayed with them."""
    path = write(tmp_path / "a.ndjson", b'{"key":"k1","value":{"a":1}}\n{"key":null,"value":2}\n')

    assert list(read_records(path)) == [(b"k1", b'{"a":1}'), (None, b"2")]


@given(items=features, indent=st.booleans(), piece=st.integers(1, 64))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_collection_is_read_feature_by_feature(tmp_path, monkeypatch, items, indent, piece):
    """However it is laid out and wherever pieces end, it gives what the whole file parses to."""
    monkeypatch.setattr(files, "PIECE_BYTES", piece)
    option = orjson.OPT_INDENT_2 if indent else 0
    document = {"name": '"features": [', "crs": {"a": {"features": [1]}}, "features": items}
    path = write(tmp_path / "a.geojson", orjson.dumps(document, option=option))

    assert [orjson.loads(value) for _, value in read_records(path)] == items


@given(items=features, indent=st.booleans(), piece=st.integers(1, 64))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_text_sequence_is_read_text_by_text(tmp_path, monkeypatch, items, indent, piece):
    """Texts are told apart by what stands before each, however many lines they have."""
    monkeypatch.setattr(files, "PIECE_BYTES", piece)
    option = orjson.OPT_INDENT_2 if indent else 0
    texts = [b"\x1e" + orjson.dumps(item, option=option) + b"\n" for item in items]
    path = write(tmp_path / "a.geojsons", b"".join(texts) or b"\x1e")

    found = list(read_placed_records(path))

    assert [orjson.loads(record.value) for record in found] == items
    assert [record.place for record in found] == [f"text {n + 1}" for n in range(len(items))]


def test_a_text_that_is_too_long_is_told(tmp_path, monkeypatch):
    """A file that is no sequence after all does not fill the memory."""
    monkeypatch.setattr(files, "MOST_RECORD_BYTES", 200)
    path = write(tmp_path / "a.geojsons", b"\x1e" + POINT + b"\x1e" + b"x" * 300)

    with pytest.raises(FileError, match="text 2 is longer than"):
        list(read_records(path))


def test_what_is_broken_can_be_kept(tmp_path):
    """As it stands and without a key, but for the first of a file: that is another format."""
    path = write(tmp_path / "a.ndjson", b'{"id":7}\n{"id":8\n[1]\n{"id":9}\n')
    assert list(read_placed_records(path, keep_broken=True)) == [
        ("line 1", b"7", b'{"id":7}'),
        ("line 2", None, b'{"id":8'),
        ("line 3", None, b"[1]"),
        ("line 4", b"9", b'{"id":9}'),
    ]

    path.write_bytes(b"id,lat\n1,2\n")
    with pytest.raises(FileError, match="line 1 is not JSON"):
        list(read_placed_records(path, keep_broken=True))


def test_a_collection_of_any_size_is_read_with_little_memory(tmp_path, monkeypatch):
    """Of a file of many pieces no more than a piece and a feature is held."""
    monkeypatch.setattr(files, "MOST_RECORD_BYTES", 20_000)
    monkeypatch.setattr(files, "PIECE_BYTES", 4_096)
    feature = b'{"type":"Feature","properties":{"x":"%b"},"geometry":null}' % (b"y" * 3_000)
    path = write(tmp_path / "a.geojson", collection(b",\n".join([feature] * 200)))

    assert [value for _, value in read_records(path)] == [feature] * 200


def test_one_object_over_several_lines_is_one_record(tmp_path):
    """A geometry that somebody has laid out by hand."""
    path = write(tmp_path / "a.geojson", b'{\n "type": "Point",\n "coordinates": [1, 2]\n}\n')

    ((key, value),) = read_records(path)
    assert key is None
    assert orjson.loads(value) == {"type": "Point", "coordinates": [1, 2]}


def test_lines_that_are_collections_are_records(tmp_path):
    """A FeatureCollection a line: each is one payload."""
    line = collection(POINT)
    path = write(tmp_path / "a.ndjson", line + b"\n" + line + b"\n")

    assert [value for _, value in read_records(path)] == [line, line]


def test_a_property_can_be_the_key(tmp_path):
    """Text as it is, numbers as JSON."""
    lines = b'{"properties":{"lot":"A 1"}}\n{"properties":{"lot":12}}\n'
    path = write(tmp_path / "a.ndjson", lines)

    assert [key for key, _ in read_records(path, "lot")] == [b"A 1", b"12"]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (POINT + b"\nnot json\n", "line 2 is not JSON"),
        (POINT + b"\n[1,2]\n", "line 2 is an array; a GeoJSON object is wanted"),
        (POINT + b"\n12\n", "line 2 is a number"),
        (b"id,lat,lon\n1,2,3\n", "line 1 is not JSON"),
        (collection(POINT + b",nope," + b"{'a':1}"), "feature 1 is not JSON"),
        (collection(POINT)[:-2] + b',{"type":', "ends inside its array of features, after 1"),
        (b"\xff\xfe\n\xff", "line 1 is not JSON"),
    ],
)
def test_what_cannot_be_replayed_is_told_with_its_place(tmp_path, content, wrong):
    """The message names the file and the line or feature."""
    path = write(tmp_path / "bad.json", content)

    with pytest.raises(FileError) as caught:
        list(read_records(path))
    assert wrong in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_property_is_told_with_those_that_are_there(tmp_path):
    """A key that does not exist is most often one that is spelled otherwise."""
    path = write(tmp_path / "a.ndjson", b'{"properties":{"lot":1}}\n')

    with pytest.raises(FileError, match=r"line 1 has no property 'Lot'; it has \['lot'\]"):
        list(read_records(path, "Lot"))


def test_a_file_that_is_not_there_is_told(tmp_path):
    """The system's own words, and the path."""
    with pytest.raises(FileError, match="cannot be read: No such file"):
        list(read_records(tmp_path / "gone"))
