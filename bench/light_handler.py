"""A handler that does nothing, so that the parent is what limits."""

from __future__ import annotations

from typing import Any


def handle(batch: Any) -> None:
    """Look at no record."""
