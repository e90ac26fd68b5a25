"""How the value of a setting is written: topics, handlers, sizes, times.

Owns the parsers that pydantic does not bring, and the description of one field. Each takes what a source gave (a text from the
environment or a flag, a typed value from TOML) and raises ``ValueError`` when it is not allowed;
ranges are the table's business (``consumer.settings.table``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic.config import JsonDict

from consumer.settings.address import Address, parse_address
from sizing.units import about_bytes, parse_bytes, parse_seconds

#: Kafka's own rule for topic names.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MODULE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

#: Words that stand for "not set" where that has a meaning of its own.
UNSET_WORDS = ("auto", "none")


def _text(given: object) -> str:
    # ValueError and not TypeError, here and below: pydantic collects that one.
    if not isinstance(given, str):
        msg = f"a text is needed, not {given!r}"
        raise ValueError(msg)
    return given.strip()


def _topic(given: object) -> str:
    name = _text(given)
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        msg = f"not a topic name: {name!r}"
        raise ValueError(msg)
    return name


def _topics(given: object) -> tuple[str, ...]:
    parts = given if isinstance(given, list | tuple) else _text(given).split(",")
    names = [_topic(part) for part in parts if part != ""]
    if not names:
        msg = "no topic is named"
        raise ValueError(msg)
    return tuple(dict.fromkeys(names))


def _module_name(given: object) -> str:
    name = _text(given)
    if not _MODULE_NAME.fullmatch(name):
        msg = f"not module:name: {name!r}"
        raise ValueError(msg)
    return name


def _number(given: object) -> object:
    """Let people write thousands as in the log: 2,100,000 or 2_100_000."""
    if isinstance(given, bool):
        msg = "a number is needed, not true or false"
        raise ValueError(msg)
    if isinstance(given, str) and re.fullmatch(r"\s*\d{1,3}([,_]\d{3})+\s*", given):
        return given.replace(",", "").replace("_", "")
    return given


def _measured(parse: Callable[[str], int | float]) -> Callable[[object], object]:
    def convert(given: object) -> object:
        return parse(given) if isinstance(given, str) else _number(given)

    return convert


def _address(given: object) -> Address:
    return given if isinstance(given, Address) else parse_address(_text(given))


def _maybe(convert: Callable[[object], object]) -> Callable[[object], object]:
    def convert_or_none(given: object) -> object:
        if given is None or (isinstance(given, str) and given.strip().lower() in UNSET_WORDS):
            return None
        return convert(given)

    return convert_or_none


def _lower(given: object) -> object:
    return given.strip().lower() if isinstance(given, str) else given


Topics: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_topics)]
MaybeTopic: TypeAlias = Annotated[str | None, BeforeValidator(_maybe(_topic))]
ModuleName: TypeAlias = Annotated[str, BeforeValidator(_module_name)]
MaybeModuleName: TypeAlias = Annotated[str | None, BeforeValidator(_maybe(_module_name))]
MaybeText: TypeAlias = Annotated[str | None, BeforeValidator(_maybe(_text))]
Count: TypeAlias = Annotated[int, BeforeValidator(_number)]
MaybeCount: TypeAlias = Annotated[int | None, BeforeValidator(_maybe(_number))]
Ratio: TypeAlias = Annotated[float, BeforeValidator(_number)]
Seconds: TypeAlias = Annotated[float, BeforeValidator(_measured(parse_seconds))]
MaybeSeconds: TypeAlias = Annotated[float | None, BeforeValidator(_maybe(_measured(parse_seconds)))]
MaybeBytes: TypeAlias = Annotated[int | None, BeforeValidator(_maybe(_measured(parse_bytes)))]
ListenAddress: TypeAlias = Annotated[Any, BeforeValidator(_address)]
#: One of a few words, in any case.
LowerCase = BeforeValidator(_lower)


class LogFormat(StrEnum):
    """How a log line is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as the ``logging`` module counts it."""
        return logging.getLevelNamesMapping()[self.name]


def _amount(number: float, unit: str) -> str:
    if unit == "bytes":
        return about_bytes(number)
    return f"{number:,}" if isinstance(number, int) else f"{number:,g}"


def _range_text(unit: str, limits: Mapping[str, Any]) -> str:
    low, high = (_amount(limit, unit) for limit in limits.values())
    between = f"above {low}, at most {high}" if "gt" in limits else f"{low} to {high}"
    return f"{between}{f' {unit}' if unit not in {'', 'bytes'} else ''}"


def setting(
    default: Any,
    help_text: str,
    *,
    reason: str,
    unit: str = "",
    allowed: str = "",
    unset: str = "",
    **limits: Any,
) -> Any:
    """Describe one field; ``unset`` says what None means, ``limits`` are pydantic's."""
    if isinstance(default, Enum):
        allowed = ", ".join(type(default))
    elif limits:
        allowed = _range_text(unit, limits)
    if unset:
        word = "auto" if unset.startswith("auto") else "none"
        allowed = f"{word}, or {allowed}"
    extra: JsonDict = {"unit": unit, "allowed": allowed, "reason": reason, "unset": unset}
    return Field(default, description=help_text, json_schema_extra=extra, **limits)
