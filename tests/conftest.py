"""Fixtures that every test may use. The environment of the caller decides nothing but the corpus.

``VERTEX_BUDGET_CORPUS``: a folder of real inputs, used instead of generated ones.
``VBTEST_BOOTSTRAP``: a Kafka to run on, instead of one that the tests start.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from consumer.broker import FOR_TESTS, KafkaAdmin, RealKafka
from tests import sample_records

hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.register_profile("night", max_examples=2000, deadline=None)


def pytest_configure() -> None:
    """Choose the Hypothesis profile and forget the settings of whoever runs the tests."""
    hypothesis.settings.load_profile(
        os.environ.get("VBTEST_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
    )
    for name in list(os.environ):
        ours = name.startswith(("VERTEX_BUDGET", "KAFKA_"))
        if ours and name != "VERTEX_BUDGET_CORPUS":
            del os.environ[name]


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaAdmin]:
    """Return a real Kafka for the whole session: make topics of your own on it."""
    given = os.environ.get("VBTEST_BOOTSTRAP")
    if given:
        yield KafkaAdmin(given)
        return
    with RealKafka(java_options=FOR_TESTS) as started:
        yield started


@pytest.fixture(scope="session")
def _unique() -> Callable[[str], str]:
    """Make names that no other run on the same Kafka uses."""
    run = uuid.uuid4().hex[:8]
    numbers = itertools.count(1)
    return lambda what: f"{what}-{run}-{next(numbers)}"


@pytest.fixture
def topic_factory(kafka: KafkaAdmin, _unique: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Make a new topic: ``topic_factory(partitions, **config)`` returns its name."""
    made: list[str] = []

    def make(partitions: int = 4, **config: Any) -> str:
        made.append(kafka.create_topic(_unique("topic"), partitions, **config))
        return made[-1]

    yield make
    # A broker of our own goes with the session; a given one is left as it was.
    if not isinstance(kafka, RealKafka):
        for name in made:
            kafka.delete_topic(name)


@pytest.fixture
def group_id(_unique: Callable[[str], str]) -> str:
    """Return a consumer group that nobody was in."""
    return _unique("group")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``derived/pings.ndjson`` and ``derived/mixed_stream.ndjson``.

    The real corpus where there is one, generated records in the same files otherwise.
    """
    given = os.environ.get("VERTEX_BUDGET_CORPUS")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("corpus")
    derived = folder / "derived"
    derived.mkdir()
    sample_records.write_stream(
        derived / "mixed_stream.ndjson", sample_records.generated_mix(2_790)
    )
    with (derived / "pings.ndjson").open("wb") as out:
        out.writelines(value + b"\n" for _, value in sample_records.pings(4_000))
    return folder
