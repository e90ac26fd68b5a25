"""What a record weighs before anything of it is decoded.

Owns two figures over raw bytes: an upper count of vertices, and a hash of the key. Decodes nothing and never raises. The count may be too high and is never too low: a record is
charged by it before anyone knows what is inside. Speed is that of a comprehension, about
0.14 microseconds a record, because every record of the stream passes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_OPEN_BRACE = 0x7B
_OPEN_BRACKET = 0x5B
#: from this length on, numpy counts faster than ``bytes.count``
_LONG_BYTES = 4096
_WHITESPACE = b" \t\r\n"
_UTF8_MARK = b"\xef\xbb\xbf"
#: bytes of one vertex where nothing surrounds it: two doubles
_WKB_BYTES_PER_VERTEX = 16
#: the shortest vertex of any text: "0 0,"
_LEAST_BYTES_PER_VERTEX = 4


def counted_vertices(values: Sequence[bytes | None]) -> NDArray[np.int64]:
    """Return an upper count of the vertices in each raw value.

    Parameters
    ----------
    values : sequence of bytes or None
        Record values; None (a tombstone) counts 0.

    Returns
    -------
    ndarray of int64, shape (n,)
        Never below ``shapely.get_num_coordinates`` of what the value decodes to.

    Notes
    -----
    In JSON each position opens one bracket of its own, and a bracket cannot be written otherwise
    outside a string. Rings, arrays of properties and brackets inside strings count as well, so
    a polygon is over by its rings plus one.

    Examples
    --------
    >>> counted_vertices([b'{"type":"Point","coordinates":[1,2]}', None]).tolist()
    [1, 0]
    >>> counted_vertices([b"LINESTRING(0 0,1 1,2 2)"]).tolist()
    [3]
    """
    # A JSON object with a bracket is the common case; everything else takes the longer way.
    return np.array(
        [
            (
                (value.count(b"[") if len(value) < _LONG_BYTES else _count_long(value))
                if value and value[0] == _OPEN_BRACE
                else 0
            )
            or _count_odd(value)
            for value in values
        ],
        dtype=np.int64,
    )


def _count_long(value: bytes) -> int:
    """Count the brackets of a long value: three times as fast from there on."""
    return int(np.count_nonzero(np.frombuffer(value, np.uint8) == _OPEN_BRACKET))


def _count_odd(value: bytes | None) -> int:
    """Count a value that is not plainly a JSON object, as the densest thing it can be."""
    if not value:
        return 0
    start = value[:64].lstrip(_WHITESPACE) or value.lstrip(_WHITESPACE)[:64]
    start = start.removeprefix(_UTF8_MARK)
    if start[:1] in (b"{", b"["):
        brackets = value.count(b"[")
        # A change event carries its geometry as base64 text.
        return max(brackets, _of_base64(value)) if b'"wkb"' in value else brackets
    if start[:2] in (b"00", b"01"):
        return len(value) // (2 * _WKB_BYTES_PER_VERTEX) + 1
    if start[:1] in (b"\x00", b"\x01"):
        # Byte order of WKB, or the first byte of a schema registry's frame around JSON.
        return max(len(value) // _WKB_BYTES_PER_VERTEX + 1, value.count(b"["))
    if start[:1] == b"A":  # the base64 of a zero or a one; no word of WKT begins so
        return _of_base64(value)
    if start[:1].isalpha():
        # WKT: a vertex follows an opening parenthesis or a comma.
        return value.count(b",") + value.count(b"(")
    return len(value) // _LEAST_BYTES_PER_VERTEX + 1 if start else 0


def _of_base64(value: bytes) -> int:
    return len(value) * 3 // (4 * _WKB_BYTES_PER_VERTEX) + 1


def key_hashes(keys: Sequence[bytes | None]) -> NDArray[np.int64]:
    """Return a stable hash of each key.

    Parameters
    ----------
    keys : sequence of bytes or None

    Returns
    -------
    ndarray of int64, shape (n,)
        CRC-32, the same in every process and run; 0 for a null key.

    Examples
    --------
    >>> key_hashes([b"a", None]).tolist()
    [3904355907, 0]
    """
    try:
        return np.fromiter(map(crc32, keys), np.int64, len(keys))  # type: ignore[arg-type]
    except TypeError:  # a None among them
        return np.array([0 if key is None else crc32(key) for key in keys], dtype=np.int64)
