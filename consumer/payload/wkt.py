"""The formats of WKT and EWKT."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from consumer.payload.raw_values import text_start

#: Any word but one with A: no geometry type begins with it, and base64 of WKB does.
STARTS = ascii_letters.replace("A", "").encode()
_WORDS = (
    b"POINT",
    b"LINESTRING",
    b"LINEARRING",
    b"POLYGON",
    b"MULTI",
    b"GEOMETRYCOLLECTION",
    b"SRID=",
)

EXAMPLES = (
    b"POINT (1.5 -2)",
    b"LINESTRING(0 0,1 1,2 0.5)",
    b"SRID=4326;POLYGON Z ((0 0 1, 4 0 1, 4 4 1, 0 0 1))",
    b"GEOMETRYCOLLECTION (MULTIPOINT (0 0, 1 1), POINT EMPTY)",
)


def nested(levels: int) -> bytes:
    """Return a point inside so many collections."""
    return b"GEOMETRYCOLLECTION(" * levels + EXAMPLES[0] + b")" * levels


def recognise(value: bytes, _document: Any) -> bool:
    """Whether a value is WKT or EWKT."""
    return text_start(value).upper().startswith(_WORDS)


def counted_vertices(value: bytes) -> int:
    """Return the opening parentheses and commas: each vertex follows one.

    Examples
    --------
    >>> [counted_vertices(value) for value in EXAMPLES]
    [1, 3, 5, 4]
    """
    return value.count(b",") + value.count(b"(")
