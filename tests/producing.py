"""Putting records on a topic, each acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer


def produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    partition: int | None = None,
    **config: Any,
) -> list[tuple[int, int]]:
    """Produce all records in order and wait until the broker has each.

    Parameters
    ----------
    bootstrap_servers, topic : str
        Where to.
    records : iterable of (key, value)
        Partitioned by key (as Java's client does), at random without one.
    partition : int, optional
        Send everything to this one.
    **config
        Producer settings with underscores for dots.

    Returns
    -------
    list of (partition, offset)
        Where each record went, in the order of ``records``.
    """
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "linger.ms": 5,
        "partitioner": "murmur2_random",
        "message.max.bytes": 16 * 1024 * 1024,
    }
    producer = Producer(settings | {key.replace("_", "."): config[key] for key in config})
    placed: dict[int, tuple[int, int]] = {}
    failures: list[str] = []

    def acknowledged(i: int, error: Any, message: Any) -> None:
        if error is None:
            placed[i] = (message.partition(), message.offset())
        else:
            failures.append(f"record {i}: {error}")

    where = {} if partition is None else {"partition": partition}
    count = 0
    for i, (key, value) in enumerate(records):
        count = i + 1
        arguments: dict[str, Any] = {
            "key": key,
            "value": value,
            "on_delivery": lambda error, message, i=i: acknowledged(i, error, message),
            **where,
        }
        while True:
            try:
                producer.produce(topic, **arguments)
                break
            except BufferError:
                # The client's queue is full: let it send.
                producer.poll(0.1)
    left = producer.flush(60.0)
    assert not failures, failures[:3]
    assert left == 0, f"{left} records not acknowledged within 60 s"
    return [placed[i] for i in range(count)]
