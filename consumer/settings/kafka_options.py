"""The Kafka client's properties for a command that is not the worker.

Owns the reading of ``KAFKA_*`` and ``--kafka name=value``, the later winning, and the report of
everything that is wrong with them at once. The worker's own settings play no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from consumer.kafka.properties import client_refusal, main_name, read_property
from consumer.settings.reading import SettingsError
from consumer.settings.sources import Given, Problem, from_environment, from_flags

_SERVERS = "bootstrap.servers"


def read_kafka(
    environment: Mapping[str, str], flags: Sequence[str], *, servers: bool = True
) -> dict[str, str]:
    """Return the client's properties, under their main names.

    Parameters
    ----------
    environment : mapping
        Environment variables; others than ``KAFKA_*`` are ignored.
    flags : sequence of str
        ``name=value`` of each ``--kafka``.
    servers : bool, optional
        Whether ``bootstrap.servers`` is required.

    Raises
    ------
    SettingsError
        With every problem.
    """
    problems: list[Problem] = []
    given: dict[str, Given] = {}
    from_flag = from_flags({}, flags)
    problems += from_flag.problems
    for source in (from_environment(environment).kafka, from_flag.kafka):
        for raw_name, value in source.items():
            try:
                name, text = read_property(raw_name, str(value.value))
            except ValueError as error:
                problems.append(Problem(value.name, value.source, str(error), "a readable file"))
                continue
            given[main_name(name)] = Given(text, value.name, value.source)
    properties = {name: str(value.value) for name, value in given.items()}
    for name, value in given.items():
        refusal = client_refusal(name, properties[name])
        if refusal is not None:
            problems.append(Problem(value.name, value.source, refusal))
    if servers and not properties.get(_SERVERS, "").strip():
        example = f"a broker's host:port, as in --kafka {_SERVERS}=localhost:9092"
        problems.append(Problem("KAFKA_BOOTSTRAP_SERVERS", "", "required", example))
    if problems:
        raise SettingsError(problems)
    return properties
