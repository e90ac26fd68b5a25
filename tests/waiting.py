"""Waiting for a state, with a deadline: the only place where a test may pass time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    deadline_seconds: float,
    what: str,
    *,
    poll_seconds: float = 0.02,
) -> T:
    """Call ``condition`` until what it returns is true, and return that.

    Fails the test, saying ``what`` was waited for, after ``deadline_seconds``. The deadline is
    generous: it says that something hangs, never that it is slow.
    """
    deadline = time.monotonic() + deadline_seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            message = f"{what}: not within {deadline_seconds:g} s (last answer: {result!r})"
            raise AssertionError(message)
        time.sleep(poll_seconds)
    return result
