"""What a record weighs before anything of it is decoded.

Owns three figures over raw bytes: an upper count of vertices, the payload's size, a hash of the
key. Decodes nothing and never raises. The count may be too high and is never too low: a record is
charged by it before anyone knows what is inside. Speed is that of a comprehension, about
0.14 microseconds a record, because every record of the stream passes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_OPEN_BRACE = 0x7B
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
            (value.count(b"[") if value and value[0] == _OPEN_BRACE else 0) or _count_odd(value)
            for value in values
        ],
        dtype=np.int64,
    )


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
    if start[:2] in (b"AA", b"AQ"):
        return _of_base64(value)
    if start[:1].isalpha():
        # WKT: a vertex follows an opening parenthesis or a comma.
        return value.count(b",") + value.count(b"(")
    return len(value) // _LEAST_BYTES_PER_VERTEX + 1


def _of_base64(value: bytes) -> int:
    return len(value) * 3 // (4 * _WKB_BYTES_PER_VERTEX) + 1


def _lengths(values: Sequence[bytes | None]) -> NDArray[np.int64]:
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:  # a None among them
        return np.array([len(value) if value else 0 for value in values], dtype=np.int64)


def payload_sizes(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Mapping[int, Iterable[tuple[str, bytes | None]]],
) -> NDArray[np.int64]:
    """Return the bytes of value, key and headers of each record.

    Parameters
    ----------
    values : sequence of bytes or None
    keys : sequence of bytes or None, or None when every key is null
    headers : mapping
        Sparse: index -> (name, value) pairs.

    Examples
    --------
    >>> payload_sizes([b"abc", None], [b"k", None], {1: [("h", b"xy")]}).tolist()
    [4, 3]
    """
    sizes = _lengths(values)
    if keys is not None:
        sizes += _lengths(keys)
    for index, pairs in headers.items():
        sizes[index] += sum(len(name) + (len(value) if value else 0) for name, value in pairs)
    return sizes


def key_hashes(
    keys: Sequence[bytes | None],
) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """Return a stable hash of each key, and which keys are null.

    Parameters
    ----------
    keys : sequence of bytes or None

    Returns
    -------
    hashes : ndarray of int64, or None
        CRC-32, the same in every process and run; None when every key is null.
    null_keys : ndarray of bool, or None
        Which keys are null, when some are and some are not; their hash is 0.

    Examples
    --------
    >>> hashes, null = key_hashes([b"a", None])
    >>> hashes.tolist(), null.tolist()
    ([3904355907, 0], [False, True])
    >>> key_hashes([None, None])
    (None, None)
    """
    try:
        return np.fromiter(map(crc32, keys), np.int64, len(keys)), None  # type: ignore[arg-type]
    except TypeError:  # a None among them
        null = np.array([key is None for key in keys], dtype=np.bool_)
    if null.all():
        return None, None
    hashes = np.array([0 if key is None else crc32(key) for key in keys], dtype=np.int64)
    return hashes, null
