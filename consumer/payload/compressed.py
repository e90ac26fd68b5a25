"""The format of values that their producer compressed itself: gzip, Zstandard, LZ4, Snappy.

What Kafka compresses is no business of this module: the client unpacks it. Of what is inside
nothing is known before it is unpacked, so it is counted as text of its length.
"""

from __future__ import annotations

import gzip
from typing import Any

from consumer.payload import geojson

_MAGIC_NUMBERS = (
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\x04\x22\x4d\x18",
    b"\xff\x06\x00\x00sNaPpY",
)
STARTS = bytes(magic[0] for magic in _MAGIC_NUMBERS)

EXAMPLES = tuple(gzip.compress(example, mtime=0) for example in geojson.EXAMPLES)


def nested(levels: int) -> bytes:
    """Return a compressed point inside so many collections."""
    return gzip.compress(geojson.nested(levels), mtime=0)


def recognise(value: bytes, _document: Any) -> bool:
    """Whether a value is compressed."""
    return value.startswith(_MAGIC_NUMBERS)
