"""Settings, read from everywhere at once and judged together.

Owns the precedence (defaults, environment, TOML file, flags: the later wins), the collection of
every problem before any is reported, and the rules between settings. The settings themselves are
``consumer.settings.table``; the sources ``consumer.settings.sources``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from consumer.errors import ConsumerError
from consumer.kafka.properties import (
    PropertyError,
    client_refusal,
    consumer_properties,
    main_name,
    max_poll_interval_seconds,
    producer_properties,
    read_property,
    shown_property,
    variable_of,
)
from consumer.redaction import HIDDEN
from consumer.settings.sources import (
    Given,
    Problem,
    Source,
    from_environment,
    from_file,
    from_flags,
)
from consumer.settings.table import (
    CONFIG_FILE_VARIABLE,
    SETTINGS,
    Settings,
    shown,
)

__all__ = [
    "Reading",
    "Settings",
    "SettingsError",
    "load_settings",
    "read_settings",
    "settings_table_markdown",
]

_JOIN_HANDLER = "consumer.handlers:join"
#: What the client may hold is decided later; no refusal depends on it.
_ANY_BYTES = 8 * 1024 * 1024
_ROWS = {row.name: row for row in SETTINGS}


class SettingsError(ConsumerError):
    """Settings are not right: the fault of whoever set them. Carries every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        count = len(self.problems)
        head = "a setting is not right" if count == 1 else f"{count} settings are not right"
        return "\n  ".join([f"{head}:", *map(str, self.problems)])


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting or Kafka property as the ``config`` command shows it; secrets are hidden."""

    name: str
    value: str
    #: "default", "environment VERTEX_BUDGET_CAP", "worker.toml cap", "flag --cap"
    origin: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What all sources together say."""

    #: None when there are problems
    settings: Settings | None
    problems: tuple[Problem, ...]
    #: every row of the table, in its order
    shown: tuple[Shown, ...]
    #: every Kafka property that was given
    kafka_shown: tuple[Shown, ...]


def read_settings(
    environment: Mapping[str, str],
    *,
    flags: Mapping[str, str | None] | None = None,
    kafka: Sequence[str] = (),
    config_file: str | None = None,
) -> Reading:
    """Read and judge every source. Never raises for what a source says.

    Parameters
    ----------
    environment : mapping
        Environment variables; others than ours are ignored.
    flags : mapping, optional
        Field name -> text, None where the flag was not given.
    kafka : sequence of str
        ``name=value`` of each ``--kafka`` flag.
    config_file : str, optional
        Path of a TOML file; otherwise ``VERTEX_BUDGET_CONFIG_FILE`` says, if anything does.
    """
    path = config_file or environment.get(CONFIG_FILE_VARIABLE)
    sources = [from_environment(environment)]
    if path:
        sources.append(from_file(path))
    sources.append(from_flags(flags or {}, kafka))

    problems = [problem for source in sources for problem in source.problems]
    given = {name: value for source in sources for name, value in source.settings.items()}
    properties = _merged_properties(sources, problems)
    texts = {name: str(value.value) for name, value in properties.items()}
    refused = _check_properties(properties, texts, problems)
    accepted = {name: text for name, text in texts.items() if name not in refused}
    settings, valid = _validated(given, accepted, problems)
    return Reading(
        settings=None if problems else settings,
        problems=tuple(problems),
        shown=tuple(_shown(name, given.get(name), valid) for name in _ROWS),
        kafka_shown=tuple(
            Shown(
                name,
                # What the client does not know may be a secret with a typing error in its name.
                HIDDEN if name in refused else shown_property(name, texts[name]),
                properties[name].origin,
            )
            for name in sorted(properties)
        ),
    )


def load_settings(
    environment: Mapping[str, str],
    *,
    flags: Mapping[str, str | None] | None = None,
    kafka: Sequence[str] = (),
    config_file: str | None = None,
) -> Settings:
    """Return the settings, as ``read_settings`` reads them.

    Raises
    ------
    SettingsError
        If anything is not right; it carries every problem.
    """
    reading = read_settings(environment, flags=flags, kafka=kafka, config_file=config_file)
    if reading.settings is None:
        raise SettingsError(reading.problems)
    return reading.settings


def settings_table_markdown() -> str:
    """Return the table of settings as Markdown, for the documentation."""
    lines = [
        "| variable | flag | default | allowed | meaning | why this default |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in SETTINGS:
        texts = (row.default, row.allowed, row.help, row.reason)
        cells = " | ".join(text.replace("|", "\\|").replace("<", "&lt;") for text in texts)
        lines.append(f"| `{row.variable}` | `{row.flag}` | {cells} |")
    return "\n".join(lines) + "\n"


def _merged_properties(sources: Sequence[Source], problems: list[Problem]) -> dict[str, Given]:
    merged: dict[str, Given] = {}
    for source in sources:
        seen: dict[str, Given] = {}
        for raw_name, given in source.kafka.items():
            try:
                name, value = read_property(raw_name, str(given.value))
            except ValueError as error:
                problems.append(Problem(given.name, given.source, str(error), "a readable file"))
                continue
            if name in seen:
                both = f"{seen[name].name} says the same property: leave one out"
                problems.append(Problem(given.name, given.source, both))
            seen[name] = Given(value, given.name, given.source)
        merged |= seen
    return merged


def _check_properties(
    properties: Mapping[str, Given], texts: Mapping[str, str], problems: list[Problem]
) -> set[str]:
    """Add what is wrong with the Kafka properties; return those that the client refuses."""
    refused = set()
    for name, given in properties.items():
        refusal = client_refusal(name, texts[name])
        if refusal is not None:
            refused.add(name)
            problems.append(Problem(given.name, given.source, refusal))
    accepted = {name: text for name, text in texts.items() if name not in refused}
    given_as = {main_name(name): name for name in properties}
    for name, why in _worker_refusals(accepted).items():
        origin = properties.get(given_as.get(name, name))
        if origin is None:
            problems.append(Problem(variable_of(name), "", why))
        elif given_as[name] not in refused:
            value = shown_property(name, str(origin.value))
            problems.append(Problem(origin.name, origin.source, f"{value!r} {why}"))
    return refused


def _worker_refusals(properties: Mapping[str, str]) -> dict[str, str]:
    """Return property -> why the worker cannot use it, though the client would."""
    found: dict[str, str] = {}
    checks: tuple[Callable[[], object], ...] = (
        lambda: consumer_properties(properties, prefetch_bytes=_ANY_BYTES),
        lambda: producer_properties(properties),
    )
    for check in checks:
        try:
            check()
        except PropertyError as error:
            found = {refusal.name: refusal.reason for refusal in error.refusals} | found
    return found


def _problem(given: Mapping[str, Given], name: str, wrong: str, allowed: str = "") -> Problem:
    """Name the setting as it was named where it was given."""
    where = given.get(name)
    if where is None:
        return Problem(_ROWS[name].variable, "", wrong, allowed)
    return Problem(where.name, where.source, wrong, allowed)


def _validated(
    given: Mapping[str, Given], kafka: Mapping[str, str], problems: list[Problem]
) -> tuple[Settings | None, dict[str, Any]]:
    """Return the settings, and every value that is allowed on its own."""
    valid: dict[str, Any] = {}
    values = {name: value.value for name, value in given.items()}
    settings = None
    try:
        settings = Settings.model_validate({**values, "kafka": dict(kafka)}, context=valid)
    except ValidationError as error:
        for name in dict.fromkeys(str(entry["loc"][0]) for entry in error.errors()):
            wrong = f"{_short(values[name])} is not allowed" if name in values else "required"
            problems.append(_problem(given, name, wrong, _ROWS[name].allowed))
    for name, wrong in _contradictions(valid, kafka):
        problems.append(_problem(given, name, wrong))
    return settings, valid


def _contradictions(
    valid: Mapping[str, Any], kafka: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (setting, what is wrong) for values that are allowed alone but not together."""
    # With the records' types comes numpy, which only a command that judges settings pays for.
    from consumer.kafka.dead_letters import dead_letter_topic

    topics = valid.get("topics", ())
    dead_letters, outputs = valid.get("dlq_topic"), valid.get("output_topic")
    if dead_letters in topics:
        yield "dlq_topic", f"{dead_letters!r} is one of the topics read: it would feed itself"
    if dead_letters is None:
        for topic in topics:
            theirs = dead_letter_topic(topic)
            if theirs in topics:
                yield "topics", f"{theirs!r} takes the dead letters of {topic!r}: read only one"
    if outputs in topics:
        yield "output_topic", f"{outputs!r} is one of the topics read: it would feed itself"
    if outputs is not None and outputs == dead_letters:
        yield "output_topic", f"{outputs!r} is the topic of dead letters too: choose another"
    if valid.get("vertex_budget") is not None and valid.get("cap") is not None:
        yield "cap", "a fixed budget is not capped: set one of VERTEX_BUDGET and VERTEX_BUDGET_CAP"
    if valid.get("handler") == _JOIN_HANDLER and valid.get("join_layer", "") is None:
        yield "join_layer", f"required by {_JOIN_HANDLER}: the path of a GeoJSON file"
    timeout = valid.get("handler_timeout_seconds")
    longest = max_poll_interval_seconds(kafka)
    if timeout is not None and timeout > longest:
        yield (
            "handler_timeout_seconds",
            f"{timeout:g} seconds is longer than max.poll.interval.ms ({longest:g} seconds):"
            " a revoke could not wait for it",
        )


def _short(value: object, most: int = 100) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def _shown(name: str, given: Given | None, valid: Mapping[str, Any]) -> Shown:
    value = valid.get(name)
    if value is not None:
        text = shown(value)
    elif given is not None and name not in valid:
        text = _short(given.value)
    else:
        text = _ROWS[name].default
    return Shown(name, text, "default" if given is None else given.origin)
