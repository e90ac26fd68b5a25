"""Topics of the benchmarks: filled and counted."""

from __future__ import annotations

import itertools
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.common import say
from consumer.traffic.shapes import Record

PARTITIONS = 8
#: The client's queue is filled this many records at a time before it is served.
PRODUCE_BURST = 5_000


def fill_topic(bootstrap: str, name: str, records: list[Record], count: int) -> None:
    """Produce ``count`` records, repeating ``records``, uncompressed, by the keys' hash."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "message.max.bytes": 8_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "partitioner": "murmur2_random",
        }
    )
    produce = producer.produce
    repeated = itertools.islice(itertools.cycle(records), count)
    while burst := list(itertools.islice(repeated, PRODUCE_BURST)):
        for key, value in burst:
            while True:
                try:
                    produce(name, value, key)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(120)
    held = count_records(bootstrap, name)
    if left or held != count:
        msg = f"{name}: {held} of {count} records were stored, {left} not sent"
        raise RuntimeError(msg)
    say(f"  {name}: {count:,} records")


def count_records(bootstrap: str, name: str) -> int:
    """Return how many records a topic holds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": fresh_group()})
    try:
        partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
        total = 0
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=30)
            total += high - low
        return total
    finally:
        consumer.close()


def fresh_group() -> str:
    """Return a group id that nobody has used."""
    return f"bench-{uuid.uuid4().hex[:12]}"
