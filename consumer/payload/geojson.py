"""The format GeoJSON: geometry and Feature.

Owns its upper count and its samples. ``consumer.payload.geojson_scan`` reads it, for all records of a
chunk together, and is not needed to count.
"""

from __future__ import annotations

import numpy as np

#: An array is JSON and no GeoJSON.
STARTS = b"{["
#: from this length on, numpy counts faster than ``bytes.count``
LONG_BYTES = 4096
_OPEN_BRACKET = 0x5B

EXAMPLES = (
    b'{"type":"Point","coordinates":[1.5,-2]}',
    b'{"type":"Feature","id":"a","properties":{"v":[7]},"geometry":'
    b'{"type":"LineString","coordinates":[[0,0,1],[1e2,1,2],[2,-1.25,3]]}}',
    b'{"type":"Feature","properties":null,"geometry":null}',
    b'{"type":"MultiPolygon","coordinates":[[[[0,0],[4,0],[4,4],[0,0]],[[1,1],[2,1],[2,2],[1,1]]]]}',
    b'{"type":"GeometryCollection","geometries":[{"type":"MultiPoint","coordinates":[[0,0],[1,1]]}]}',
)


def nested(levels: int) -> bytes:
    """Return a point inside so many collections."""
    opened = b'{"type":"GeometryCollection","geometries":['
    return opened * levels + EXAMPLES[0] + b"]}" * levels


def counted_vertices(value: bytes) -> int:
    """Return the opening brackets of a JSON text.

    Each position opens one of its own, and a bracket cannot be written otherwise outside a
    string. Rings, arrays of properties and brackets inside strings count as well, so a polygon is
    over by its rings plus one.

    Examples
    --------
    >>> [counted_vertices(value) for value in EXAMPLES]
    [1, 5, 0, 12, 4]
    """
    return value.count(b"[") if len(value) < LONG_BYTES else count_long(value)


def count_long(value: bytes) -> int:
    """Count the brackets of a long value: three times as fast from ``LONG_BYTES`` on."""
    return int(np.count_nonzero(np.frombuffer(value, np.uint8) == _OPEN_BRACKET))
