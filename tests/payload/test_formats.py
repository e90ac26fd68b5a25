"""The table of formats: each row keeps the contract that is written where it is registered.

A new row is tested by being in the table: by its own samples, by what Hypothesis makes of them,
and by the real inputs where there are some (``VERTEX_BUDGET_CORPUS``).
"""

from __future__ import annotations

import base64
import os
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import orjson
import pytest
import shapely
from hypothesis import given

from consumer.core.reasons import Reason
from consumer.payload import formats
from consumer.payload.counting import counted_vertices
from consumer.payload.decode import Decoded, decode, format_of
from consumer.payload.faults import Fault
from consumer.payload.formats import FORMATS, FormatRow
from consumer.payload.geojson_scan import COLLECTION_DEPTH_LIMIT

NOT_FINITE = (float("nan"), float("inf"), float("-inf"), 1e308)
#: What does harm where a number, a count or the byte of a type was.
HOSTILE = (
    *(b"1e999", b"-1e400", b"9" * 400, b"NaN", b"nan", b"Infinity", b"-inf", b"1e308", b"-0"),
    *(struct.pack(order + "d", number) for order in "<>" for number in NOT_FINITE),
    *(struct.pack("<d", number).hex().encode() for number in NOT_FINITE),
    *(base64.b64encode(struct.pack("<3d", *[number] * 3)) for number in NOT_FINITE),
    *(b"\xff\xff\xff\x7f", b"ffffff7f", b"////", b"[", b"((", b",,", b'"', b"\x00", b"\\u0000"),
)
#: Deeper than what GEOS takes of any format on a stack of 8 MiB.
DEEP = 200_000


def row_named(name: str) -> FormatRow:
    (row,) = (row for row in FORMATS if row.name == name)
    return row


def with_row(changed: FormatRow) -> tuple[FormatRow, ...]:
    """Return the table with one row changed."""
    return tuple(changed if row.name == changed.name else row for row in FORMATS)


def document_of(value: bytes) -> object:
    try:
        return orjson.loads(value)
    except ValueError:
        return None


def check_contract(values: Sequence[bytes | None]) -> Decoded:
    """Assert what holds of any values; return what they decode to."""
    decoded = decode(values)
    counted = counted_vertices(values)

    assert len(decoded.geometries) == len(counted) == len(values)
    exact = np.asarray(shapely.get_num_coordinates(decoded.geometries))
    assert (counted >= exact).all()
    assert np.isfinite(shapely.get_coordinates(decoded.geometries)).all()
    high = decoded.geometries[shapely.has_z(decoded.geometries)]
    assert np.isfinite(shapely.get_coordinates(high, include_z=True)).all()
    for index, fault in decoded.faults.items():
        assert fault.reason != Reason.DECODER_ERROR, (values[index], fault)
        assert decoded.geometries[index] is None
    return decoded


@cache
def samples(row: FormatRow) -> tuple[bytes, ...]:
    """Return valid values of one format: its own, and the real ones of a size to play with."""
    real = [
        value
        for value in corpus_values()
        if len(value) <= 2_000 and (format_of(value, document_of(value)) or FORMATS[0]) is row
    ]
    return (*row.examples, *real)


@cache
def corpus_values() -> tuple[bytes, ...]:
    """Return every value of the real inputs; none where there are no such inputs."""
    if "VERTEX_BUDGET_CORPUS" not in os.environ:
        return ()
    folder = Path(os.environ["VERTEX_BUDGET_CORPUS"])
    found = [path.read_bytes() for path in sorted((folder / "bad").rglob("*")) if path.is_file()]
    for path in sorted((folder / "derived").glob("*.ndjson")):
        for line in path.read_bytes().splitlines():
            document = orjson.loads(line)
            value = document.get("value", document)
            found.append(value.encode() if isinstance(value, str) else orjson.dumps(value))
    return tuple(found)


def escaped(value: bytes, at: int) -> bytes:
    """Return a value with one letter written as JSON may write it in a string."""
    letters = [found.start() for found in re.finditer(rb"[A-Za-z0-9+/]", value)]
    if not letters:
        return value
    index = letters[at % len(letters)]
    return value[:index] + b"\\u%04x" % value[index] + value[index + 1 :]


def with_number(value: bytes, at: int, number: bytes) -> bytes:
    """Return a value with one of its numbers replaced."""
    numbers = [found.span() for found in re.finditer(rb"-?\d[\d.eE]*", value)]
    if not numbers:
        return value + number
    start, end = numbers[at % len(numbers)]
    return value[:start] + number + value[end:]


@st.composite
def mutated(draw: st.DrawFn, values: Sequence[bytes]) -> bytes:
    """A valid value after up to three changes of any kind."""
    value = draw(st.sampled_from(values))
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(value))] * 2)))
        piece = draw(st.sampled_from(HOSTILE) | st.binary(max_size=8))
        value = draw(
            st.sampled_from(
                [
                    value[:end],
                    value[:start] + value[end:],
                    value[:start] + piece + value[start:],
                    value[:start] + piece + value[start + len(piece) :],
                    value[:end] + value[start:end] * 3 + value[end:],
                    with_number(value, start, piece),
                    escaped(value, start),
                    b" \n" + value,
                ]
            )
        )
    return value


every_row = pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)


# -- each row ----------------------------------------------------------------------------------


@every_row
def test_a_row_has_samples_of_its_format(row: FormatRow):
    """Each sample is recognised as its format, and decoded unless the format is not."""
    assert row.examples
    nested = (row.nested(0), row.nested(3)) if row.nested else ()
    for example in (*row.examples, *nested):
        assert row.recognise is None or format_of(example, document_of(example)) is row
        faults = check_contract([example]).faults
        expected = Fault(Reason.UNSUPPORTED_FORMAT, f"{row.name} is not decoded")
        assert faults == ({} if row.is_decoded else {0: expected})
    if row.is_decoded:
        assert decode(row.examples).exact_vertices > len(row.examples)


@pytest.mark.parametrize("row", [row for row in FORMATS if row.nested], ids=lambda row: row.name)
@pytest.mark.parametrize("levels", [30, 60, 500, 5_000, DEEP])
def test_deep_nesting_is_refused(row: FormatRow, levels: int):
    """However deep a value is nested, it is a fault where it is too deep, and no overflow."""
    assert row.nested is not None
    faults = check_contract([row.nested(levels)]).faults

    assert bool(faults) == (levels > COLLECTION_DEPTH_LIMIT or not row.is_decoded)


@every_row
def test_no_number_of_a_value_can_be_worse_than_a_fault(row: FormatRow):
    """Each number of each sample is replaced by everything that does harm where a number was."""
    for example in row.examples:
        numbers = len(re.findall(rb"-?\d[\d.eE]*", example))
        check_contract([with_number(example, at, bad) for at in range(numbers) for bad in HOSTILE])


def test_every_module_with_samples_is_in_the_table():
    """A format whose row is left out would be no format."""
    folder = Path(formats.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "EXAMPLES" in path.read_text()}
    named = set(re.findall(r"(\w+)\.(?:\w+_)?EXAMPLES", Path(formats.__file__).read_text()))
    assert modules - {"formats"} == named


@every_row
@given(data=st.data())
def test_the_contract_of_a_decoder(row: FormatRow, data: st.DataObject):
    """Whatever the bytes: no exception, one result each, finite ordinates, never undercounted.

    What a record comes out as does not depend on those beside it.
    """
    changed = mutated(samples(row))
    start = st.sampled_from(row.starts).map(lambda byte: bytes([byte]))
    arbitrary = st.builds(lambda first, rest: first + rest, start, st.binary(max_size=60))
    values = data.draw(st.lists(changed | arbitrary | st.none(), min_size=1, max_size=6))

    together = check_contract(values)

    for index, value in enumerate(values):
        alone = decode([value])
        assert alone.faults.get(0) == together.faults.get(index)
        assert shapely.to_wkb(alone.geometries[0]) == shapely.to_wkb(together.geometries[index])


@every_row
@given(data=st.data())
def test_a_value_is_counted_by_its_format(row: FormatRow, data: st.DataObject):
    """The count of any value is not below that of the format which it turns out to have.

    Asked as if the format were decoded, which is when its mark is looked for.
    """
    value = data.draw(mutated(samples(row)))
    found = format_of(value, document_of(value))
    if found is None:
        found, table = FORMATS[0], FORMATS
    else:
        table = with_row(replace(found, decode=lambda values, _documents: [None] * len(values)))
    is_its_format = found is not FORMATS[0] or isinstance(document_of(value), dict)

    assert counted_vertices([value], table)[0] >= is_its_format * found.counted_vertices(value)


def test_names_are_unique():
    """A format's name says which one it is."""
    assert len({row.name for row in FORMATS}) == len(FORMATS)


@pytest.mark.skipif(
    "VERTEX_BUDGET_CORPUS" not in os.environ, reason="VERTEX_BUDGET_CORPUS is not set"
)
def test_the_contract_over_real_inputs():
    """Every real value, good and bad, keeps the contract, all together."""
    assert len(corpus_values()) > 1_000
    check_contract(corpus_values())


def test_counting_needs_no_decoder():
    """The parent, which counts, does not load what only decoding needs."""
    code = "import sys, consumer.payload.counting; assert not {'shapely', 'orjson'} & sys.modules.keys()"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


# -- a format with a decoder -------------------------------------------------------------------

PING = b'{"type":"Feature","properties":{"v":7},"geometry":{"type":"Point","coordinates":[1,2]}}'


def test_a_format_gets_a_decoder_by_its_row():
    """A decoder gets the values of its format, and its answers are the records'."""

    def read_wkt(values, documents):
        assert documents == [None, None]
        return [
            shapely.from_wkt(value.decode()) if b"(" in value else Fault("bad-wkt", "")
            for value in values
        ]

    formats = with_row(replace(row_named("WKT"), decode=read_wkt))
    decoded = decode([PING, b"POINT (3 4)", b"POINT"], formats)

    assert decoded.geometries[1] == shapely.Point(3, 4)
    assert decoded.faults == {2: Fault("bad-wkt", "")}
    assert decoded.exact_vertices == 2


def test_vertices_outside_of_brackets_are_counted_by_the_mark():
    """Once change events are decoded, an event with brackets counts by its base64 as well.

    The base64 is 1,000 vertices of 16 bytes, the whole 21,400 characters and some.
    """
    line = shapely.LineString([(i, i) for i in range(1_000)])
    event = b'{"after":{"tags":["a"],"geom":{"wkb":"%s"}},"op":"c"}' % base64.b64encode(
        shapely.to_wkb(line)
    )
    row = replace(row_named("change event"), decode=lambda values, _: [line] * len(values))

    counted = counted_vertices([event, PING, None], with_row(row))

    assert counted.tolist() == [len(event) * 3 // 64 + 1, 1, 0]
    assert 1_000 <= counted[0] < 1_010


# -- a decoder that breaks its contract --------------------------------------------------------


def broken(values, documents):
    """Decode WKT, and break the contract over some of it."""
    for value, document in zip(values, documents, strict=True):
        assert document is None
        if b"666" in value:
            raise ZeroDivisionError(value)
    results = [
        {"not": "a geometry"} if b"777" in value else shapely.from_wkt(value.decode())
        for value in values
    ]
    return [result for value, result in zip(values, results, strict=True) if b"888" not in value]


def test_a_decoder_that_breaks_its_contract_costs_its_records_only():
    """It raises, gives no geometry, or gives too few results: the others are decoded."""
    formats = with_row(replace(row_named("WKT"), decode=broken))
    values = [b"POINT (%d 0)" % x for x in (1, 666, 2, 777, 3, 888, 4)]
    decoded = decode([*values, PING], formats)

    assert {fault.reason for fault in decoded.faults.values()} == {Reason.DECODER_ERROR}
    assert sorted(decoded.faults) == [1, 3, 5]
    assert re.fullmatch(
        r"WKT: ZeroDivisionError in test_formats\.py, line \d+", decoded.faults[1].text
    )
    assert decoded.faults[3].text == "WKT: a result is dict"
    assert decoded.faults[5].text == "WKT: 0 results for 1 values"
    assert [decoded.geometries[index].x for index in (0, 2, 4, 6)] == [1, 2, 3, 4]
    assert decoded.documents[7] == {"type": "Feature", "properties": {"v": 7}}


def test_a_decoder_tries_again_with_the_documents_as_they_were():
    """What an attempt that raised did to the parsed documents is not there in the next."""
    values = [orjson.dumps({"op": "c", "after": {"x": x}}) for x in (1, 0, 2)]

    def pops(values, documents):
        return [shapely.Point(1 / document.pop("after").pop("x"), 0) for document in documents]

    formats = with_row(replace(row_named("change event"), decode=pops))
    decoded = decode(values, formats)

    assert list(decoded.faults) == [1]
    assert [decoded.geometries[index].x for index in (0, 2)] == [1.0, 0.5]


def test_a_recognition_that_raises_costs_its_record_only():
    """A format that cannot even look at a value costs that value alone."""

    def recognise(value, _document):
        return 1 // value.count(b"(") == 1

    formats = with_row(replace(row_named("WKT"), recognise=recognise, decode=broken))
    decoded = decode([b"POINT (1 0)", b"POINT", PING], formats)

    assert {index: fault.reason for index, fault in decoded.faults.items()} == {
        1: Reason.DECODER_ERROR
    }


@pytest.mark.parametrize("error", [MemoryError("666"), RuntimeError("std::bad_alloc")])
def test_memory_that_runs_out_is_no_fault_of_a_record(error: Exception):
    """It gets out, in whichever way it was told, so that the chunk is tried again."""

    def runs_out(_values, _documents):
        raise error

    formats = with_row(replace(row_named("WKT"), decode=runs_out))
    with pytest.raises(MemoryError):
        decode([b"POINT (1 0)"], formats)


def test_geojson_that_cannot_be_built_costs_its_record_only(monkeypatch: pytest.MonkeyPatch):
    """What nobody foresaw in the reading of GeoJSON is the fault of the record that has it."""
    points = shapely.points

    def unforeseen(array):
        if 666 in array:
            raise ZeroDivisionError
        return points(array)

    monkeypatch.setattr(shapely, "points", unforeseen)
    values = [
        b'{"type":"Feature","properties":{"v":%d},"geometry":{"type":"Point","coordinates":[%d,0]}}'
        % (x, x)
        for x in (1, 666, 2)
    ]
    formats = with_row(replace(row_named("WKT"), decode=None))
    decoded = decode([None, *values, b"POINT (1 2)", b"{"], formats)

    assert decoded.skipped == [0]
    assert {index: fault.reason for index, fault in decoded.faults.items()} == {
        2: Reason.DECODER_ERROR,
        4: Reason.UNSUPPORTED_FORMAT,
        5: Reason.MALFORMED_JSON,
    }
    assert re.fullmatch(
        r"GeoJSON: ZeroDivisionError in test_formats\.py, line \d+", decoded.faults[2].text
    )
    assert [decoded.geometries[index].x for index in (1, 3)] == [1, 2]
    assert decoded.documents[3]["properties"] == {"v": 2}
    assert decoded.exact_vertices == 2
