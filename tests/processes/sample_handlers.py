"""Handlers for the tests: each does one thing to the process that it runs in.

A record says by its property ``do`` what is to happen to it. ``GATE`` names a file that a handler
waits for, so that a test decides when a chunk ends.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import shapely

from consumer.batch import OutputRecord, Retry

not_a_handler = 7


def nothing(batch):
    """Do nothing."""


def raises(error):
    """Return what raises an error, whatever the record."""

    def act(_batch, _index):
        raise error

    return act


def hangs(_batch, _index):
    """Hang so that no signal helps that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sleeps_forever()


def raises_its_offset(batch, index):
    """Raise an error that names the record."""
    text = f"cannot handle offset {batch.records[index].offset}"
    raise ValueError(text)


def sockets():
    """Return the descriptors of sockets: the only one is that to the parent."""
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.is_socket()]


def sends_rubbish(_batch, _index):
    """Send the parent what is no message."""
    for descriptor in sockets():
        os.write(descriptor, b"\xff" * 100)
    sleeps_forever()


def hangs_up(_batch, _index):
    """Close the connection to the parent, and live on."""
    for descriptor in sockets():
        os.close(descriptor)
    sleeps_forever()


ACTS = {
    "rubbish": sends_rubbish,
    "hang-up": hangs_up,
    "": lambda _batch, _index: None,
    "raise": raises_its_offset,
    "kill": lambda _batch, _index: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda _batch, _index: os._exit(9),
    "system-exit": lambda _batch, _index: sys.exit(1),
    "hang": hangs,
    "fail": lambda batch, index: batch.fail(index, "not-wanted", "of no use here"),
    "fail-in-words": lambda batch, index: batch.fail(index, "Not wanted: 17"),
    "retry": lambda batch, index: batch.retry(index, "later"),
    "retry-all": raises(Retry("database is away")),
    "connection": raises(ConnectionResetError()),
    "memory": raises(MemoryError()),
    "geos-memory": raises(shapely.errors.GEOSException("std::bad_alloc")),
}


def acts(batch):
    """Do what each record says."""
    for index in range(len(batch)):
        ACTS[batch.properties(index).get("do", "")](batch, index)


def echo(batch):
    """Return each record's value, its key and its place."""
    for index, record in enumerate(batch.records):
        place = f"{record.topic}/{record.partition}/{record.offset}/{record.timestamp_ms}"
        yield OutputRecord(
            index, record.value, headers=[("place", place.encode()), *record.headers]
        )


def settles_then_raises(batch):
    """Settle three records, then raise for all others, every time."""
    for index, record in enumerate(batch.records):
        batch.output(index, b"out")
        if record.offset == 0:
            batch.done(index)
        if record.offset == 1:
            batch.fail(index, "bad")
        if record.offset == 2:
            batch.retry(index)
    if len(batch) > 1:
        raise RuntimeError


def large_result(batch):
    """Return more than a slot holds."""
    for index in range(len(batch)):
        yield index, b"x" * 100_000


def returns_a_number(batch):
    """Return something that is no output."""
    return len(batch)


def returns_a_bad_output(batch):
    """Return an output whose value is no payload."""
    return [(0, {"a": 1})]


def waits_for_gate(batch):
    """Say that the chunk is inside, and wait until the gate is open."""
    gate = Path(os.environ["GATE"])
    gate.with_suffix(f".{os.getpid()}").touch()
    while not gate.exists():
        time.sleep(0.005)


def starts_a_program(batch):
    """Start a program that would outlive the process, and hang."""
    program = subprocess.Popen(["sleep", "600"])
    Path(os.environ["GATE"]).with_suffix(".pid").write_text(str(program.pid))
    sleeps_forever()


def sleeps_forever():
    while True:
        time.sleep(60)


def keeps_decoded(batch):
    """Touch every coordinate, as a real handler does."""
    total = 0.0
    for geometry in batch.geometries:
        total += float(np.sum(shapely.get_coordinates(geometry)))
    assert math.isfinite(total)


def allocates(batch):
    """Hold 64 MiB while it runs."""
    held = np.ones(64 * 1024 * 1024 // 8)
    assert held[-1] == 1


def prints(batch):
    """Write to standard output."""
    print("a word from the handler")  # noqa: T201


class WithLife:
    """Writes what is called into a file."""

    def open(self):
        self.log = Path(os.environ["GATE"])
        self.write("open")

    def write(self, word):
        with self.log.open("a") as file:
            file.write(word + "\n")

    def handle(self, batch):
        self.write(f"handle {len(batch)}")

    def close(self):
        self.write("close")


class Asynchronous:
    """Uses one event loop from open to close."""

    async def open(self):
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[int] = asyncio.Queue()

    async def handle(self, batch):
        assert asyncio.get_running_loop() is self.loop
        await asyncio.gather(*(self.queue.put(index) for index in range(len(batch))))
        return [(self.queue.get_nowait(), b"async") for _ in range(len(batch))]

    async def close(self):
        assert asyncio.get_running_loop() is self.loop
        Path(os.environ["GATE"]).touch()  # noqa: ASYNC240


class DoesNotOpen:
    """Cannot open."""

    def open(self):
        raise ConnectionRefusedError(111, "no database at db:5432")

    def handle(self, batch):
        """Handle nothing."""


class OpensOnce:
    """Opens in the first process that tries, and in none after it."""

    def open(self):
        with Path(os.environ["GATE"]).open("x"):
            pass

    def handle(self, batch):
        acts(batch)


class NoHandle:
    """Has no handle."""


instance = WithLife()
