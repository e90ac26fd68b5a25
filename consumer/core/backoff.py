"""Growing pauses between attempts."""

from __future__ import annotations


def backoff_seconds(failures: int, first_seconds: float, limit_seconds: float) -> float:
    """Return first * 2**(failures - 1), at most the limit."""
    return min(first_seconds * 2.0 ** min(failures - 1, 60), limit_seconds)
