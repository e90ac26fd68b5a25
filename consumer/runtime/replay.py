"""Replay: a recording through a core, checked on the way.

Owns the order of it and what came of it; what is in the file is ``consumer.runtime.recording``'s business,
and how it is shown that of ``scripts/replay``.

Rules: the core contradicts itself from one event on, and that event is named. A check costs much
more than a step where much is held, so checks get as much time as steps; what is found late is
looked for again, event by event, since the check before. A core that answers otherwise than the
recorded one did (another version) is noticed at the first chunk that it has not given out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Partition
from consumer.runtime.recording import Header, Recording


def core_of(header: Header) -> Flow:
    """Return a core as the recorded one was at its start."""
    return Flow(header.config, wall_clock_offset=header.wall_clock_offset_seconds)


class Replay:
    """One core, and what came of a recording in it.

    Parameters
    ----------
    path : Path
        The recording.
    make_core : callable
        Makes the core, anew where it has to be looked at again.

    Raises
    ------
    RecordingError
        When the file is no recording; while iterating, when a line cannot be read.
    """

    def __init__(self, path: Path, make_core: Callable[[Header], Flow] = core_of) -> None:
        self._path = path
        self._make_core = make_core
        self.recording = Recording(path)
        self.flow = make_core(self.recording.header)
        #: events so far, and when the last of them was, in seconds since the start
        self.events = 0
        self.seconds = 0.0
        self.fetched = 0
        self.committed: dict[Partition, int] = {}
        #: where the core does otherwise than the recorded one; empty while it does the same
        self.differs = ""
        #: where the core contradicts itself or raises; empty while it does not
        self.failure = ""
        #: what the core raised
        self.error: Exception | None = None
        self._checked_events = 0
        self._checking_seconds = 0.0
        self._stepping_seconds = 0.0
        #: process -> chunks that the core has given it
        self._inside: dict[int, deque[int]] = {}

    def steps(self, until_seconds: float) -> Iterator[list[cmd.Command]]:
        """Give the core one event after another; yield what it answers to each."""
        for event in self.recording:
            if self._since_start(event) > until_seconds:
                break
            self.events += 1
            self.seconds = self._since_start(event)
            self._note(event)
            began = time.perf_counter()
            try:
                commands = self.flow.step(event)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
                self._fail(self.events, event, error)
                return
            self._stepping_seconds += time.perf_counter() - began
            for command in commands:
                if isinstance(command, cmd.Submit):
                    chunks = self._inside.setdefault(command.process, deque())
                    chunks.append(command.chunk.chunk_id)
            yield commands
            if self._checking_seconds <= self._stepping_seconds and not self._check():
                return
        self._check()

    def _since_start(self, event: ev.Event) -> float:
        return event.now - self.recording.header.started_at

    def _note(self, event: ev.Event) -> None:
        match event:
            case ev.Fetched():
                self.fetched += sum(len(run.columns) for run in event.runs)
            case ev.Committed(error=None):
                self.committed.update(event.offsets)
            case ev.ProcessDied():
                self._inside.pop(event.process, None)
            case ev.ChunkFinished():
                chunks = self._inside.get(event.process)
                if (not chunks or chunks.popleft() != event.chunk_id) and not self.differs:
                    self.differs = (
                        f"event {self.events} at {self.seconds:.3f} s: process {event.process}"
                        f" finished chunk {event.chunk_id}, which this core has not given it"
                    )

    def _check(self) -> bool:
        began = time.perf_counter()
        try:
            self.flow.check_invariants()
        except AssertionError:
            self._find_failure()
            return False
        self._checking_seconds += time.perf_counter() - began
        self._checked_events = self.events
        return True

    def _find_failure(self) -> None:
        """Replay once more, and look after each event since the last check that went well."""
        again = Recording(self._path)
        flow = self._make_core(again.header)
        for number, event in enumerate(again, start=1):
            flow.step(event)
            if number > self._checked_events:
                try:
                    flow.check_invariants()
                except AssertionError as error:
                    self._fail(number, event, error)
                    return

    def _fail(self, number: int, event: ev.Event, error: Exception) -> None:
        kind, name = type(event).__name__, type(error).__name__
        self.error = error
        self.failure = (
            f"event {number}, {kind} at {self._since_start(event):.3f} s: {name}: {error}"
        )

    def summary(self) -> dict[str, Any]:
        """Return what came of it, by name."""
        picture = self.flow.snapshot()
        return {
            "events": self.events,
            "seconds": round(self.seconds, 3),
            "fetched": self.fetched,
            "records": dict(picture.messages_total),
            "dead_letters": dict(picture.dead_letters_total),
            "sizings": dict(picture.sizings_total),
            "committed": {f"{t}[{p}]": end for (t, p), end in sorted(self.committed.items())},
            "state": picture.state,
            "cause": picture.state_cause,
            "recording_ends": self.recording.ended,
            "differs": self.differs,
            "failure": self.failure,
        }
