"""The handler processes of one worker, as the driver uses them.

Owns the children, their slots, and waiting for all of them at once. It carries out what the core
decides (start, submit, kill) and reports what happened as the core's events; it never starts,
restarts or kills a process on its own, but for one that can no longer be talked to.

Rules: used by one thread, which nothing here keeps for longer than ``poll`` is told to wait. That
thread must live as long as the children: they die with the thread that started them.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from consumer.core.commands import Chunk
from consumer.core.events import ChunkFinished, ProcessDied, ProcessReady
from consumer.errors import HandlerOpenError, ProcessError
from consumer.processes import wire
from consumer.processes.process import Finished, HandlerProcess, new_slots
from consumer.processes.slots import DEFAULT_SLOT_BYTES, Slot

PoolEvent: TypeAlias = ProcessReady | ProcessDied | ChunkFinished

_CHANNEL = "channel"
_ENDED = "ended"


class ProcessPool:
    """P handler processes.

    Parameters
    ----------
    handler : str
        ``module:name``.
    count : int
        Processes, numbered from 0. None is started yet: see ``start``.
    environment : mapping
        The whole environment of the children, but for thread limits, which are added.
    slot_bytes : int, optional
        Bytes of one slot; each process has two. A larger chunk gets memory of its own.
    clock : callable, optional
        Monotonic seconds, for the events.
    """

    def __init__(
        self,
        handler: str,
        count: int,
        *,
        environment: Mapping[str, str],
        slot_bytes: int = DEFAULT_SLOT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handler = handler
        self._environment = dict(environment)
        self._slot_bytes = slot_bytes
        self._clock = clock
        self._slots: list[list[Slot]] = [[] for _ in range(count)]
        self._processes: dict[int, HandlerProcess] = {}
        self._pending: list[PoolEvent] = []
        self._selector = selectors.DefaultSelector()
        #: a handler that opened once is sound; a later failure to open is a passing one
        self._has_opened = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running children."""
        return tuple(process.pid for process in self._processes.values())

    def pid(self, process: int) -> int | None:
        """Process id of one child; None when it does not run."""
        found = self._processes.get(process)
        return None if found is None else found.pid

    def start(self, process: int) -> None:
        """Start a process; ``ProcessReady`` or ``ProcessDied`` follows.

        Raises
        ------
        ProcessError
            When it runs already.
        """
        if process in self._processes:
            raise ProcessError(process, "runs already")
        try:
            if not self._slots[process]:
                self._slots[process] = new_slots(self._slot_bytes)
            started = HandlerProcess(
                process, self._handler, self._environment, self._slots[process]
            )
        except OSError as error:
            cause = f"could not be started: {error.strerror or error}"
            self._pending.append(ProcessDied(self._clock(), process, cause))
            return
        self._processes[process] = started
        self._selector.register(started.channel, selectors.EVENT_READ, (started, _CHANNEL))
        self._selector.register(started.descriptor, selectors.EVENT_READ, (started, _ENDED))

    def submit(self, process: int, chunk: Chunk) -> None:
        """Hand a chunk to a process that has a free slot; ``ChunkFinished`` follows, in order.

        A process that has died meanwhile is no error: ``ProcessDied`` follows instead. The same
        holds when memory for a large chunk cannot be had.

        Raises
        ------
        ProcessError
            When both slots are taken.
        """
        found = self._processes.get(process)
        if found is None:
            # Its death is among the events that have not been read yet.
            return
        try:
            found.submit(chunk)
        except OSError:
            found.kill()

    def kill(self, process: int) -> None:
        """Kill a process and what it has started; ``ProcessDied`` follows."""
        found = self._processes.get(process)
        if found is not None:
            found.kill()

    def poll(self, timeout_seconds: float) -> list[PoolEvent]:
        """Return what has happened, waiting for the first of it.

        Parameters
        ----------
        timeout_seconds : float
            Longest wait; 0 returns at once.

        Raises
        ------
        HandlerOpenError
            When a handler could not be opened and none has been opened before. Later, such a
            process is reported as died, with the reason as its cause.
        """
        wait_seconds = 0.0 if self._pending else max(0.0, timeout_seconds)
        selected = self._selector.select(wait_seconds)
        events, self._pending = self._pending, []
        ended = []
        for key, _ in selected:
            process, what = key.data
            if what is _ENDED:
                ended.append(process)
            else:
                self._receive(process, events)
        for process in ended:
            # What it said before its end comes first.
            while not process.closed and self._receive(process, events):
                pass
            events.append(self._bury(process))
        return events

    def _receive(self, process: HandlerProcess, events: list[PoolEvent]) -> bool:
        """Read one message; return whether there was one."""
        try:
            message = process.receive()
        except ProcessError:
            # Its memory may be corrupt. What it held is tried again elsewhere.
            process.kill()
            self._stop_reading(process)
            return False
        if isinstance(message, Finished):
            events.append(
                ChunkFinished(self._clock(), process.number, message.chunk_id, message.outcome)
            )
        elif isinstance(message, wire.Ready):
            self._has_opened = True
            events.append(ProcessReady(self._clock(), process.number, message.baseline_bytes))
        elif isinstance(message, wire.NotOpened) and not self._has_opened:
            raise HandlerOpenError(self._handler, message.text)
        elif process.closed:
            process.kill()
            self._stop_reading(process)
        return message is not None

    def _stop_reading(self, process: HandlerProcess) -> None:
        process.closed = True
        self._selector.unregister(process.channel)

    def _bury(self, process: HandlerProcess) -> ProcessDied:
        if not process.closed:
            self._stop_reading(process)
        self._selector.unregister(process.descriptor)
        del self._processes[process.number]
        cause = process.reap()
        if process.refusal is not None:
            cause = f"{cause}: {process.refusal}"
        elif not process.ready:
            cause = f"{cause} before the handler was open"
        return ProcessDied(self._clock(), process.number, cause)

    def close(self, deadline_seconds: float) -> None:
        """End all processes: each closes its handler after what it holds; then they are killed.

        Parameters
        ----------
        deadline_seconds : float
            Seconds from now after which whatever still runs is killed.
        """
        for process in self._processes.values():
            process.finish()
        until = self._clock() + deadline_seconds
        while self._processes and (left := until - self._clock()) > 0:
            for key, _ in self._selector.select(left):
                process, what = key.data
                if what is _ENDED:
                    self._bury(process)
                elif not process.closed and not self._drop_message(process):
                    self._stop_reading(process)
        for process in list(self._processes.values()):
            process.kill()
            self._bury(process)
        for slots in self._slots:
            for slot in slots:
                slot.close()
            slots.clear()
        self._selector.close()

    def _drop_message(self, process: HandlerProcess) -> bool:
        try:
            return process.receive() is not None or not process.closed
        except ProcessError:
            return False
