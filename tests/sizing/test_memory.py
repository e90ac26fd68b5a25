"""Memory of processes: recorded /proc files, and the real ones of this process."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sizing.memory import (
    data_bytes,
    peak_resident_bytes,
    proportional_set_bytes,
    reset_peak,
    resident_bytes,
    trim,
)

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
ROLLUP = """\
55db7de67000-7ffd49e95000 ---p 00000000 00:00 0                          [rollup]
Rss:              {rss} kB
Pss:              {pss} kB
Pss_Dirty:           112 kB
SwapPss:               9 kB
"""


def process(root: Path, pid: int | str, files: dict[str, str]) -> None:
    """Write the files of one process."""
    (root / "proc" / str(pid)).mkdir(parents=True)
    for name, text in files.items():
        (root / "proc" / str(pid) / name).write_text(text)


def test_shares_are_added_up(tmp_path: Path) -> None:
    """Pss of both processes, (3,000 + 2,000) * 1,024; not Rss, and not Pss_Dirty."""
    process(tmp_path, 10, {"smaps_rollup": ROLLUP.format(rss=9000, pss=3000)})
    process(tmp_path, 11, {"smaps_rollup": ROLLUP.format(rss=9000, pss=2000)})
    assert proportional_set_bytes([10, 11], tmp_path) == 5000 * 1024


def test_a_process_whose_share_is_unreadable_counts_its_resident_size(tmp_path: Path) -> None:
    """The second field of statm is in pages."""
    process(tmp_path, 10, {"smaps_rollup": ROLLUP.format(rss=9000, pss=3000)})
    process(tmp_path, 11, {"statm": "5000 120 30 1 0 400 0\n"})
    assert proportional_set_bytes([10, 11], tmp_path) == 3000 * 1024 + 120 * PAGE


def test_a_vanished_process_counts_nothing(tmp_path: Path) -> None:
    """No directory, or the empty files of a zombie."""
    process(tmp_path, 11, {"smaps_rollup": "", "statm": "0 0 0 0 0 0 0\n", "status": "Name:\tx\n"})
    assert proportional_set_bytes([10, 11], tmp_path) == 0
    assert resident_bytes(10, tmp_path) == 0
    assert peak_resident_bytes(11, tmp_path) == 0


@pytest.mark.parametrize("text", ["", "x", "1\n", "1 garbage\n", "\nPss:"])
def test_garbage_says_nothing(tmp_path: Path, text: str) -> None:
    """Odd contents count 0 and never raise."""
    process(tmp_path, 10, {"smaps_rollup": text, "statm": text, "status": text})
    assert proportional_set_bytes([10], tmp_path) == 0
    assert peak_resident_bytes(10, tmp_path) == 0


def test_peak_is_read_from_status(tmp_path: Path) -> None:
    """VmHWM in kB; the present size where the kernel keeps none."""
    process(tmp_path, 10, {"status": "Name:\tpython\nVmPeak:\t  9 kB\nVmHWM:\t  4321 kB\n"})
    process(tmp_path, 11, {"status": "Name:\tpython\n", "statm": "9 7 1\n"})
    assert peak_resident_bytes(10, tmp_path) == 4321 * 1024
    assert peak_resident_bytes(11, tmp_path) == 7 * PAGE


def test_reset_of_a_process_that_is_not_there(tmp_path: Path) -> None:
    """Nothing to write to is not allowed, and no error."""
    assert reset_peak(10, tmp_path) is False


def test_the_real_peak_starts_anew() -> None:
    """After a reset the peak is near the present size, and grows with what is touched."""
    block = mmap.mmap(-1, 64 * MIB)
    block.write(b"x" * (64 * MIB))
    block.close()
    before_bytes = resident_bytes()
    assert peak_resident_bytes() >= before_bytes
    if not reset_peak():
        pytest.skip("the peak of this process cannot be reset here")
    assert peak_resident_bytes() < before_bytes + 16 * MIB
    block = mmap.mmap(-1, 64 * MIB)
    for at in range(0, 64 * MIB, mmap.PAGESIZE):
        block[at] = 1
    block.close()
    assert peak_resident_bytes() > before_bytes + 48 * MIB


def test_shared_pages_count_once() -> None:
    """A child that shares 64 MiB with this process adds little to the proportional sum."""
    descriptor = os.memfd_create("shared")
    os.ftruncate(descriptor, 64 * MIB)
    block = mmap.mmap(descriptor, 64 * MIB)
    block.write(b"x" * (64 * MIB))
    alone_bytes = proportional_set_bytes([os.getpid()])
    code = f"""
import mmap
block = mmap.mmap({descriptor}, {64 * MIB})
total = sum(block[at] for at in range(0, {64 * MIB}, mmap.PAGESIZE))
print("touched", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[descriptor],
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"touched\n"
        assert resident_bytes(child.pid) >= 64 * MIB
        together_bytes = proportional_set_bytes([os.getpid(), child.pid])
        child.communicate(b"\n", timeout=20)
    block.close()
    os.close(descriptor)
    assert together_bytes < alone_bytes + 32 * MIB


def test_trim_can_be_asked_of_any_process() -> None:
    """Here as well, where it may have nothing to give."""
    assert trim() in {True, False}
    assert resident_bytes() > 0


def test_trim_gives_free_pages_back() -> None:
    """Freed small blocks below one that is kept return to the system."""
    code = """
import ctypes
from sizing.memory import resident_bytes, trim
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [
    ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
blocks = [libc.malloc(100_000) for _ in range(400)]
for block in blocks:
    libc.memset(block, 1, 100_000)
for block in blocks[:-1]:
    libc.free(block)
before = resident_bytes()
print(trim(), (before - resident_bytes()) >> 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    given_back, mebibytes = done.stdout.split()
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        assert trim() is False
        pytest.skip("this C library cannot give memory back")
    assert given_back == "True"
    assert int(mebibytes) > 30


def test_data_is_read_from_status(tmp_path: Path) -> None:
    """VmData in kB; nothing of a process that has vanished."""
    process(tmp_path, 10, {"status": "Name:\tpython\nVmData:\t  4321 kB\nVmStk:\t 9 kB\n"})
    assert data_bytes(10, tmp_path) == 4321 * 1024
    assert data_bytes(11, tmp_path) == 0


def test_a_process_may_be_called_by_a_number(tmp_path: Path) -> None:
    """Where the field is missing, no other number is taken for it; two words of statm will do."""
    process(tmp_path, 10, {"status": "Name:\t1234\n", "statm": "9 7\n"})
    assert peak_resident_bytes(10, tmp_path) == 7 * PAGE


def test_a_reset_writes_five(tmp_path: Path) -> None:
    """What the kernel takes for "peak from now on", for the own process unless told otherwise."""
    for pid in ("self", "10"):
        process(tmp_path, pid, {"clear_refs": ""})
    assert reset_peak(root=tmp_path) is True
    assert (tmp_path / "proc/self/clear_refs").read_text() == "5"
    assert (tmp_path / "proc/10/clear_refs").read_text() == ""
    assert reset_peak(10, tmp_path) is True


def test_a_reset_that_is_refused_is_no_error(tmp_path: Path) -> None:
    """It may be allowed to open the file and not to write to it."""
    process(tmp_path, 10, {})
    (tmp_path / "proc/10/clear_refs").symlink_to("/dev/full")
    assert reset_peak(10, tmp_path) is False


def test_a_directory_in_the_place_of_a_file_says_nothing(tmp_path: Path) -> None:
    """It can be opened and not read."""
    process(tmp_path, 10, {})
    (tmp_path / "proc/10/statm").mkdir()
    assert resident_bytes(10, tmp_path) == 0
