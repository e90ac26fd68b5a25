"""What the modules of several formats need to know of a raw value: its start, its densest text.

Knows no format.
"""

from __future__ import annotations

_WHITESPACE = b" \t\r\n"
_UTF8_MARK = b"\xef\xbb\xbf"
#: what is perhaps not the first byte
_SKIPPED = _WHITESPACE + _UTF8_MARK[:1]
#: enough for any word or magic number
_START_BYTES = 64
#: the shortest vertex of any text: "0 0,"
_LEAST_BYTES_PER_VERTEX = 4


def text_start(value: bytes) -> bytes:
    """Return the first bytes of a value without leading whitespace, 64 at most.

    Examples
    --------
    >>> text_start(b"  POINT (1 2)")
    b'POINT (1 2)'
    """
    return value[:_START_BYTES].lstrip(_WHITESPACE)


def first_byte(value: bytes) -> int | None:
    """Return the first byte behind all whitespace and a byte order mark; None where there is none.

    Examples
    --------
    >>> chr(first_byte(b" " * 1000 + b"{}")), first_byte(b"  ")
    ('{', None)
    """
    if value and value[0] not in _SKIPPED:
        return value[0]
    start = value[:_START_BYTES].lstrip(_WHITESPACE) or value.lstrip(_WHITESPACE)[:_START_BYTES]
    start = start.removeprefix(_UTF8_MARK)
    return start[0] if start else None


def densest_text_vertices(value: bytes) -> int:
    """Return the most vertices that a text of this length can have.

    Examples
    --------
    >>> densest_text_vertices(b"0 0,1 1,2 2")
    3
    """
    return len(value) // _LEAST_BYTES_PER_VERTEX + 1
