"""The worker's own version, as metrics, dead letters and ``--version`` show it."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def worker_version() -> str:
    """Return the installed version, or ``unknown`` when run from a tree that is not installed."""
    try:
        return metadata.version("vertex-budget")
    except metadata.PackageNotFoundError:
        return "unknown"
