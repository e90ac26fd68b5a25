"""The format of JSON behind a schema registry's frame: a zero, four bytes of the schema's id."""

from __future__ import annotations

from typing import Any

from consumer.payload import geojson

STARTS = b"\x00"
_FRAME = b"\x00\x00\x00\x00\x07"

EXAMPLES = tuple(_FRAME + example for example in geojson.EXAMPLES)


def nested(levels: int) -> bytes:
    """Return a framed point inside so many collections."""
    return _FRAME + geojson.nested(levels)


def recognise(value: bytes, _document: Any) -> bool:
    """Whether a value is a JSON object behind a frame."""
    return value[:1] == b"\x00" and value[5:6] == b"{"
