"""``vertex-budget traffic``: write generated or replayed records to a topic.

Owns the flow of the command: check, topic, send, summary, exit code. Reads no settings of the worker.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from consumer.errors import ConfigError, ConsumerError
from consumer.kafka.properties import CONSUMER_ONLY
from consumer.kafka.start_check import check_cluster
from consumer.runtime.signals import StopSignals
from consumer.settings.kafka_options import read_kafka
from consumer.traffic.files import read_records
from consumer.traffic.mix import Day, parse_mix
from consumer.traffic.sender import MOST_MESSAGE_BYTES, Sender, Sent
from consumer.traffic.stream import LARGEST_BLOCK, Plan, Traffic, blocks

_CLUSTER_SECONDS = 10.0


class TrafficError(ConsumerError):
    """Records cannot be written: there is no broker, or no topic."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, as the command line says it."""

    topic: str
    mix: str
    #: records a second; None: as fast as the broker takes them
    rate: float | None
    seconds: float | None
    count: int | None
    seed: int
    #: seconds of a day; None: every hour is alike
    shift: float | None
    giants: int
    max_vertices: int
    vehicles: int
    #: make the topic with so many, when it is missing
    partitions: int | None
    files: Sequence[Path]
    key_property: str | None
    repeat: bool
    kafka: Sequence[str]
    as_json: bool


def run(request: Request) -> int:
    """Write the records and say what became of them.

    Returns
    -------
    int
        0 when the broker took everything that was sent, also after an interruption; else 1.

    Raises
    ------
    ConsumerError
        When the request is wrong, or nothing can be written at all.
    """
    work = _replay(request) if request.files else _generate(request)
    properties = read_kafka(os.environ, request.kafka)
    properties = {n: v for n, v in properties.items() if n not in CONSUMER_ONLY}
    made = _ready_topic(properties, request)
    console = Console(stderr=True)
    with StopSignals() as signals:

        def stop() -> bool:
            return signals.count > 0

        progress, advance = _progress(console, work.expected, request.seconds)
        sender = Sender(properties, request.topic, is_stopped=stop, on_progress=advance)
        problem: ConsumerError | None = None
        with progress:
            try:
                for due_seconds, records in work.blocks:
                    if request.seconds is not None and sender.sent.seconds >= request.seconds:
                        break
                    if not sender.send(due_seconds, records):
                        break
            except ConsumerError as error:
                # What was sent before it is to be told first.
                problem = error
            sent = sender.finish()
        # What was made and not sent would be counted with the rest.
        kinds = {} if stop() else work.kinds()
        _summary(request, sent, made, interrupted=stop(), kinds=kinds)
    if problem is not None:
        raise problem
    return 1 if sent.refused else 0


def _refused(value: object, flag: str, text: str) -> ConfigError:
    return ConfigError(flag, value, text)


@dataclass(frozen=True, slots=True)
class _Work:
    blocks: Iterator[tuple[float, Sequence[tuple[bytes | None, bytes]]]]
    #: records, where it is known
    expected: int | None
    #: records by kind so far
    kinds: Callable[[], dict[str, int]]


def _generate(request: Request) -> _Work:
    mix = parse_mix(request.mix)
    if request.shift is not None and request.rate is None:
        raise _refused(request.shift, "--shift", "a day's rhythm needs a --rate")
    plan = Plan(
        mix,
        rate=request.rate,
        count=request.count,
        seconds=request.seconds,
        day=None if request.shift is None else Day(request.shift),
    )
    if request.giants:
        if plan.expected_records is None:
            needs = "need a known number of records: give --count, or --rate and --seconds"
            raise _refused(request.giants, "--giants", needs)
        if request.giants > plan.expected_records:
            most = f"at most one for each of the {plan.expected_records:,} records"
            raise _refused(request.giants, "--giants", most)
        plan = Plan(mix, plan.rate, plan.count, plan.seconds, plan.day, request.giants)
    traffic = Traffic(
        request.seed, vehicles=request.vehicles, coast_vertices=(1_000, request.max_vertices)
    )
    stream = ((block.due_seconds, block.records) for block in blocks(traffic, plan))
    return _Work(stream, plan.expected_records, lambda: dict(traffic.made))


def _replay(request: Request) -> _Work:
    for name, given in (("--giants", request.giants), ("--shift", request.shift)):
        if given:
            raise _refused(given, name, "is for generated records: leave it out with --file")
    if request.repeat and request.count is None and request.seconds is None:
        raise _refused(request.repeat, "--repeat", "needs an end: --count or --seconds")

    def records() -> Iterator[tuple[bytes | None, bytes]]:
        while True:
            some = False
            for path in request.files:
                for record in read_records(path, request.key_property):
                    some = True
                    yield record
            if not (request.repeat and some):
                return

    def timed() -> Iterator[tuple[float, list[tuple[bytes | None, bytes]]]]:
        rate = request.rate
        size = LARGEST_BLOCK if rate is None else max(1, min(LARGEST_BLOCK, int(rate / 20)))
        stream = itertools.islice(records(), request.count)
        sent = 0
        while block := list(itertools.islice(stream, size)):
            yield (sent / rate if rate else 0.0), block
            sent += len(block)

    return _Work(timed(), request.count if request.repeat else None, dict)


def _ready_topic(properties: dict[str, str], request: Request) -> bool:
    """Find the topic, or make it; return whether it was made."""
    found = check_cluster(properties, [request.topic], _CLUSTER_SECONDS)
    if not found.problems:
        return False
    text = "; ".join(found.problems)
    if not found.brokers or "does not exist" not in text:
        raise TrafficError(text)
    if request.partitions is None:
        text += "; --partitions 4 makes it"
        raise TrafficError(text)
    from consumer.broker.admin import KafkaAdmin

    admin = KafkaAdmin(properties["bootstrap.servers"], properties)
    config = {"max_message_bytes": 16 << 20} if request.giants else {}
    admin.create_topic(request.topic, request.partitions, **config)
    return True


def _progress(
    console: Console, expected: int | None, seconds: float | None
) -> tuple[AbstractContextManager[Any], Callable[[Sent], None]]:
    """Return a bar to enter and what moves it; without a terminal, nothing."""
    if not console.is_terminal:
        return nullcontext(), lambda _: None
    bar = Progress(
        SpinnerColumn(),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    total = float(expected) if expected is not None else seconds
    task = bar.add_task("", total=total)

    def advance(sent: Sent) -> None:
        text = (
            f"{sent.records:,} records, {sent.bytes / 1e6:,.1f} MB,"
            f" {sent.records_per_second:,.0f}/s"
        )
        if sent.refused:
            text += f", {sum(sent.refused.values()):,} refused"
        done = float(sent.records) if expected is not None else sent.seconds
        bar.update(task, completed=done, description=text)

    return bar, advance


def _summary(
    request: Request, sent: Sent, made: bool, *, interrupted: bool, kinds: dict[str, int]
) -> None:
    console = Console(highlight=False, soft_wrap=True, stderr=request.as_json)
    if made:
        console.print(f"made topic {request.topic} with {request.partitions} partitions")
    console.print(
        f"{'interrupted: ' if interrupted else ''}sent {sent.records:,} records"
        f" ({sent.bytes / 1e6:,.1f} MB) to {request.topic} in {sent.seconds:,.1f} s,"
        f" {sent.records_per_second:,.0f} a second; {sent.acknowledged:,} acknowledged"
    )
    if kinds:
        console.print("  " + ", ".join(f"{n:,} {kind}" for kind, n in kinds.items()))
    for why, count in sent.refused.most_common():
        text = why
        if "MSG_SIZE_TOO_LARGE" in why:
            text += "; raise the topic's max.message.bytes, or lower --max-vertices"
        console.print(f"  {count:,} refused: {text}")
    if request.as_json:
        data = {
            "topic": request.topic,
            "topic_made": made,
            "records": sent.records,
            "bytes": sent.bytes,
            "acknowledged": sent.acknowledged,
            "refused": dict(sent.refused),
            "by_kind": kinds,
            "seconds": round(sent.seconds, 3),
            "records_per_second": round(sent.records_per_second, 1),
            "interrupted": interrupted,
            "largest_allowed_bytes": MOST_MESSAGE_BYTES,
        }
        print(orjson.dumps(data).decode())  # noqa: T201 - the command's result
