"""What the worker is compared with, each in a process of its own.

``python -m bench.baselines NAME ...`` runs one contender for some seconds and prints one JSON
line. All use the worker's own join handler; ``memory`` and ``vector`` its decoder as well.

- ``memory``: N processes, payloads in memory, no Kafka. Batches are cut as the worker cuts its
  chunks: 60 ms of work (measured before) or 2 MiB.
- ``loop``: ``poll``, ``json.loads``, ``shape`` and the join, one record at a time.
- ``vector``: ``consume(500)``, then one call for all of them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from shapely.geometry import shape

from bench.topics import fresh_group
from bench.workloads import load_traffic
from consumer.batch import Batch
from consumer.calls import Call, RecordColumns, RecordOutcomes
from consumer.handlers import LAYER_SETTING, join
from consumer.payload.decode import decode
from consumer.processes.attempts import take_returned

#: As the worker cuts its chunks.
CHUNK_SECONDS = 0.06
CHUNK_BYTES = 2 * 1024 * 1024
#: Payloads that each process of ``memory`` holds.
MEMORY_BYTES = 64 * 1024 * 1024
CONSUME_RECORDS = 500
COMMIT_SECONDS = 1.0
START_SECONDS = 60.0


def open_join(layer: str) -> join:
    """Return the join handler with its layer loaded."""
    os.environ[LAYER_SETTING] = layer
    handler = join()
    handler.open()
    return handler


def handle(handler: join, values: Sequence[bytes | None]) -> None:
    """Decode and handle one batch as a handler process does."""
    decoded = decode(values)
    if decoded.faults:
        msg = f"the traffic of a benchmark cannot be decoded: {decoded.faults}"
        raise ValueError(msg)
    nothing = np.zeros(len(values), dtype=np.int64)
    columns = RecordColumns(values, None, {}, nothing, nothing, [("memory", 0)], [0])
    indices = range(len(values))
    call = Call(columns, decoded.geometries, decoded.documents, indices, RecordOutcomes())
    take_returned(call, handler.handle(Batch(call)))
    call.accept()


def cut_batches(values: list[bytes], seconds_per_byte: float) -> list[list[bytes]]:
    """Cut a long stream of repeated ``values`` into batches as the worker cuts its chunks.

    Every value is a copy of its own: a stream does not stay in the processor's cache.
    """
    most_bytes = min(CHUNK_BYTES, max(1.0, CHUNK_SECONDS / seconds_per_byte))
    batches: list[list[bytes]] = [[]]
    batch_bytes = total_bytes = 0
    for value in itertools.cycle(values):
        if batches[-1] and batch_bytes + len(value) > most_bytes:
            if total_bytes >= MEMORY_BYTES:
                break
            batches.append([])
            batch_bytes = 0
        batches[-1].append(bytes(bytearray(value)))
        batch_bytes += len(value)
        total_bytes += len(value)
    return batches


def _work_from_memory(
    options: argparse.Namespace, number: int, start: Barrier, results: Any
) -> None:
    """One process of ``memory``: handle batches until the time is up."""
    values = [value for _, value in load_traffic(options.kind, options.seed).records]
    # Each process starts elsewhere in the traffic.
    shift = number * len(values) // options.processes
    values = values[shift:] + values[:shift]
    handler = open_join(options.layer)
    handle(handler, values)
    begun = time.perf_counter()
    handle(handler, values)
    batches = cut_batches(values, (time.perf_counter() - begun) / sum(map(len, values)))
    # A handler process does the same: parsing makes many containers and no cycles.
    gc.freeze()
    gc.disable()
    start.wait(START_SECONDS)
    begun, spent = time.perf_counter(), time.process_time()
    handled, turn = 0, 0
    while time.perf_counter() - begun < options.seconds:
        batch = batches[turn % len(batches)]
        handle(handler, batch)
        handled += len(batch)
        turn += 1
    seconds, spent = time.perf_counter() - begun, time.process_time() - spent
    results.put((handled, seconds, spent, handled / turn))


def from_memory(options: argparse.Namespace) -> dict[str, float]:
    """Run ``memory``: the sum of what the processes reach while all are busy."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(options.processes), context.Queue()
    processes = [
        context.Process(target=_work_from_memory, args=(options, number, start, results))
        for number in range(options.processes)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=START_SECONDS + options.seconds) for _ in processes]
    for process in processes:
        process.join()
    records = sum(handled for handled, _, _, _ in found)
    return {
        "records_per_second": sum(handled / seconds for handled, seconds, _, _ in found),
        "processor_microseconds": 1e6 * sum(spent for _, _, spent, _ in found) / records,
        "records_per_batch": found[0][3],
    }


def _consume_all(
    options: argparse.Namespace,
    settings: dict[str, Any],
    take: Callable[[Consumer], tuple[int, int]],
) -> dict[str, float]:
    """Call ``take`` until the topic is read or the time is up, and commit every second.

    ``take`` returns how many records it handled and how many partitions it saw the end of.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": fresh_group(),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **settings,
        }
    )
    consumer.subscribe([options.topic])
    partitions = len(
        consumer.list_topics(options.topic, timeout=30).topics[options.topic].partitions
    )
    handled, ended = 0, 0
    begun = committed_at = ended_at = time.perf_counter()
    spent = spent_at_end = time.process_time()
    give_up = begun + START_SECONDS
    try:
        while ended < partitions:
            taken, ends = take(consumer)
            ended += ends
            now = time.perf_counter()
            if handled == 0:
                begun = committed_at = now
                spent = time.process_time()
                if now > give_up:
                    msg = f"nothing was read from {options.topic}"
                    raise TimeoutError(msg)
            elif now - begun > options.seconds:
                break
            if taken:
                ended_at, spent_at_end = now, time.process_time()
            handled += taken
            if now - committed_at >= COMMIT_SECONDS and handled:
                consumer.commit(asynchronous=True)
                committed_at = now
    finally:
        consumer.close()
    seconds = ended_at - begun
    return {
        "records_per_second": handled / seconds,
        "processor_microseconds": 1e6 * (spent_at_end - spent) / handled,
    }


def one_by_one(options: argparse.Namespace) -> dict[str, float]:
    """Run ``loop``."""
    handler = open_join(options.layer)
    matches, loads = handler.matches, json.loads

    def take(consumer: Consumer) -> tuple[int, int]:
        message = consumer.poll(1.0)
        if message is None:
            return 0, 0
        if is_end(message):
            return 0, 1
        geometry = shape(loads(message.value() or b"")["geometry"])
        matches(np.array([geometry], dtype=np.object_))
        return 1, 0

    return _consume_all(options, {}, take)


def vectorised(options: argparse.Namespace) -> dict[str, float]:
    """Run ``vector``."""
    handler = open_join(options.layer)

    def take(consumer: Consumer) -> tuple[int, int]:
        messages = consumer.consume(CONSUME_RECORDS, 0.2)
        values = [message.value() for message in messages if not is_end(message)]
        if values:
            handle(handler, values)
        return len(values), len(messages) - len(values)

    return _consume_all(options, {"fetch.queue.backoff.ms": 20}, take)


def is_end(message: Message) -> bool:
    """Whether this is the news that a partition is read to its end, and not a record."""
    error = message.error()
    if error is None:
        return False
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
        raise KafkaException(error)
    return True


def main() -> None:
    """Run one contender and print one JSON line."""
    runners = {"memory": from_memory, "loop": one_by_one, "vector": vectorised}
    parser = argparse.ArgumentParser(description="One contender of bench/throughput.py.")
    parser.add_argument("name", choices=runners)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layer", required=True)
    parser.add_argument("--bootstrap")
    parser.add_argument("--topic")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    print(json.dumps(runners[options.name](options)))


if __name__ == "__main__":
    main()
