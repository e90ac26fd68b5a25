"""What the broker says: committed offsets, ends and records, asked of it and never of the worker."""

from __future__ import annotations

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from consumer.broker import KafkaAdmin
from tests.waiting import wait_until


def committed(kafka: KafkaAdmin, group: str, topic: str) -> dict[int, int]:
    """Return the offsets that the group has committed, by partition."""
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = kafka.client.list_consumer_group_offsets(asked)[group].result(10.0)
    return {
        tp.partition: tp.offset
        for tp in answer.topic_partitions
        if tp.topic == topic and tp.offset >= 0
    }


def ends(kafka: KafkaAdmin, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each partition."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    answers = kafka.client.list_offsets(asked)
    return {tp.partition: future.result(10.0).offset for tp, future in answers.items()}


def lag(kafka: KafkaAdmin, group: str, topic: str, partitions: int) -> int:
    """Return the group's lag by the broker's own figures."""
    done = committed(kafka, group, topic)
    return sum(
        end - done.get(partition, 0) for partition, end in ends(kafka, topic, partitions).items()
    )


def set_topic_config(kafka: KafkaAdmin, topic: str, name: str, value: object) -> None:
    """Change one setting of a topic."""
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    kafka.client.incremental_alter_configs([resource])[resource].result(10.0)


def set_group_config(kafka: KafkaAdmin, group: str, name: str, value: object) -> None:
    """Change one setting of a group of the protocol ``consumer``."""
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    kafka.client.incremental_alter_configs([resource])[resource].result(10.0)


def read_topic(bootstrap_servers: str, topic: str, count: int) -> list[Message]:
    """Read so many records of a topic from its start, and see that there are no more."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"reader-of-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    reader = Consumer(settings)
    found: list[Message] = []
    ended: set[int] = set()
    try:
        partitions = reader.list_topics(topic, 10.0).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, 0) for number in partitions])

        def whole() -> bool:
            for message in reader.consume(500, 0.1):
                if message.error() is not None:
                    ended.add(message.partition() or 0)
                else:
                    ended.discard(message.partition() or 0)
                    found.append(message)
            return len(found) >= count and len(ended) == len(partitions)

        wait_until(whole, 30.0, f"{count} records of {topic}")
    finally:
        reader.close()
    return found
