"""What authors of handlers test with: batches made by hand, and what a handler did with them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
import shapely
from hypothesis import given
from shapely import Point

from consumer.batch import Batch, OutputRecord, Retry
from consumer.errors import ConfigError, PayloadError
from consumer.testing import Handled, batch_of
from tests.payloads import geometries
from tests.processes import sample_handlers

LINE = shapely.LineString([(0, 0, 5), (1.5, 1, 6)])
PING = {
    "type": "Feature",
    "id": 7,
    "geometry": {"type": "Point", "coordinates": [1, 2]},
    "properties": {"vehicle_id": "4001"},
}


def test_payloads_in_every_form():
    """GeoJSON as text, bytes or parsed, WKB, a geometry, and no location at all."""
    batch = batch_of(
        '{"type":"Point","coordinates":[1,2]}',
        b' {"type":"Point","coordinates":[1,2]}',
        PING,
        shapely.to_wkb(LINE),
        shapely.to_wkb(Point(1, 2), byte_order=0),
        LINE,
        None,
    )

    point = Point(1, 2)
    assert batch.geometries.tolist() == [point, point, point, LINE, point, LINE, None]
    assert shapely.get_coordinates(batch.geometries[3], include_z=True).tolist() == [
        [0, 0, 5],
        [1.5, 1, 6],
    ]
    assert batch.properties(2) == {"vehicle_id": "4001"}
    assert batch.document(2)["id"] == 7
    assert batch.properties(6) == {}


def test_values_are_what_the_worker_would_read():
    """What was given as GeoJSON stays as it was written; the rest is written as GeoJSON."""
    text = b'{"type":"Point", "coordinates":[1.50,2]}'
    batch = batch_of(text, Point(0, 1), shapely.to_wkb(Point(0, 1)))

    values = [record.value or b"" for record in batch.records]
    assert values[0] == text
    assert [orjson.loads(value) for value in values[1:]] == [
        {"type": "Point", "coordinates": [0.0, 1.0]}
    ] * 2


@given(geometries)
def test_a_geometry_comes_as_it_would_come_from_its_geojson(document):
    """Every shape reaches the handler as it does when its GeoJSON is consumed."""
    expected = batch_of(document).geometries[0]
    again = batch_of(expected, shapely.to_wkb(expected)).geometries

    assert [shapely.to_wkt(shape, -1) for shape in again] == [shapely.to_wkt(expected, -1)] * 2


def test_what_kafka_knows_is_given_or_left_out():
    """Keys, headers, place and time; by default no key, offsets from 0 on, no time."""
    plain = batch_of(None, None).records[1]
    assert (plain.key, plain.headers, plain.topic, plain.partition) == (None, [], "test", 0)
    assert (plain.offset, plain.timestamp_ms) == (1, -1)

    record = batch_of(
        None,
        None,
        keys=["ä", None],
        headers=[[("h", b"1")], []],
        topic="town",
        partition=3,
        offsets=[70, 90],
        timestamps_ms=[5, 6],
    ).records
    assert [r.key for r in record] == ["ä".encode(), None]
    assert [r.headers for r in record] == [[("h", b"1")], []]
    assert [(r.topic, r.partition, r.offset, r.timestamp_ms) for r in record] == [
        ("town", 3, 70, 5),
        ("town", 3, 90, 6),
    ]


def test_properties_make_a_feature():
    """A geometry becomes a Feature with them, a Feature's own are replaced, None leaves all."""
    batch = batch_of(Point(1, 2), PING, PING, properties=[{"a": 1}, {"b": 2}, None])

    assert [batch.properties(index) for index in range(3)] == [
        {"a": 1},
        {"b": 2},
        {"vehicle_id": "4001"},
    ]
    assert batch.document(1)["id"] == 7
    assert batch.document(0)["type"] == "Feature"


@pytest.mark.parametrize(
    ("payload", "reason", "words"),
    [
        (b"{", "malformed-json", "payload 1: "),
        ("[1]", "not-geojson", "payload 1: an array, not an object"),
        ({"type": "Point", "coordinates": ["x", 1]}, "bad-coordinates", "payload 1: "),
        ({"type": "FeatureCollection", "features": []}, "unsupported-format", "not decoded"),
        ("POINT (1 2)", "unsupported-format", "WKT is not decoded"),
        (shapely.to_wkb(LINE)[:30], "unsupported-format", "WKB that cannot be read"),
        ("", "malformed-json", "payload 1: "),
    ],
)
def test_a_payload_that_cannot_be_decoded_is_told(payload, reason, words):
    """With its place, the reason that its dead letter would carry, and what the worker does."""
    with pytest.raises(PayloadError) as caught:
        batch_of(Point(1, 2), payload)

    assert caught.value.reason == reason
    assert words in str(caught.value)
    assert "dead-letter topic" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (batch_of, ValueError, "at least one record"),
        (lambda: batch_of(None, keys=[]), ValueError, "0 keys for 1 payloads"),
        (lambda: batch_of(None, offsets=[1, 2]), ValueError, "2 offsets for 1 payloads"),
        (lambda: batch_of(None, 17), TypeError, "payload 1 is of type int"),
        (lambda: batch_of(b"x", properties=[{}]), PayloadError, "malformed-json"),
        (lambda: batch_of(b"[]", properties=[{}]), PayloadError, "not-geojson"),
    ],
)
def test_a_batch_that_cannot_be_made(given, error, words):
    """The caller's mistakes are told in words, before a handler is called."""
    with pytest.raises(error, match=words):
        given()


def acts(*does: str) -> Handled:
    """Return what the handler of the tests does with records that tell it what to do."""
    return batch_of(*([None] * len(does)), properties=[{"do": do} for do in does]).handled_by(
        sample_handlers.acts
    )


def test_what_is_said_of_each_record():
    """Failed and retried ones with code and words; every other is done."""
    handled = acts("", "fail", "retry", "fail-in-words")

    assert handled.done == [0]
    assert handled.failed == {1: "not-wanted", 3: "handler-refused"}
    assert handled.retry == {2: "retry-requested"}
    assert handled.texts == {1: "of no use here", 2: "later", 3: "Not wanted: 17"}


def test_an_exception_is_narrowed_down_to_its_record():
    """A handler that raises for one of many fails that one, with the exception in the text."""
    handled = acts(*[""] * 5, "raise", "")

    assert handled.failed == {5: "handler-error"}
    assert handled.texts[5].startswith("ValueError: cannot handle offset 5 (")
    assert handled.done == [0, 1, 2, 3, 4, 6]


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("retry-all", "retry-requested"),
        ("connection", "retry-requested"),
        ("memory", "suspect-memory"),
        ("geos-memory", "suspect-memory"),
    ],
)
def test_exceptions_that_ask_for_another_attempt(do, reason):
    """They take the whole batch with them."""
    handled = acts("", do)

    assert handled.retry == {0: reason, 1: reason}
    assert (handled.done, handled.failed, handled.outputs) == ([], {}, [])


def test_outputs_are_those_of_records_that_are_done():
    """Keys and headers as they would be produced; what failed or goes again gives nothing."""

    def handle(batch: Batch) -> list[Any]:
        batch.fail(1, "bad")
        batch.retry(2)
        return [(2, "no"), OutputRecord(0, "ä", headers=[("h", b"1")]), (1, "no")]

    handled = batch_of(None, None, None, keys=["k0", "k1", "k2"]).handled_by(handle)

    assert handled.outputs == [OutputRecord(0, "ä".encode(), b"k0", (("h", b"1"),))]


def test_a_class_is_opened_and_closed_each_time():
    """One is made for each handling; an object is used as it is."""
    calls: list[str] = []

    class Handler:
        def __init__(self) -> None:
            calls.append("made")

        def open(self) -> None:
            calls.append("open")

        def handle(self, batch: Batch) -> None:
            calls.append(f"handle {len(batch)}")

        def close(self) -> None:
            calls.append("close")

    batch = batch_of(None, None)
    assert batch.handled_by(Handler).done == [0, 1]
    assert batch.handled_by(Handler()).done == [0, 1]

    assert calls == ["made", "open", "handle 2", "close"] * 2


def test_async_handlers_have_one_event_loop():
    """open, handle and close run in the same one, and it is closed whatever happens."""
    loops: list[asyncio.AbstractEventLoop] = []

    class Handler:
        async def open(self) -> None:
            loops.append(asyncio.get_running_loop())

        async def handle(self, batch: Batch) -> list[tuple[int, bytes]]:
            loops.append(asyncio.get_running_loop())
            return [(0, b"async")]

        async def close(self) -> None:
            loops.append(asyncio.get_running_loop())

    class DoesNotOpen(Handler):
        async def open(self) -> None:
            loops.append(asyncio.get_running_loop())
            raise ConnectionRefusedError

    handled = batch_of(None).handled_by(Handler)
    assert [output.value for output in handled.outputs] == [b"async"]
    assert len(loops) == 3
    assert len(set(loops)) == 1

    with pytest.raises(ConnectionRefusedError):
        batch_of(None).handled_by(DoesNotOpen)
    assert all(loop.is_closed() for loop in loops)


def test_a_batch_can_be_handled_again():
    """Each handling begins anew: what one handler said does not follow the batch."""
    batch = batch_of(None)

    def later(batch: Batch) -> None:
        raise Retry

    assert batch.handled_by(later).retry == {0: "retry-requested"}
    assert batch.handled_by(sample_handlers.nothing).done == [0]


@pytest.mark.parametrize("wrong", [7, sample_handlers.NoHandle])
def test_what_is_no_handler_is_refused(wrong):
    """In the words that the worker would refuse it with."""
    with pytest.raises(ConfigError, match="handle"):
        batch_of(None).handled_by(wrong)
