"""Memory of the worker and of its processes, on real processes."""

from __future__ import annotations

import subprocess
import sys

from consumer.runtime.host import HostMemory

MIB = 1024 * 1024

#: Says that it is ready, waits for a line, and then takes as many MiB as its argument says.
CHILD = """
import sys
print("ready", flush=True)
sys.stdin.readline()
try:
    block = bytearray(int(sys.argv[1]) << 20)
except MemoryError:
    print("MemoryError", flush=True)
else:
    print(len(block) >> 20, flush=True)
"""


def memory(limit_bytes: int) -> HostMemory:
    """Return a host of which 100 MiB are taken at rest and 10 MiB by the prefetch."""
    return HostMemory(
        limit_bytes,
        lambda: (),
        parent_at_rest_bytes=40 * MIB,
        parent_slots_bytes=0,
        processes_at_rest_bytes=60 * MIB,
        prefetch_bytes=10 * MIB,
    )


def answer_of_confined(host: HostMemory, wanted_mib: int, *, raised: bool = False) -> str:
    """Return what a child says that was confined before it took memory."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(wanted_mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        host.confine(child.pid)
        if raised:
            host.confine(child.pid, raised=True)
        child.stdin.write("go\n")
        child.stdin.flush()
        return child.stdout.readline().strip()


def test_process_that_takes_more_than_the_rest_gets_a_memory_error() -> None:
    """A process may grow by nine tenths of what nobody has at rest: 0.9 * (510 - 110) = 360."""
    host = memory(510 * MIB)
    assert answer_of_confined(host, 300) == "300"
    assert answer_of_confined(host, 400) == "MemoryError"


def test_raised_limit_is_twice_the_growth() -> None:
    """A record for which memory ran short gets 2 * 360 MiB, and a process may be raised later."""
    host = memory(510 * MIB)
    assert answer_of_confined(host, 650, raised=True) == "650"
    assert answer_of_confined(host, 760, raised=True) == "MemoryError"


def test_confining_a_process_that_has_ended_is_no_error() -> None:
    """A process may die between its last word and the limit."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    memory(510 * MIB).confine(child.pid)


def test_growth_that_nothing_explains_counts_in_steps() -> None:
    """The parent is far above what it is said to have at rest: the baseline is no lower."""
    reading = memory(4096 * MIB).sample(held_bytes=0.0)
    grown = reading.baseline_bytes - 100 * MIB
    assert grown >= 0
    assert grown % (4 * MIB) == 0
    assert reading.used_bytes > 0
    assert reading.limit_bytes == 4096 * MIB
