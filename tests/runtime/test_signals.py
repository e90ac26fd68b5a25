"""Stop signals become numbers, and the former handlers come back."""

from __future__ import annotations

import os
import signal

import pytest

from consumer.runtime.signals import STOP_SIGNALS, StopSignals
from tests.waiting import wait_until


def test_signals_are_counted_and_nothing_is_raised():
    """SIGTERM and SIGINT alike: code under way goes on, and the count says how often."""
    with StopSignals() as stop:
        assert (stop.count, stop.last) == (0, "")
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: stop.count == 1, 10, "the first signal")
        assert stop.last == "SIGTERM"
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: stop.count == 2, 10, "the second signal")
        assert stop.last == "SIGINT"


def test_the_former_handlers_come_back():
    """Also when the work ends by an exception."""
    former = [signal.getsignal(number) for number in STOP_SIGNALS]
    during: list[object] = []

    def work() -> None:
        with StopSignals():
            during.extend(signal.getsignal(number) for number in STOP_SIGNALS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert len(during) == 2
    assert not set(during) & set(former)
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == former
