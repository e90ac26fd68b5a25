"""Shared memory between the parent and one handler process.

Owns the two slots of a process and the memory of a single large chunk. A slot is an anonymous
file (``memfd_create``): not limited by the size of /dev/shm, gone with its last descriptor.

Rules: the pages of a slot are taken at the start, so that they are part of the baseline and not a
growth seen later. A slot is written by one side at a time: the parent fills it, the child reads
it, and the child may write its result over it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: A chunk's raw bytes (2 MiB at most), its keys, offsets and framing.
DEFAULT_SLOT_BYTES = 3 * 1024 * 1024
SLOTS_PER_PROCESS = 2


class Slot:
    """One slot: a descriptor that both sides map."""

    __slots__ = ("_map", "descriptor", "size_bytes")

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        self._map = mmap.mmap(
            descriptor, size_bytes, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        )

    @classmethod
    def create(cls, size_bytes: int) -> Slot:
        """Make a new slot (the parent does)."""
        descriptor = os.memfd_create("vertex-budget-slot", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size_bytes)
            return cls(descriptor, size_bytes)
        except OSError:
            os.close(descriptor)
            raise

    def write(self, data: bytes) -> None:
        """Put data at the start of the slot; it must fit."""
        self._map[: len(data)] = data

    @contextmanager
    def view(self, length_bytes: int) -> Iterator[memoryview]:
        """Give a view of what was written."""
        with memoryview(self._map) as whole, whole[:length_bytes] as part:
            yield part

    def close(self) -> None:
        """Unmap and close."""
        self._map.close()
        os.close(self.descriptor)


def large_memory(data: bytes) -> int:
    """Return the descriptor of memory of its own that holds data too large for a slot."""
    descriptor = os.memfd_create("vertex-budget-large", os.MFD_CLOEXEC)
    try:
        with memoryview(data) as rest:
            written = 0
            while written < len(data):
                written += os.write(descriptor, rest[written:])
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def large_view(descriptor: int, length_bytes: int) -> Iterator[memoryview]:
    """Give a view of memory made by ``large_memory``, and close it afterwards."""
    try:
        with (
            mmap.mmap(descriptor, length_bytes, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            yield view
    finally:
        os.close(descriptor)
