"""Every error of ours crosses a process boundary whole."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A value of each type that an error may carry: plain data only.
SAMPLES: dict[Any, Any] = {
    str: "a text",
    int: 3,
    float: 0.5,
    bool: True,
    bytes: b"raw",
    object: "anything",
    Any: "anything",
    Path: Path("somewhere"),
}


def error_classes() -> list[type[Exception]]:
    """Return every exception class that a module of ours defines."""
    found = set()
    for package in ("consumer", "sizing"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = importlib.import_module(name.removesuffix(".__init__"))
            found |= {
                value
                for value in vars(module).values()
                if inspect.isclass(value)
                and issubclass(value, Exception)
                and value.__module__ == module.__name__
            }
    return sorted(found, key=lambda cls: f"{cls.__module__}.{cls.__name__}")


def sample(annotation: Any) -> Any:
    """Return a value of the annotated type; of a union, of its first member."""
    if annotation in SAMPLES:
        return SAMPLES[annotation]
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, tuple, Iterable, Sequence):
        return (list if origin is list else tuple)([sample(members[0])])
    if members:
        return sample(members[0])
    assert dataclasses.is_dataclass(annotation), f"an error carries {annotation}: not plain data"
    build: Any = annotation
    hints = typing.get_type_hints(build)
    return build(**{f.name: sample(hints[f.name]) for f in dataclasses.fields(build)})


def make(cls: type[Exception]) -> Exception:
    """Build an error as its constructor asks for."""
    if cls.__init__ in {base.__init__ for base in (Exception, ValueError, RuntimeError)}:
        return cls("a text")
    parameters = [
        p
        for p in inspect.signature(cls).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    hints = typing.get_type_hints(cls.__init__)
    values = {p.name: sample(hints.get(p.name, str)) for p in parameters}
    positional = [values[p.name] for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = {p.name: values[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    return cls(*positional, **keywords)


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_error_survives_pickling_both_ways(cls: type[Exception]):
    """An error that comes back from another process has its text and its fields."""
    error = make(cls)

    back = pickle.loads(pickle.dumps(error))

    assert type(back) is cls
    assert str(back) == str(error)
    assert vars(back) == vars(error)
