"""What other threads may ask of the worker: its last picture, whether it lives, whether it works.

Owns the verdicts of ``/healthz`` and ``/readyz`` in words. Asks the driver for two things that any
thread may read; touches neither records nor the client.

Rules:

- Until the driver runs the worker is starting: alive, and not ready.
- It need not be restarted while its I/O thread moves. Half of ``max.poll.interval.ms`` without a
  step, and the group would take its partitions soon.
- ``stalled`` alone is no reason: the worker kills what hangs. Half as long again as a record may
  take, counted since the start, and that has not helped. Backpressure, however long, is never one.
- It is ready while it is in the group, has a process with an open handler, and does not drain.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from consumer.core.snapshot import Snapshot

#: Share of the poll interval in which the I/O thread must have moved.
SILENT_RATIO = 0.5
#: Of what a record may take: it is killed after that, and what follows needs time as well.
STALLED_RATIO = 1.5
#: What a record may take by default, of the poll interval.
HANDLER_TIMEOUT_RATIO = 0.5

#: Yes or no, and why.
Answer: TypeAlias = tuple[bool, str]


class Running(Protocol):
    """The driver, as far as it is asked here."""

    #: monotonic seconds
    last_step_at: float

    def snapshot(self) -> Snapshot:
        """Return the last picture; a whole one, from any thread."""


class Health:
    """Answers for the worker, also before there is a driver.

    Parameters
    ----------
    unstarted : Snapshot
        The picture until there is a driver.
    max_poll_interval_seconds : float
        After which the group takes the partitions of a silent member.
    handler_timeout_seconds : float, optional
        What one record alone may take; half of the poll interval unless set.
    clock : callable, optional
        Monotonic seconds, as the driver's.
    """

    def __init__(
        self,
        unstarted: Snapshot,
        *,
        max_poll_interval_seconds: float,
        handler_timeout_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unstarted = unstarted
        self._running: Running | None = None
        self._clock = clock
        self._most_silent_seconds = SILENT_RATIO * max_poll_interval_seconds
        self._most_stalled_seconds = STALLED_RATIO * (
            handler_timeout_seconds or HANDLER_TIMEOUT_RATIO * max_poll_interval_seconds
        )

    def watch(self, running: Running) -> None:
        """Ask this driver from now on."""
        self._running = running

    def snapshot(self) -> Snapshot:
        """Return the last picture."""
        return self._unstarted if self._running is None else self._running.snapshot()

    def live(self) -> Answer:
        """Return whether the worker need not be restarted, and why."""
        if self._running is None:
            return True, "starting"
        silent_seconds = self._clock() - self._running.last_step_at
        if silent_seconds > self._most_silent_seconds:
            return False, f"the I/O thread has not moved for {silent_seconds:.0f} s"
        picture = self._running.snapshot()
        stalled_seconds = picture.state_seconds.get("stalled", 0.0)
        if picture.state == "stalled" and stalled_seconds > self._most_stalled_seconds:
            return False, f"stalled: {picture.state_cause}"
        return True, picture.state

    def ready(self) -> Answer:
        """Return whether the worker does its work, and why not."""
        if self._running is None:
            return False, "starting"
        picture = self._running.snapshot()
        if picture.state == "draining":
            return False, "draining"
        if not picture.joined:
            return False, "joining the group"
        if not picture.processes_ready:
            return False, "no handler process is open"
        return True, picture.state
