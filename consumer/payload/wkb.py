"""The formats of WKB and EWKB: the bytes themselves, as hexadecimal text, as base64 text."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from consumer.payload.raw_values import text_start

#: bytes of one vertex where nothing surrounds it: two doubles
_BYTES_PER_VERTEX = 16

#: the byte order: big or little endian
STARTS = b"\x00\x01"
HEX_STARTS = b"0"
#: a zero or a one in base64
BASE64_STARTS = b"A"
#: the byte order, and enough of the rest to be no word
_BASE64 = re.compile(rb"A[A-Za-f][A-Za-z0-9+/_-]{10}")

HEX_EXAMPLES = (
    # POINT (1.5 -2); LINESTRING of three, big endian
    b"0101000000000000000000F83F00000000000000C0",
    b"000000000200000003000000000000000000000000000000003ff00000000000003ff0000000000000"
    b"40000000000000003fe0000000000000",
    # POLYGON Z with SRID 4326
    b"01030000A0E61000000100000004000000"
    b"00000000000000000000000000000000000000000000F03F"
    b"00000000000010400000000000000000000000000000F03F"
    b"00000000000010400000000000001040000000000000F03F"
    b"00000000000000000000000000000000000000000000F03F",
    # GEOMETRYCOLLECTION of a MULTIPOINT and POINT EMPTY
    b"010700000002000000010400000002000000"
    b"010100000000000000000000000000000000000000"
    b"0101000000000000000000F03F000000000000F03F"
    b"0101000000000000000000F87F000000000000F87F",
)
EXAMPLES = tuple(bytes.fromhex(example.decode()) for example in HEX_EXAMPLES)
BASE64_EXAMPLES = tuple(b64encode(example) for example in EXAMPLES)


def nested(levels: int) -> bytes:
    """Return a point inside so many collections."""
    return b"\x01\x07\x00\x00\x00\x01\x00\x00\x00" * levels + EXAMPLES[0]


def nested_hex(levels: int) -> bytes:
    """Return a point inside so many collections, as hexadecimal text."""
    return nested(levels).hex().encode()


def nested_base64(levels: int) -> bytes:
    """Return a point inside so many collections, as base64 text."""
    return b64encode(nested(levels))


def recognise(value: bytes, _document: Any) -> bool:
    """Whether a value is WKB."""
    return value[:1] in (b"\x00", b"\x01")


def recognise_hex(value: bytes, _document: Any) -> bool:
    """Whether a value is WKB as hexadecimal text."""
    return text_start(value)[:2] in (b"00", b"01")


def recognise_base64(value: bytes, _document: Any) -> bool:
    """Whether a value is WKB as base64 text."""
    return _BASE64.match(text_start(value)) is not None


def counted_vertices(value: bytes) -> int:
    """Return a count by length, of bytes.

    Examples
    --------
    >>> [counted_vertices(value) for value in EXAMPLES]
    [2, 4, 8, 6]
    """
    return len(value) // _BYTES_PER_VERTEX + 1


def counted_vertices_hex(value: bytes) -> int:
    """Return a count by length, of two characters a byte."""
    return len(value) // (2 * _BYTES_PER_VERTEX) + 1


def counted_vertices_base64(value: bytes) -> int:
    """Return a count by length, of four characters for three bytes."""
    return len(value) * 3 // (4 * _BYTES_PER_VERTEX) + 1
