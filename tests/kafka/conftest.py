"""Members of groups, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from consumer.broker import KafkaAdmin
from tests.kafka.members import Member


@pytest.fixture
def join(kafka: KafkaAdmin, group_id: str) -> Iterator[Callable[..., Member]]:
    """Return a function that joins the test's group: ``join(topic, **properties)``."""
    members: list[Member] = []

    def make(topic: str, *, group: str = group_id, **properties: Any) -> Member:
        if properties.get("group.protocol") == "consumer" and not members:
            _hurry(kafka, group)
        members.append(Member(kafka.bootstrap_servers, topic, group, **properties))
        return members[-1]

    yield make
    for member in members:
        member.on_callback = lambda event: None
        member.close()


def _hurry(kafka: KafkaAdmin, group: str) -> None:
    """Have a group's members say often that they live, so that they hear of changes soon."""
    often = ConfigEntry(
        "consumer.heartbeat.interval.ms",
        "100",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[often])
    kafka.client.incremental_alter_configs([resource])[resource].result(20)
