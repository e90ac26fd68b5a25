"""One handler process as the parent sees it: its socket, its slots, what is inside it.

Owns the starting, sending, receiving and ending of one child. Which chunk goes where, and when a
process is started or killed, is decided elsewhere; waiting for several at once is ``pool``'s.

Rules: nothing here blocks. The socket is read without waiting, and what is sent is one short
datagram. Children are started as new programs, never forked: the Kafka client's threads would not
survive that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from consumer.core.commands import Chunk
from consumer.core.events import ChunkOutcome
from consumer.errors import ProcessError
from consumer.processes import wire
from consumer.processes.slots import SLOTS_PER_PROCESS, Slot, large_memory, large_view

#: Each process is one of several: whatever it loads uses one thread. GDAL's cache is 5 % of the
#: machine's memory by default, in every process; here it is its floor, in megabytes.
ENVIRONMENT_DEFAULTS: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "GDAL_NUM_THREADS": "1",
    "GDAL_CACHEMAX": "64",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """A chunk came back."""

    chunk_id: int
    outcome: ChunkOutcome


class HandlerProcess:
    """One running child."""

    __slots__ = (
        "_free",
        "_held",
        "_popen",
        "_slots",
        "channel",
        "closed",
        "descriptor",
        "number",
        "pid",
        "ready",
        "refusal",
    )

    def __init__(
        self, number: int, handler: str, environment: Mapping[str, str], slots: Sequence[Slot]
    ) -> None:
        self.number = number
        #: whether the handler is open
        self.ready = False
        #: why the handler could not be opened
        self.refusal: str | None = None
        #: the child has closed its end: it has ended, or is of no use any more
        self.closed = False
        self._slots = slots
        self._free = list(range(len(slots)))
        #: chunk -> the slot that it occupies
        self._held: dict[int, int] = {}
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        try:
            self._popen = self._spawn(handler, environment, theirs)
        except OSError:
            self.channel.close()
            raise
        finally:
            theirs.close()
        self.pid = self._popen.pid
        #: readable when the process has ended, even if something else keeps the socket open
        try:
            self.descriptor = os.pidfd_open(self.pid)
        except OSError:
            self.kill()
            self._popen.wait()
            self.channel.close()
            raise

    def _spawn(
        self, handler: str, environment: Mapping[str, str], theirs: socket.socket
    ) -> subprocess.Popen[bytes]:
        descriptors = [theirs.fileno(), *(slot.descriptor for slot in self._slots)]
        arguments = [handler, os.getpid(), descriptors[0], self._slots[0].size_bytes]
        arguments += descriptors[1:]
        # The package may have been found on a path that the child would not have.
        home = str(Path(__file__).resolve().parents[2])
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        # A handler may lie in the working directory, but nothing there may hide this package.
        paths += [home, str(Path.cwd())]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "consumer.processes.child", *map(str, arguments)],
            env={
                **ENVIRONMENT_DEFAULTS,
                **environment,
                "PYTHONPATH": os.pathsep.join(paths),
            },
            stdin=subprocess.DEVNULL,
            # What a handler prints belongs to the log, not to the output of a report.
            stdout=2,
            stderr=2,
            pass_fds=descriptors,
            # Ctrl-C in a terminal is for the parent, which decides; and the group is killed whole.
            start_new_session=True,
        )

    @property
    def held(self) -> tuple[int, ...]:
        """The chunks inside, oldest first."""
        return tuple(self._held)

    def submit(self, chunk: Chunk) -> None:
        """Hand over a chunk.

        Raises
        ------
        ProcessError
            When both slots are taken.
        OSError
            When memory for a large chunk cannot be had.
        """
        if not self._free:
            raise ProcessError(self.number, f"both slots are taken by chunks {self.held}")
        packed = wire.pack_chunk(chunk)
        slot = self._free[-1]
        large = len(packed) > self._slots[slot].size_bytes
        message = wire.dump_message(
            wire.Work(
                chunk.chunk_id,
                sum(map(len, (part.columns for part in chunk.parts))),
                wire.LARGE if large else slot,
                len(packed),
                chunk.sample_bytes,
                chunk.trace_allocations,
            )
        )
        # A process that has just died is found out by its descriptor, with what it held.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if large:
                descriptor = large_memory(packed)
                try:
                    socket.send_fds(self.channel, [message], [descriptor])
                finally:
                    os.close(descriptor)
            else:
                self._slots[slot].write(packed)
                self.channel.send(message)
        self._free.pop()
        self._held[chunk.chunk_id] = slot

    def receive(self) -> Finished | wire.Ready | wire.NotOpened | None:
        """Return the next message, or None when there is none now (or ever again: ``closed``).

        Raises
        ------
        ProcessError
            When the child has sent what cannot be read.
        """
        try:
            data, descriptors, _flags, _address = socket.recv_fds(
                self.channel, wire.MESSAGE_BYTES, 1
            )
        except BlockingIOError:
            return None
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return None
        try:
            message = wire.load_message(data)
            if isinstance(message, wire.Done):
                return self._finished(message, descriptors)
        except (ValueError, TypeError, EOFError, LookupError) as error:
            raise ProcessError(self.number, f"sent what cannot be read: {error}") from None
        if isinstance(message, wire.NotOpened):
            self.refusal = message.text
        elif isinstance(message, wire.Ready):
            self.ready = True
        else:
            raise ProcessError(self.number, f"sent {type(message).__name__}")
        return message

    def _finished(self, done: wire.Done, descriptors: list[int]) -> Finished:
        slot = self._held.pop(done.chunk_id)
        self._free.append(slot)
        if done.slot == wire.INLINE:
            return Finished(done.chunk_id, wire.unpack_outcome(done.inline))
        memory = (
            large_view(descriptors[0], done.length_bytes)
            if done.slot == wire.LARGE
            else self._slots[slot].view(done.length_bytes)
        )
        with memory as view:
            return Finished(done.chunk_id, wire.unpack_outcome(view))

    def finish(self) -> None:
        """Ask the child to close its handler and exit, after what it holds."""
        with contextlib.suppress(OSError):
            self.channel.send(wire.dump_message(wire.Finish()))

    def kill(self) -> None:
        """Kill the child and everything that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> str:
        """Collect the ended child, and return how it ended, in words."""
        # Its group may have members left. Until it is reaped, the number cannot mean another.
        self.kill()
        code = self._popen.wait()
        os.close(self.descriptor)
        self.channel.close()
        return _cause(code)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def new_slots(size_bytes: int) -> list[Slot]:
    """Make the slots of one process."""
    return [Slot.create(size_bytes) for _ in range(SLOTS_PER_PROCESS)]
