"""The format of change events: a row before and after a change, as Debezium writes it.

A geometry inside is an object with its WKB as base64 text, so it opens no brackets of its own:
see ``MARK``. What else is in the event may have brackets.
"""

from __future__ import annotations

from typing import Any

from consumer.payload import wkb

STARTS = b"{"
#: the member of every geometry
MARK = b'"wkb"'
_ROW = (
    b'{"before":null,"after":{"id":1,"tags":["a"],"geom":{"wkb":"%s","srid":4326}},'
    b'"source":{"connector":"postgresql","sequence":"[null,\\"7\\"]"},"op":"c"}'
)

EXAMPLES = (
    *(_ROW % example for example in wkb.BASE64_EXAMPLES),
    b'{"schema":{"type":"struct","fields":[]},"payload":' + _ROW % wkb.BASE64_EXAMPLES[1] + b"}",
    b'{"before":{"id":1},"after":null,"op":"d"}',
)


def nested(levels: int) -> bytes:
    """Return an event with a point inside so many collections."""
    return _ROW % wkb.nested_base64(levels)


def recognise(_value: bytes, document: Any) -> bool:
    """Whether a value is a change event, bare or beside its schema."""
    if type(document) is not dict:
        return False
    body = document.get("payload") if "schema" in document else document
    return type(body) is dict and "op" in body and ("after" in body or "before" in body)


def counted_vertices(value: bytes) -> int:
    """Return what the whole value would hold if it were base64; 0 where no geometry is.

    Examples
    --------
    >>> [counted_vertices(value) for value in EXAMPLES]
    [9, 11, 14, 12, 13, 0]
    """
    return wkb.counted_vertices_base64(value) if MARK in value else 0
