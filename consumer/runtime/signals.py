"""SIGTERM and SIGINT as data: a count that the driver looks at.

Owns the installation and removal of the handlers. A Python signal handler runs between any two
steps of the main thread, also inside the Kafka client's callbacks, where an exception loses
records; so it adds one to a number and does nothing else.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Counts stop signals while it is entered; puts the former handlers back on leaving.

    Must be entered on the main thread. The first signal asks for a stop that drains, the second
    for one at once: that is for the reader of ``count`` to decide.
    """

    def __init__(self) -> None:
        #: signals received so far
        self.count = 0
        #: name of the last one, empty before the first
        self.last = ""
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._former[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, former in self._former.items():
            # None: installed by code that is not Python; it cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if former is None else former)
        self._former.clear()

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.last = signal.Signals(number).name
