"""Supervision: the life of the handler processes.

Owns when a process is started, started again and killed. What becomes of the records that a dead
one held is settlement's business. Decides nothing about chunks.

Rules: a process is absent, starting, ready or being killed. One that dies is started again at
once, unless it died before with nothing inside it: then after a pause, doubled each time (a crash
loop); a chunk that comes back ends the count. A process is killed when a chunk was inside it for
longer than the time limit, or when the drain deadline of a stop is over; once, and then its death
is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

from consumer.core.backoff import backoff_seconds
from consumer.core.commands import Command, KillProcess, Say, StartProcess
from consumer.core.ledger.ledger import InsideChunk, ProcessState
from consumer.core.reasons import KillReason
from sizing.load import RECORDS

#: A process that dies again and again is started again after this, doubled each time.
RESTART_BACKOFF_SECONDS = 0.5
RESTART_BACKOFF_LIMIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Death:
    """What a process left behind."""

    #: what it held, the chunk that it worked on first
    chunks: list[InsideChunk]
    #: why it was killed by us; None when it died by itself
    killed_for: KillReason | None
    #: what to tell people
    words: Say


class Supervision:
    """Starts, restarts and kills.

    Parameters
    ----------
    processes : list of ProcessState
        The ledger's.
    handler_timeout_seconds : float
        Longest time of one chunk inside a process.
    """

    def __init__(self, processes: list[ProcessState], handler_timeout_seconds: float) -> None:
        self._processes = processes
        self._handler_timeout_seconds = handler_timeout_seconds

    def ready(self, number: int, baseline_bytes: int) -> None:
        """Take in that a process has opened its handler."""
        process = self._processes[number]
        process.ready = True
        process.killing = None
        process.start_at = None
        process.baseline_bytes = process.resident_bytes = baseline_bytes

    def finished(
        self, number: int, chunk_id: int, resident_bytes: int, now: float
    ) -> InsideChunk | None:
        """Take a finished chunk out of its process; None for one that is not expected."""
        process = self._processes[number]
        if not process.chunks or process.chunks[0].chunk_id != chunk_id:
            return None
        chunk = process.chunks.pop(0)
        if process.chunks:
            process.chunks[0].started_at = now
        process.deaths_in_row = 0
        process.resident_bytes = resident_bytes
        return chunk

    def died(self, number: int, cause: str, now: float) -> Death:
        """Take in that a process is gone, and plan its successor."""
        process = self._processes[number]
        chunks, killed_for = process.chunks, process.killing
        process.chunks = []
        process.ready = False
        process.killing = None
        process.resident_bytes = process.baseline_bytes
        process.deaths_in_row += 1
        in_loop = process.deaths_in_row > 1 and not chunks
        process.start_at = now + (
            backoff_seconds(
                process.deaths_in_row - 1, RESTART_BACKOFF_SECONDS, RESTART_BACKOFF_LIMIT_SECONDS
            )
            if in_loop
            else 0.0
        )
        held = sum(int(chunk.load[RECORDS]) for chunk in chunks)
        again = f" holding {held:,} records; they are tried again" if held else ""
        why = killed_for.value if killed_for else cause
        return Death(
            chunks, killed_for, Say("warning", f"handler process {number} died ({why}){again}")
        )

    def starts_due(self, now: float) -> list[Command]:
        """Return the starts whose time has come."""
        commands: list[Command] = []
        for process in self._processes:
            if process.start_at is not None and process.start_at <= now:
                process.start_at = None
                commands.append(StartProcess(process.number))
        return commands

    def kill_hung(self, now: float) -> list[Command]:
        """Kill processes that have been inside one chunk for too long."""
        commands: list[Command] = []
        for process in self._processes:
            if not process.chunks or process.killing:
                continue
            age = now - process.chunks[0].started_at
            if age > self._handler_timeout_seconds:
                process.killing = KillReason.TIMED_OUT
                why = f"a chunk has been inside it for {age:.1f} s"
                commands.append(KillProcess(process.number, why))
        return commands

    def kill_busy(self) -> list[Command]:
        """Kill every process that is inside a chunk: the stop waits no longer."""
        commands: list[Command] = []
        for process in self._processes:
            if process.chunks and not process.killing:
                process.killing = KillReason.STOP
                commands.append(KillProcess(process.number, KillReason.STOP.meaning))
        return commands
