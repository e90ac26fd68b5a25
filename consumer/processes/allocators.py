"""How many bytes the allocators of this process have given out and not got back.

Owns the reading of two allocators: Python's own for small objects, and the C library's for all
else (numpy, GEOS, large objects). Together they are what is in use, whatever the process keeps.

The growth of the resident size cannot see memory that a process had kept free. The C library gives
it back when asked; Python's allocator does not as long as one object lives in each megabyte, and
some 5 MB stay with every process: all that a chunk of a few thousand vertices needs.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable

_IN_USE = re.compile(rb"# bytes in allocated blocks\s*=\s*([\d,]+)")


class _Mallinfo2(ctypes.Structure):
    """Result of mallinfo2(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def in_use_bytes() -> int:
    """Return the bytes in use in this process; an allocator that does not tell counts 0.

    Notes
    -----
    Units: bytes. 20 to 200 microseconds. Only differences are meaningful.

    Source
    ------
    mallinfo2(3), glibc 2.33 or later; CPython's ``sys._debugmallocstats``, whose C function
    (exported for tools such as this) can write elsewhere than to standard error.

    Examples
    --------
    >>> before = in_use_bytes()
    >>> held = [float(number) for number in range(100_000)]
    >>> in_use_bytes() - before > 2_400_000
    True
    """
    return sum(read() for read in _readers())


@functools.cache
def _readers() -> tuple[Callable[[], int], ...]:
    return tuple(
        reader for make in (_malloc_reader, _python_reader) if (reader := make()) is not None
    )


def _malloc_reader() -> Callable[[], int] | None:
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    mallinfo2.argtypes = []
    mallinfo2.restype = _Mallinfo2

    def read() -> int:
        info = mallinfo2()
        # What was mapped for a single large block is counted apart.
        return int(info.uordblks + info.hblkhd)

    return read


def _python_reader() -> Callable[[], int] | None:
    try:
        library = ctypes.CDLL(None)
        open_memstream, fclose, free = library.open_memstream, library.fclose, library.free
        write_statistics = ctypes.pythonapi._PyObject_DebugMallocStats  # noqa: SLF001
    except (OSError, AttributeError):
        return None
    open_memstream.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
    open_memstream.restype = ctypes.c_void_p
    for function in (fclose, free, write_statistics):
        function.argtypes = [ctypes.c_void_p]

    def read() -> int:
        text, length = ctypes.c_void_p(), ctypes.c_size_t()
        stream = open_memstream(ctypes.byref(text), ctypes.byref(length))
        if not stream:
            return 0
        write_statistics(stream)
        fclose(stream)
        found = _IN_USE.search(ctypes.string_at(text, length.value)) if text.value else None
        free(text)
        return int(found[1].replace(b",", b"")) if found else 0

    return read
