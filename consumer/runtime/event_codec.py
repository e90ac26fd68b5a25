"""Events and commands as plain JSON, without anything that the records say.

Owns what of a dataclass is written, and how it becomes the dataclass again; does no input or
output. A type is written by its annotations, so that a new event needs nothing here.

Rules: of bytes only the length is written, of a record's value and headers only whether they are
there, of a key its hash, of an exception's text (which may quote a payload) its length. What is
read has stand-ins in their place: of the same size where the core looks at the size, the same for
equal keys. Arrays are written as differences, by numpy: no statement is spent on a single record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import orjson
from numpy.typing import NDArray

from consumer.core.events import Event
from consumer.core.ledger.columns import Columns, FetchedRun, Headers

#: Fields of any class whose text may quote a payload.
_TEXTS_LEFT_OUT = frozenset({"error_text"})
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
_STAND_IN_HEADERS: Headers = [("", None)]


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type are written and read."""

    read: Callable[[Any], Any]
    #: None: they are written as they are
    write: Callable[[Any], Any] | None = None

    def plain(self, value: Any) -> Any:
        """Return what is written of a value."""
        return value if self.write is None else self.write(value)


def event_line(event: Event) -> bytes:
    """Return an event as one line of JSON, its end included.

    Examples
    --------
    >>> from consumer.core.events import EndReached
    >>> event_line(EndReached(1.5, ("town", 0), 70)).rstrip()
    b'{"event":"EndReached","now":1.5,"partition":["town",0],"next_offset":70}'
    """
    kind: type = type(event)
    return _beginning(kind) + orjson.dumps(codec(kind).plain(event), option=_OPTIONS)[1:]


def event_of(plain: dict[str, Any]) -> Event:
    """Return the event of a line that was read as JSON.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is no event of this version.

    Examples
    --------
    >>> event_of({"event": "Tick", "now": 1.5})
    Tick(now=1.5)
    """
    kinds = {kind.__name__: kind for kind in get_args(Event)}
    given = dict(plain)
    event: Event = codec(kinds[given.pop("event")]).read(given)
    return event


@cache
def _beginning(kind: type) -> bytes:
    return b'{"event":"%b",' % kind.__name__.encode()


@cache
def codec(hint: Any) -> Codec:
    """Return how values of an annotated type are written and read.

    Raises
    ------
    TypeError
        When there is no rule for the type.
    """
    if hint in _RULES:
        return _RULES[hint]()
    if isinstance(hint, type) and is_dataclass(hint):
        return _of_dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Codec(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hasattr(origin, "__value__"):
        # A named alias, as NDArray is from numpy 2.5 on.
        return codec(origin.__value__[arguments])
    if origin in (Union, UnionType):
        return _of_union(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _of_pair(arguments)
    if origin in (tuple, list):
        return _of_many(origin, codec(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(codec(arguments[0]), codec(arguments[1]), arguments[0] is str)
    if origin is np.ndarray:
        return _of_array(np.dtype(get_args(arguments[1])[0]))
    msg = f"there is no rule to record a value of {hint}"
    raise TypeError(msg)


def _same(value: Any) -> Any:
    return value


def _of_dataclass(kind: type) -> Codec:
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)]
    codecs: dict[str, Codec] = {}
    for name in names:
        try:
            codecs[name] = _LENGTH_OF_TEXT if name in _TEXTS_LEFT_OUT else codec(hints[name])
        except TypeError as error:
            msg = f"{kind.__name__}.{name}: {error}"
            raise TypeError(msg) from None

    def read(plain: dict[str, Any]) -> Any:
        return kind(**{name: codecs[name].read(value) for name, value in plain.items()})

    def write(value: Any) -> dict[str, Any]:
        return {name: codecs[name].plain(getattr(value, name)) for name in names}

    as_it_is = all(c.write is None for c in codecs.values())
    return Codec(read, None if as_it_is else write)


def _of_union(members: tuple[Any, ...]) -> Codec:
    others = [codec(member) for member in members if member is not NoneType]
    if any(c is not _AS_IT_IS for c in others) and len(others) > 1:
        msg = f"there is no rule to record one of {members}"
        raise TypeError(msg)
    (one, *_) = others
    return Codec(
        lambda plain: None if plain is None else one.read(plain),
        one.write and (lambda value: None if value is None else one.plain(value)),
    )


def _of_pair(members: tuple[Any, ...]) -> Codec:
    codecs = [codec(member) for member in members]
    as_it_is = all(c.write is None for c in codecs)

    def read(plain: list[Any]) -> tuple[Any, ...]:
        return tuple(c.read(item) for c, item in zip(codecs, plain, strict=True))

    def write(value: tuple[Any, ...]) -> list[Any]:
        return [c.plain(item) for c, item in zip(codecs, value, strict=True)]

    return Codec(read, None if as_it_is else write)


def _of_many(kind: type, each: Codec) -> Codec:
    return Codec(
        lambda plain: kind(map(each.read, plain)),
        each.write and (lambda value: [each.plain(item) for item in value]),
    )


def _of_mapping(key: Codec, value: Codec, keys_are_texts: bool) -> Codec:
    if keys_are_texts:
        return Codec(
            lambda plain: {name: value.read(item) for name, item in plain.items()},
            lambda given: {name: value.plain(item) for name, item in given.items()},
        )
    return Codec(
        lambda plain: {key.read(name): value.read(item) for name, item in plain},
        lambda given: [[key.plain(name), value.plain(item)] for name, item in given.items()],
    )


def _of_array(dtype: np.dtype[Any]) -> Codec:
    if dtype.kind not in "ib":
        msg = f"there is no rule to record an array of {dtype}"
        raise TypeError(msg)
    return Codec(lambda plain: np.cumsum(np.array(plain, np.int64)).astype(dtype), _differences)


def _differences(array: NDArray[Any]) -> NDArray[np.int64]:
    """Return the first element and the differences after it: short where it rises by one.

    Examples
    --------
    >>> _differences(np.array([700, 701, 702, 705])).tolist()
    [700, 1, 1, 3]
    """
    differences = array.astype(np.int64)
    differences[1:] -= array[:-1]
    return differences


def _of_columns() -> Codec:
    hints = get_type_hints(Columns)
    unwritten = {"values", "keys", "headers"}
    arrays = {name: codec(hint) for name, hint in hints.items() if name not in unwritten}

    def read(plain: dict[str, Any]) -> Columns:
        found = {name: each.read(plain[name]) for name, each in arrays.items()}
        values: list[bytes | None] = [b""] * len(plain["offsets"])
        for index in plain["null_values"]:
            values[index] = None
        with_headers = np.cumsum(plain["with_headers"], dtype=np.int64).tolist()
        headers = dict.fromkeys(with_headers, _STAND_IN_HEADERS)
        return Columns(values=values, keys=None, headers=headers, **found)

    def write(columns: Columns) -> dict[str, Any]:
        values = columns.values
        nulls = [i for i, v in enumerate(values) if v is None] if None in values else []
        with_headers = np.fromiter(columns.headers, np.int64, len(columns.headers))
        return {
            **{name: each.plain(getattr(columns, name)) for name, each in arrays.items()},
            "null_values": nulls,
            "with_headers": _differences(with_headers),
        }

    return Codec(read, write)


def _of_run() -> Codec:
    by_fields = _of_dataclass(FetchedRun)

    def read(plain: dict[str, Any]) -> FetchedRun:
        run: FetchedRun = by_fields.read(plain)
        if run.key_hashes is not None:
            keys: list[bytes | None] = [b"%d" % number for number in run.key_hashes.tolist()]
            for index in () if run.null_keys is None else np.flatnonzero(run.null_keys).tolist():
                keys[index] = None
            run.columns.keys = keys
        return run

    return Codec(read, by_fields.write)


_AS_IT_IS = Codec(_same)
_LENGTH_OF_TEXT = Codec(lambda length: "?" * length, len)
#: type -> its codec, where the annotation alone does not say what is written
_RULES: Mapping[Any, Callable[[], Codec]] = {
    **dict.fromkeys((int, float, str, bool, object), lambda: _AS_IT_IS),
    bytes: lambda: Codec(bytes, len),
    # Names of headers are the producer's, too.
    Headers: lambda: Codec(lambda count: _STAND_IN_HEADERS * count, len),
    Columns: _of_columns,
    FetchedRun: _of_run,
}
