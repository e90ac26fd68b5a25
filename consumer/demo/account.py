"""The account at the end: what became of every record, by offset, from witnesses of its own.

Owns the count. Reads what the handlers wrote down, the topic of dead letters and the group's
committed offsets; asks the worker for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition

from consumer.demo.broker import PARTITIONS, DemoError
from consumer.demo.feed import Partition
from consumer.demo.scenario import DEAD_LETTERS
from consumer.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC

_ANSWER_SECONDS = 10.0


@dataclass(slots=True)
class Account:
    """What became of the records that the broker acknowledged to the producer."""

    produced: int = 0
    #: records that a handler finished, each counted once
    handled: int = 0
    #: records on the topic of dead letters, each counted once
    dead_lettered: int = 0
    #: neither handled nor dead-lettered, and the group has gone past them: nobody ever will
    lost: int = 0
    #: not handled yet: they wait in Kafka for the next worker
    unfinished: int = 0
    #: times that a record was handled or dead-lettered again
    duplicates: int = 0
    #: not covered by the group's committed offsets: the next worker would read them again
    uncommitted: int = 0
    dead_letter_reasons: Counter[str] = field(default_factory=Counter)

    @property
    def is_complete(self) -> bool:
        """Whether every record was handled or dead-lettered, and the broker knows."""
        return self.lost == self.unfinished == self.uncommitted == 0


def settle(
    produced: Mapping[Partition, int], folder: Path, bootstrap_servers: str, group: str
) -> Account:
    """Count what became of every record.

    Parameters
    ----------
    produced : mapping
        Partition -> records; offsets run from 0.
    folder : Path
        With the files that the handlers wrote.
    bootstrap_servers, group : str
        The broker, and whose committed offsets count.

    Raises
    ------
    DemoError
        If the broker does not answer.
    """
    account = Account(produced=sum(produced.values()))
    handled = {place: np.zeros(n, dtype=np.int64) for place, n in produced.items()}
    dead = {place: np.zeros(n, dtype=np.int64) for place, n in produced.items()}
    for place, offset in _handled(folder):
        handled[place][offset] += 1
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    try:
        for place, offset, reason in _dead_letters(reader):
            dead[place][offset] += 1
            account.dead_letter_reasons[reason] += 1
        committed = _committed(reader, produced)
    except KafkaException as error:
        msg = f"the broker does not answer the account: {error.args[0].str()}"
        raise DemoError(msg) from None
    finally:
        reader.close()
    for place, n in produced.items():
        times = handled[place] + dead[place]
        account.handled += int((handled[place] > 0).sum())
        account.dead_lettered += int((dead[place] > 0).sum())
        end = committed.get(place, 0)
        account.lost += int((times[:end] == 0).sum())
        account.unfinished += int((times[end:] == 0).sum())
        account.duplicates += int(np.maximum(times - 1, 0).sum())
        account.uncommitted += max(0, n - end)
    return account


def _handled(folder: Path) -> Iterable[tuple[Partition, int]]:
    for path in folder.glob("handled-*"):
        with path.open() as file:
            for line in file:
                topic, partition, offset = line.split()
                yield (topic, int(partition)), int(offset)


def _dead_letters(reader: Consumer) -> Iterable[tuple[Partition, int, str]]:
    reader.assign([TopicPartition(DEAD_LETTERS, n, 0) for n in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = reader.poll(_ANSWER_SECONDS)
        if message is None:
            msg = f"the broker does not answer for {DEAD_LETTERS}"
            raise DemoError(msg)
        if message.error() is not None:
            # The end of a partition, or why it cannot be read.
            ended += 1
            continue
        headers = {name: _text(value) for name, value in dict(message.headers() or {}).items()}
        place = headers[SOURCE_TOPIC], int(headers[SOURCE_PARTITION])
        yield place, int(headers[SOURCE_OFFSET]), headers[REASON]


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _committed(reader: Consumer, places: Iterable[Partition]) -> dict[Partition, int]:
    asked = [TopicPartition(topic, partition) for topic, partition in places]
    answer = reader.committed(asked, timeout=_ANSWER_SECONDS)
    return {(p.topic, p.partition): p.offset for p in answer if p.offset >= 0}
