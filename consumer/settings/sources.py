"""Where settings come from: the environment, a TOML file, flags. Nothing is judged here but names.

Owns the reading of each source into ``Given`` values that remember their origin, and the rules for
names: unknown ones are problems with a suggestion, what Kubernetes injects is ignored.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from consumer.kafka.properties import VARIABLE_PREFIX, property_of
from consumer.settings.table import CONFIG_FILE_VARIABLE, PREFIX, SETTINGS

#: Set for the tests and benchmarks, beside a worker that may run in the same shell.
IGNORED_VARIABLES = frozenset({f"{PREFIX}_CORPUS"})
KAFKA_TABLE = "kafka"
KAFKA_FLAG = "--kafka"

_BY_VARIABLE = {row.variable: row.name for row in SETTINGS}
_VARIABLES = (*_BY_VARIABLE, CONFIG_FILE_VARIABLE)
_NAMES = frozenset(_BY_VARIABLE.values())

_SERVICE_VARIABLE = re.compile(
    r"(?:KAFKA|VERTEX_BUDGET)(?:_[A-Z0-9_]+?)??"
    r"(?:_(?P<host>SERVICE_HOST)|_(?P<number>SERVICE_PORT(?:_[A-Z0-9_]+)?)|_(?P<link>PORT)"
    r"|_PORT_[0-9]+_(?:TCP|UDP|SCTP)"
    r"(?:_(?:(?P<protocol>PROTO)|(?P<port>PORT)|(?P<address>ADDR))|(?P<port_link>)))"
)
_LINK = re.compile(r"(?:tcp|udp|sctp)://\S+:[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, with what is needed to put it right."""

    #: as it is named where it was given: "VERTEX_BUDGET_CAP", "--cap", "cap"
    name: str
    #: where it was given: "environment", "flag", or the file's path
    source: str
    #: what is wrong, with the offending value
    wrong: str
    #: what is allowed, or what to do
    allowed: str = ""

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.name}{where}: {self.wrong}" + (
            f"; allowed: {self.allowed}" if self.allowed else ""
        )


@dataclass(frozen=True, slots=True)
class Given:
    """A value and where it was given."""

    value: object
    #: the name used there
    name: str
    source: str

    @property
    def origin(self) -> str:
        """The origin in words: "environment VERTEX_BUDGET_CAP"."""
        return f"{self.source} {self.name}"


@dataclass(slots=True)
class Source:
    """What one source says: settings by field name, properties by librdkafka name."""

    settings: dict[str, Given] = field(default_factory=dict)
    #: the name may still end in ".file"
    kafka: dict[str, Given] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def suggestion(name: str, known: Mapping[str, str]) -> str:
    """Return "; did you mean X?" when a key of ``known`` is close, else an empty text."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.65)
    return f"; did you mean {known[close[0]]}?" if close else ""


def is_injected(variable: str, value: str) -> bool:
    """Whether Kubernetes puts this variable into containers beside a Service of our name.

    Both the name and the value must look like it, so that a typing error is not passed over.

    Examples
    --------
    >>> is_injected("KAFKA_PORT", "tcp://10.0.0.1:9092"), is_injected("KAFKA_PORT", "9092")
    (True, False)
    >>> is_injected("VERTEX_BUDGET_SERVICE_HOST", "10.0.0.7")
    True
    """
    match = _SERVICE_VARIABLE.fullmatch(variable)
    if match is None:
        return False
    if match["host"] or match["address"]:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            return False
        return True
    if match["number"] or match["port"]:
        return value.isdecimal()
    if match["protocol"]:
        return value in {"tcp", "udp", "sctp"}
    return _LINK.fullmatch(value) is not None


def from_environment(environment: Mapping[str, str]) -> Source:
    """Read what the environment says. An empty variable counts as not set."""
    source = Source()
    for variable, value in sorted(environment.items()):
        ours = variable == PREFIX or variable.startswith(f"{PREFIX}_")
        kafka = variable.startswith(VARIABLE_PREFIX)
        if not (ours or kafka) or not value or is_injected(variable, value):
            continue
        given = Given(value, variable, "environment")
        if kafka:
            source.kafka[property_of(variable)] = given
        elif variable in _BY_VARIABLE:
            source.settings[_BY_VARIABLE[variable]] = given
        elif variable not in IGNORED_VARIABLES | {CONFIG_FILE_VARIABLE}:
            # Compared without the prefix, which would make every pair of names look alike.
            known = {name.removeprefix(f"{PREFIX}_"): name for name in _VARIABLES}
            close = suggestion(variable.removeprefix(f"{PREFIX}_"), known)
            source.problems.append(
                Problem(variable, "environment", f"no setting has this name{close}")
            )
    return source


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Undo TOML's reading of ``bootstrap.servers = ...`` as a table in a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def from_file(path: str) -> Source:
    """Read what a TOML file says."""
    source = Source()
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        source.problems.append(Problem("config file", path, f"cannot read it: {error.strerror}"))
        return source
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        source.problems.append(Problem("config file", path, f"not TOML: {error}"))
        return source
    for key, value in table.items():
        if key == KAFKA_TABLE and isinstance(value, dict):
            for name, setting in _flat(value):
                text = str(setting).lower() if isinstance(setting, bool) else str(setting)
                source.kafka[name] = Given(text, f"{KAFKA_TABLE}.{name}", path)
        elif key in _NAMES:
            source.settings[key] = Given(value, key, path)
        else:
            close = suggestion(key, {name: name for name in (*_NAMES, KAFKA_TABLE)})
            source.problems.append(Problem(key, path, f"no setting has this name{close}"))
    return source


def from_flags(flags: Mapping[str, str | None], kafka: Sequence[str] = ()) -> Source:
    """Read what the command line says; ``flags`` by field name, ``kafka`` as ``name=value``."""
    source = Source()
    for row in SETTINGS:
        value = flags.get(row.name)
        if value is not None:
            source.settings[row.name] = Given(value, row.flag, "flag")
    for text in kafka:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            # The text is not shown: it may be a password whose name was left out.
            source.problems.append(
                Problem(KAFKA_FLAG, "flag", "not name=value", "--kafka client.id=worker-1")
            )
            continue
        source.kafka[name.strip()] = Given(value, f"{KAFKA_FLAG} {name.strip()}", "flag")
    return source
