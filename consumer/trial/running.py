"""Chunks of records through handler processes, whatever becomes of the processes.

Owns which process has what, the time limits, and the suspicion: of a chunk that took its process
with it each record is tried alone. A record is given up when it is alone for longer than the time
limit, or when it takes its process with it alone, twice, as in the worker. A process has one chunk
at a time, so that its time is its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from consumer.core.events import ProcessDied, ProcessReady
from consumer.core.reasons import Reason
from consumer.errors import HandlerError
from consumer.processes.pool import PoolEvent, ProcessPool
from consumer.trial.records import Cutter, TriedRecord, chunk_of
from consumer.trial.tally import Tally

#: Deaths alone after which a record is given up.
DEATHS_ALONE = 2
#: Longest that opening the handler may take, as in the worker.
OPEN_SECONDS = 120.0
#: Longest wait before progress is told again.
_POLL_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class _Work:
    """Records that go into a process together."""

    records: list[TriedRecord]
    #: of processes that had nothing but this one record
    deaths_alone: int = 0
    #: when its time is over
    until: float = 0.0
    is_overdue: bool = False


class Runner:
    """Runs a handler over a stream of records.

    Parameters
    ----------
    handler : str
        ``module:name``.
    cutter : Cutter
        Where the records come from.
    tally : Tally
        Is told what came of each.
    timeout_seconds : float
        Longest that a record may take, alone.
    open_seconds : float, optional
        Longest that opening the handler may take.
    on_progress : callable
        Called after everything that happened, and now and then.
    """

    def __init__(
        self,
        handler: str,
        cutter: Cutter,
        tally: Tally,
        *,
        timeout_seconds: float,
        open_seconds: float = OPEN_SECONDS,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._cutter = cutter
        self._tally = tally
        self._timeout_seconds = timeout_seconds
        self._open_seconds = open_seconds
        self._on_progress = on_progress
        self._waiting: deque[_Work] = deque()
        #: process -> when it must be open
        self._opening: dict[int, float] = {}
        self._idle: set[int] = set()
        self._inside: dict[int, _Work] = {}
        self._chunks = 0

    def run(self, processes: int, environment: Mapping[str, str]) -> None:
        """Try every record.

        Raises
        ------
        HandlerError
            When the handler cannot be opened.
        """
        pool = ProcessPool(self._handler, processes, environment=environment)
        try:
            for process in range(processes):
                self._start(pool, process)
            while self._has_more() or self._inside:
                self._fill(pool)
                for event in pool.poll(self._wait_seconds()):
                    self._take(pool, event)
                self._look_at_time(pool)
                self._on_progress()
        except BaseException:
            pool.close(0.0)
            raise
        pool.close(self._timeout_seconds)

    def _start(self, pool: ProcessPool, process: int) -> None:
        pool.start(process)
        self._opening[process] = time.monotonic() + self._open_seconds

    def _has_more(self) -> bool:
        """Whether something waits; it is taken from the files when nothing else does."""
        if not self._waiting:
            records = self._cutter.take()
            if records:
                self._waiting.append(_Work(records))
        return bool(self._waiting)

    def _fill(self, pool: ProcessPool) -> None:
        while self._idle and self._has_more():
            process, work = self._idle.pop(), self._waiting.popleft()
            self._chunks += 1
            pool.submit(process, chunk_of(self._chunks, work.records))
            work.until = time.monotonic() + self._timeout_seconds
            self._inside[process] = work

    def _wait_seconds(self) -> float:
        ends = [*self._opening.values(), *(work.until for work in self._inside.values())]
        return max(0.0, min(_POLL_SECONDS, *(until - time.monotonic() for until in ends)))

    def _take(self, pool: ProcessPool, event: PoolEvent) -> None:
        if isinstance(event, ProcessReady):
            del self._opening[event.process]
            self._idle.add(event.process)
        elif isinstance(event, ProcessDied):
            self._bury(event)
            if self._has_more():
                self._start(pool, event.process)
        else:
            work = self._inside.pop(event.process)
            self._idle.add(event.process)
            again = self._tally.finished(work.records, event.outcome)
            self._waiting.extend(_Work([record]) for record in again)

    def _bury(self, event: ProcessDied) -> None:
        if event.process in self._opening:
            text = f"its process ended while opening it: {event.cause}"
            raise HandlerError(self._handler, text)
        self._idle.discard(event.process)
        work = self._inside.pop(event.process, None)
        if work is None:
            return
        if len(work.records) > 1:
            self._waiting.extend(_Work([record]) for record in work.records)
            return
        (record,) = work.records
        if work.is_overdue:
            text = f"alone in a process for longer than {self._timeout_seconds:g} s"
            self._tally.lost(record, str(Reason.TIMED_OUT), text)
        elif work.deaths_alone + 1 < DEATHS_ALONE:
            self._waiting.append(_Work([record], work.deaths_alone + 1))
        else:
            self._tally.lost(record, str(Reason.KILLED_PROCESS), event.cause)

    def _look_at_time(self, pool: ProcessPool) -> None:
        """Kill what has been inside for too long."""
        now = time.monotonic()
        if any(now > until for until in self._opening.values()):
            raise HandlerError(self._handler, f"not open after {self._open_seconds:g} s")
        for process, work in self._inside.items():
            if now > work.until and not work.is_overdue:
                work.is_overdue = True
                pool.kill(process)
