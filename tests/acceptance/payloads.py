"""Records that tell the recording handler what to do, among plain ones."""

from __future__ import annotations

from typing import Any

import orjson


def point(number: int, *, key: str | None = None, **properties: Any) -> tuple[bytes | None, bytes]:
    """Return one ping; properties ``do`` and ``times`` are for the handler."""
    value = {
        "type": "Feature",
        "properties": {"number": number, **properties},
        "geometry": {"type": "Point", "coordinates": [number % 180, 0.5]},
    }
    return (None if key is None else key.encode()), orjson.dumps(value)


def points(
    count: int, *, keys: int = 40, acts: dict[int, dict[str, Any]] | None = None
) -> list[tuple[bytes | None, bytes]]:
    """Return pings of some keys; ``acts`` gives properties to those with a number in it."""
    acts = acts or {}
    return [point(n, key=f"k{n % keys}", **acts.get(n, {})) for n in range(count)]
