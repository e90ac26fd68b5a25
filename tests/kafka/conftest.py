"""Members of groups, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer.broker import KafkaAdmin
from tests.kafka.members import Member


@pytest.fixture
def join(kafka: KafkaAdmin, group_id: str) -> Iterator[Callable[..., Member]]:
    """Return a function that joins the test's group: ``join(topic, **properties)``."""
    members: list[Member] = []

    def make(topic: str, *, group: str = group_id, **properties: Any) -> Member:
        members.append(Member(kafka.bootstrap_servers, topic, group, **properties))
        return members[-1]

    yield make
    for member in members:
        member.on_callback = lambda event: None
        member.close()
