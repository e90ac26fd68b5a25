"""The payload formats that the worker knows, and what is asked of each: the table of formats.

Owns the row and the table. A format is one module, with its recognition, its upper count, its
decoder and its samples, and one row here: counting and decoding read the table, and the tests run
over it. A row without a decoder is a format that is dead-lettered by its name.

Rules for a row:

- ``counted_vertices`` never raises, takes a few microseconds at most whatever the bytes, and is
  never below ``shapely.get_num_coordinates`` of what the value decodes to. A record is charged by
  it before anyone knows what is inside.
- The parent counts and does not decode. What only the decoder needs (shapely, orjson) is
  imported inside it.

The contract of a decoder:

- It gives one result for each value, in order: a geometry, None (valid, without a location) or a
  ``Fault``, whose text quotes nothing of the payload.
- It never raises, whatever the bytes. Only memory that runs out gets past it, as MemoryError in
  whichever way it was told (``coordinates.is_out_of_memory``).
- It bounds the depth of what is nested (``geojson_scan.COLLECTION_DEPTH_LIMIT``) before GEOS
  sees it: GEOS recurses on the C stack, and dies of an overflow without an exception.
- Ordinates are finite. An infinity or a NaN in the payload is a fault, not a geometry.
- What it decodes to has no more vertices than the row has counted.

A decoder that raises all the same, or gives something else, costs the record that made it do so
the reason ``decoder-error``; the others are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from consumer.payload import (
    change_event,
    compressed,
    feature_collection,
    framed_json,
    geojson,
    wkb,
    wkt,
)
from consumer.payload.raw_values import densest_text_vertices

#: (raw values, their parsed documents; None: not JSON) -> one geometry, None or Fault for each
Decoder: TypeAlias = Callable[[Sequence[bytes], Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FormatRow:
    """One format."""

    #: in words, for the fault of a value that is not decoded
    name: str
    #: The bytes that a value can begin with, behind whitespace. A format is asked about no other
    #: value, neither to count it nor to recognise it.
    starts: bytes
    #: raw value -> upper count
    counted_vertices: Callable[[bytes], int]
    #: Bytes that each value holds whose vertices open no brackets, though it is a JSON object.
    #: Without them brackets alone are counted, which is what is fast. Empty: nothing is hidden.
    mark: bytes = b""
    #: (raw value, parsed document) -> whether this is its format; the first row that says so has
    #: it. None: GeoJSON, as which every value is tried before the table is asked.
    recognise: Callable[[bytes, Any], bool] | None
    #: None: not decoded; GeoJSON's is ``consumer.payload.geojson_scan``
    decode: Decoder | None = None
    #: valid values, which the tests cut and change
    examples: tuple[bytes, ...]
    #: a valid value of so many levels; None where nothing can be nested
    nested: Callable[[int], bytes] | None = None

    @property
    def is_decoded(self) -> bool:
        """Whether there are geometries of this format."""
        return self.recognise is None or self.decode is not None


FORMATS: tuple[FormatRow, ...] = (
    FormatRow(
        name="GeoJSON",
        starts=geojson.STARTS,
        counted_vertices=geojson.counted_vertices,
        recognise=None,
        examples=geojson.EXAMPLES,
        nested=geojson.nested,
    ),
    FormatRow(
        name="FeatureCollection",
        starts=feature_collection.STARTS,
        counted_vertices=geojson.counted_vertices,
        recognise=feature_collection.recognise,
        examples=feature_collection.EXAMPLES,
        nested=feature_collection.nested,
    ),
    FormatRow(
        name="change event",
        starts=change_event.STARTS,
        counted_vertices=change_event.counted_vertices,
        mark=change_event.MARK,
        recognise=change_event.recognise,
        examples=change_event.EXAMPLES,
        nested=change_event.nested,
    ),
    FormatRow(
        name="compressed",
        starts=compressed.STARTS,
        counted_vertices=densest_text_vertices,
        recognise=compressed.recognise,
        examples=compressed.EXAMPLES,
        nested=compressed.nested,
    ),
    FormatRow(
        name="JSON behind a schema registry's frame",
        starts=framed_json.STARTS,
        counted_vertices=geojson.counted_vertices,
        recognise=framed_json.recognise,
        examples=framed_json.EXAMPLES,
        nested=framed_json.nested,
    ),
    FormatRow(
        name="WKB",
        starts=wkb.STARTS,
        counted_vertices=wkb.counted_vertices,
        recognise=wkb.recognise,
        examples=wkb.EXAMPLES,
        nested=wkb.nested,
    ),
    FormatRow(
        name="WKT",
        starts=wkt.STARTS,
        counted_vertices=wkt.counted_vertices,
        recognise=wkt.recognise,
        examples=wkt.EXAMPLES,
        nested=wkt.nested,
    ),
    FormatRow(
        name="WKB as hex",
        starts=wkb.HEX_STARTS,
        counted_vertices=wkb.counted_vertices_hex,
        recognise=wkb.recognise_hex,
        examples=wkb.HEX_EXAMPLES,
        nested=wkb.nested_hex,
    ),
    FormatRow(
        name="WKB as base64",
        starts=wkb.BASE64_STARTS,
        counted_vertices=wkb.counted_vertices_base64,
        recognise=wkb.recognise_base64,
        examples=wkb.BASE64_EXAMPLES,
        nested=wkb.nested_base64,
    ),
)


@lru_cache
def rows_by_first_byte(formats: tuple[FormatRow, ...]) -> Mapping[int, tuple[FormatRow, ...]]:
    """Return the rows that are asked about a value, by its first byte, in the table's order.

    Examples
    --------
    >>> [row.name for row in rows_by_first_byte(FORMATS)[ord("{")]]
    ['GeoJSON', 'FeatureCollection', 'change event']
    """
    firsts = {first for row in formats for first in row.starts}
    return {first: tuple(row for row in formats if first in row.starts) for first in firsts}
