"""The format FeatureCollection: several Features of GeoJSON in one value."""

from __future__ import annotations

from typing import Any

from consumer.payload import geojson

STARTS = b"{"
_OPENED = b'{"type":"FeatureCollection","features":['

EXAMPLES = (
    _OPENED + b"]}",
    _OPENED + geojson.EXAMPLES[1] + b"," + geojson.EXAMPLES[2] + b"]}",
)


def nested(levels: int) -> bytes:
    """Return a collection of one Feature with a point inside so many collections."""
    feature = b'{"type":"Feature","properties":{},"geometry":%s}'
    return _OPENED + feature % geojson.nested(levels) + b"]}"


def recognise(_value: bytes, document: Any) -> bool:
    """Whether a value is a FeatureCollection."""
    return type(document) is dict and document.get("type") == "FeatureCollection"
