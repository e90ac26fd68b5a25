"""Events as plain JSON: every event there is, and nothing of what records say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import orjson
import pytest

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig, Mode, Ordering
from consumer.core.ledger.columns import Columns, FetchedRun
from consumer.runtime.event_codec import codec, event_line, event_of

SAMPLES: dict[Any, Any] = {int: 3, float: 0.1 + 0.2, str: "a word", bool: True, bytes: b"raw"}


def run_of(values: list[bytes | None], keys: list[bytes | None] | None, **changes: Any) -> Any:
    """Return a run of records 70, 71, ... of one partition."""
    offsets = np.arange(70, 70 + len(values))
    sizes = np.array([len(value or b"") for value in values], dtype=np.int64)
    columns = Columns(values, keys, offsets, offsets * 1000, np.ones_like(offsets), sizes)
    for name in set(changes) & {"headers", "vertices"}:
        setattr(columns, name, changes.pop(name))
    hashes = None if keys is None else np.array([hash(key) >> 8 for key in keys])
    nulls = None
    if keys is not None and None in keys:
        nulls = np.array([key is None for key in keys])
    return FetchedRun(("town", 0), columns, hashes, nulls)


def example(hint: Any, *, sparse: bool) -> Any:
    """Return a value of an annotated type; a sparse one has None and nothing where it may."""
    if hint in SAMPLES:
        return SAMPLES[hint]
    if hint is FetchedRun:
        return run_of([b"x", None], None if sparse else [b"k", None], headers={1: [("h", b"v")]})
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        build: Any = hint
        return build(
            **{f.name: example(hints[f.name], sparse=sparse) for f in dataclasses.fields(hint)}
        )
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if sparse and NoneType in members:
            return None
        return example(members[0], sparse=sparse)
    if origin is tuple and members[-1] is not Ellipsis:
        return tuple(example(member, sparse=sparse) for member in members)
    if origin in (tuple, list):
        return origin([] if sparse else [example(members[0], sparse=sparse)] * 2)
    assert issubclass(origin or NoneType, Mapping), f"no example of {hint}: give one here"
    key, value = (example(member, sparse=sparse) for member in members)
    return {} if sparse else {key: value}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", get_args(ev.Event), ids=lambda kind: kind.__name__)
def test_every_event_there_is_comes_back(kind, sparse):
    """Each member of the union is written, read, and written the same again; equal where it can be."""
    event = example(kind, sparse=sparse)
    line = event_line(event)
    assert line.endswith(b"\n")
    again = event_of(orjson.loads(line))
    assert type(again) is kind
    assert event_line(again) == line
    if kind not in (ev.Fetched, ev.ChunkFinished):
        assert again == event


@pytest.mark.parametrize("kind", get_args(cmd.Command), ids=lambda kind: kind.__name__)
def test_every_command_there_is_can_be_shown(kind):
    """Each member of the union has a rule for each of its fields."""
    assert codec(kind).read is not None


def test_a_field_without_a_rule_is_named():
    """An event that cannot be recorded fails by class, field and type."""

    @dataclass(frozen=True)
    class Strange:
        now: float
        seen: set[int]

    Strange.__annotations__ |= {"now": float, "seen": set[int]}
    with pytest.raises(TypeError, match=r"Strange\.seen: there is no rule .* set\[int\]"):
        codec(Strange)


def test_records_come_back_as_the_core_sees_them():
    """Offsets, sizes, counts, hashes, equal keys and what is null are kept; contents are not."""
    run = run_of(
        [b"first-secret", None, b"third-secret"],
        [b"key-secret", None, b"key-secret"],
        headers={2: [("name-secret", b"value-secret")]},
        vertices=np.array([5, 0, 7]),
    )
    line = event_line(ev.Fetched(1.5, (run,)))
    assert b"secret" not in line
    event = event_of(orjson.loads(line))
    assert isinstance(event, ev.Fetched)
    (again,) = event.runs
    columns = again.columns
    assert (event.now, again.partition) == (1.5, ("town", 0))
    assert columns.offsets.tolist() == [70, 71, 72]
    assert columns.timestamps_ms.tolist() == [70_000, 71_000, 72_000]
    assert columns.vertices.tolist() == [5, 0, 7]
    assert columns.payload_bytes.tolist() == [12, 0, 12]
    assert [value is None for value in columns.values] == [False, True, False]
    assert columns.keys is not None
    assert columns.keys[0] == columns.keys[2] != columns.keys[1]
    assert columns.keys[1] is None
    assert columns.headers.keys() == {2}
    assert again.key_hashes is not None
    assert again.null_keys is not None
    assert again.key_hashes.tolist() == run.key_hashes.tolist()
    assert again.null_keys.tolist() == [False, True, False]
    assert again.null_keys.dtype == np.bool_


def test_columns_are_written_as_differences():
    """Offsets that follow one another are ones: what is written of a record is short."""
    run = run_of([b"x"] * 4, None, vertices=np.array([1, 1, 9, 1]))
    plain = orjson.loads(event_line(ev.Fetched(1.5, (run,))))["runs"][0]["columns"]
    assert plain["offsets"] == [70, 1, 1, 1]
    assert plain["vertices"] == [1, 0, 8, -8]
    assert plain["null_values"] == plain["with_headers"] == []


def test_outcomes_come_back_with_their_sizes():
    """Of outputs the sizes are kept, of an exception's text its length."""
    outcome = ev.ChunkOutcome(
        seconds=0.5,
        cpu_seconds=0.25,
        working_bytes=None,
        resident_bytes=1000,
        exact_vertices=7,
        failed=(ev.RecordFault(1, "handler-error", "ValueError", "bad value: secret"),),
        skipped=(4, 5),
        outputs=(ev.Output(0, b"secret", b"secret" * 10, [("secret", b"secret"), ("b", None)]),),
    )
    event = ev.ChunkFinished(2.5, 1, 17, outcome)
    line = event_line(event)
    assert b"secret" not in line
    again = event_of(orjson.loads(line))
    assert isinstance(again, ev.ChunkFinished)
    (output,) = again.outcome.outputs
    assert (len(output.key or b""), len(output.value or b""), len(output.headers)) == (6, 60, 2)
    (fault,) = again.outcome.failed
    assert (fault.index, fault.reason, fault.error_class) == (1, "handler-error", "ValueError")
    assert len(fault.error_text) == 17
    assert dataclasses.replace(again.outcome, outputs=(), failed=()) == dataclasses.replace(
        outcome, outputs=(), failed=()
    )


def test_settings_of_the_core_come_back():
    """What the core is told at its start is read as it was, words included."""
    config = FlowConfig(3, Ordering.PARTITION, Mode.SHADOW, handler_timeout_seconds=1.5)
    plain = orjson.loads(orjson.dumps(codec(FlowConfig).plain(config)))
    assert codec(FlowConfig).read(plain) == config


def test_what_is_no_event_is_refused():
    """A name that this version does not know, or a field too many, is an error."""
    with pytest.raises(KeyError, match="Exploded"):
        event_of({"event": "Exploded", "now": 1.0})
    with pytest.raises(KeyError, match="colour"):
        event_of({"event": "Tick", "now": 1.0, "colour": "red"})
