"""A limit on the end of the worker, kept by a thread of its own.

Owns the timer and the exit code of an end that was given up on. The thread that owns the Kafka
client may sit in a call that waits for a broker for longer than the container's runtime does.
"""

from __future__ import annotations

import logging
import os
import threading

from consumer.telemetry.logs import Log

_log = Log("vertex-budget")


class Watchdog:
    """Ends the program when the last commit and leaving wait for a broker that is away.

    What is committed is committed; the rest is read again by the next owner.

    Parameters
    ----------
    grace_seconds : float
        From SIGTERM to SIGKILL, as the container's runtime is set.
    """

    def __init__(self, grace_seconds: float) -> None:
        self._leave_seconds = max(2.0, grace_seconds / 4.0)
        self._timer: threading.Timer | None = None

    def arm(self, drain_seconds: float) -> None:
        """Allow so many seconds from now for the drain, and a few for leaving."""
        self.disarm()
        self._timer = threading.Timer(drain_seconds + self._leave_seconds, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def disarm(self) -> None:
        """The worker has left."""
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        _log.say(
            "error",
            f"no answer from the broker within {self._leave_seconds:g} s of the drain: left without"
            " it; what was not committed is read again",
        )
        for handler in logging.getLogger().handlers:
            handler.flush()
        os._exit(1)
