"""How much memory processes use: proportional, resident, peak, and giving back what is free.

Owns the reading of /proc/<pid> for memory. The functions for the own process are called around
chunks inside handler processes, so they are short: one open, one read, one search.

A process that has vanished uses 0 bytes; that is no error.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
#: /proc/<pid>/status is under 2 KiB; smaps_rollup about 700 bytes.
_READ_BYTES: Final = 8192


def proportional_set_bytes(pids: Iterable[int], root: Path = Path("/")) -> int:
    """Return what processes use together, a page that n processes share counted as 1/n in each.

    Parameters
    ----------
    pids : iterable of int
        The processes.
    root : Path
        Root of the file system to read.

    Returns
    -------
    int
        Bytes. A process that has vanished counts 0; one whose share cannot be read (another
        user's, or a kernel before 4.14) counts its whole resident size.

    Notes
    -----
    Units: bytes.
    Summed resident sizes count what is shared once per process (124 to 135 MB summed where 83 to
    85 MB were in use). Walks the page tables: 0.1 to 0.3 ms for each 100 MB, so it belongs into
    a sampling interval and not around a chunk. Shared memory that no process has touched
    is not in it.

    Source
    ------
    /proc/<pid>/smaps_rollup, field Pss: proc(5).

    Examples
    --------
    >>> 0 < proportional_set_bytes([os.getpid()])
    True
    >>> proportional_set_bytes([])
    0
    """
    total_bytes = 0
    for pid in pids:
        share_bytes = _field_bytes(root / "proc" / str(pid) / "smaps_rollup", b"\nPss:")
        total_bytes += resident_bytes(pid, root) if share_bytes is None else share_bytes
    return total_bytes


def resident_bytes(pid: int | str = "self", root: Path = Path("/")) -> int:
    """Return the resident size of one process, shared pages included.

    Parameters
    ----------
    pid : int or str
        The process.
    root : Path
        Root of the file system to read.

    Returns
    -------
    int
        Bytes; 0 when the process has vanished.

    Notes
    -----
    Units: bytes.

    Source
    ------
    /proc/<pid>/statm, second field, in pages: proc(5).

    Examples
    --------
    >>> resident_bytes() > 1_000_000
    True
    """
    text = _read(f"{root}/proc/{pid}/statm")
    words = text.split() if text else []
    return int(words[1]) * _PAGE_BYTES if len(words) > 1 and words[1].isdigit() else 0


def data_bytes(pid: int | str = "self", root: Path = Path("/")) -> int:
    """Return what one process has set aside for data: what RLIMIT_DATA is compared with.

    Parameters
    ----------
    pid : int or str
        The process.
    root : Path
        Root of the file system to read.

    Returns
    -------
    int
        Bytes, used or not; 0 when the process has vanished.

    Notes
    -----
    Units: bytes.

    Source
    ------
    /proc/<pid>/status, field VmData: proc(5); setrlimit(2).

    Examples
    --------
    >>> data_bytes() > 1_000_000
    True
    """
    return _field_bytes(f"{root}/proc/{pid}/status", b"\nVmData:") or 0


def peak_resident_bytes(pid: int | str = "self", root: Path = Path("/")) -> int:
    """Return the largest resident size of one process since its last reset.

    Parameters
    ----------
    pid : int or str
        The process.
    root : Path
        Root of the file system to read.

    Returns
    -------
    int
        Bytes; the present resident size where the kernel keeps no peak; 0 when the process
        has vanished.

    Notes
    -----
    Units: bytes. Unlike ``ru_maxrss``, which is a maximum over the process's whole life, this
    starts anew with ``reset_peak``.

    Source
    ------
    /proc/<pid>/status, field VmHWM: proc(5).

    Examples
    --------
    >>> peak_resident_bytes() > 1_000_000
    True
    """
    peak_bytes = _field_bytes(f"{root}/proc/{pid}/status", b"\nVmHWM:")
    return resident_bytes(pid, root) if peak_bytes is None else peak_bytes


def reset_peak(pid: int | str = "self", root: Path = Path("/")) -> bool:
    """Let the peak of a process start anew from its present resident size.

    Parameters
    ----------
    pid : int or str
        The process.
    root : Path
        Root of the file system to write to.

    Returns
    -------
    bool
        False where that is not allowed (/proc mounted read-only, a foreign process); the peak
        is then a lifetime maximum.

    Source
    ------
    /proc/<pid>/clear_refs, value 5: proc(5).
    """
    try:
        descriptor = os.open(f"{root}/proc/{pid}/clear_refs", os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(descriptor, b"5")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def trim() -> bool:
    """Give the free pages of the C allocator back to the system.

    Without it the growth over "resident before" reads 0 where the allocator has kept free pages.

    Returns
    -------
    bool
        Whether anything was given back; False where the C library cannot do it (musl).

    Source
    ------
    malloc_trim(3) of the GNU C library.
    """
    give_back = getattr(_c_library(), "malloc_trim", None)
    return give_back is not None and bool(give_back(ctypes.c_size_t(0)))


@functools.cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _field_bytes(path: str | Path, name: bytes) -> int | None:
    """Return the field of a kernel file that is written as a name and a number of kB."""
    text = _read(path)
    at = text.find(name) if text else -1
    if text is None or at < 0:
        return None
    # A number longer than this is none that a kernel writes.
    word = text[at + len(name) : at + len(name) + 64].split(None, 1)[:1]
    return int(word[0]) * 1024 if word and word[0].isdigit() else None


def _read(path: str | Path) -> bytes | None:
    # Plain descriptors: a third of the time of a buffered file object.
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
