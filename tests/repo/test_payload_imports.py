"""What reads payloads knows the reasons of the core, and nothing else of the worker."""

from __future__ import annotations

import pytest

from tests.repo.test_architecture import imports, is_within, modules

#: the formats, and what counting and decoding need beside them
PAYLOAD = (
    {f"consumer.{name}" for name in ("counting", "decode", "faults", "formats", "raw_values")}
    | {"consumer.coordinates", "consumer.geojson_scan"}
    | {name for name in imports("consumer.formats") if name in modules()}
)
OUTSIDE = ("consumer.core.reasons",)


@pytest.mark.parametrize("module", sorted(PAYLOAD))
def test_payload_modules_import_reasons_only(module: str) -> None:
    """A module of payloads imports others of payloads, and of the core the reasons."""
    ours = {name for name in imports(module) if is_within(name, ("consumer",))}
    assert ours <= PAYLOAD | set(OUTSIDE)
