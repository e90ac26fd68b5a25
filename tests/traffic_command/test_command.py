"""``vertex-budget traffic`` as people run it: against a real Kafka, and asked wrongly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from consumer import cli
from consumer.kafka.errors import Reports
from consumer.kafka.queries import watermarks
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def read_all(servers: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Return every record of a topic, partition by partition."""
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    )
    partitions = list(reader.list_topics(topic, timeout=10).topics[topic].partitions)
    reader.assign([TopicPartition(topic, n, 0) for n in partitions])
    records, ended = [], 0
    while ended < len(partitions):
        message = reader.poll(20)
        assert message is not None, f"{topic}: nothing within 20 s"
        error = message.error()
        if error is not None:
            # Others, such as a leader that is not known yet, the client mends by itself.
            ended += error.code() == KafkaError._PARTITION_EOF
        else:
            value = message.value()
            assert value is not None
            records.append((message.key(), value))
    reader.close()
    return records


def run(*arguments: object) -> int:
    return cli.main(["traffic", *map(str, arguments)])


def last_json(capsys: pytest.CaptureFixture[str]) -> dict:
    return orjson.loads(capsys.readouterr().out.splitlines()[-1])


def test_generated_records_arrive_and_the_topic_is_made(kafka, group_id, monkeypatch, capsys):
    """Counts agree with what the broker has; the address may come from the environment."""
    topic = f"made-{group_id}"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)

    code = run(
        "--topic", topic, "--partitions", 3, "--rate", "max", "--count", 700, "--seed", 9, "--json"
    )

    said = last_json(capsys)
    assert code == 0
    assert (said["records"], said["acknowledged"], said["refused"]) == (700, 700, {})
    assert said["topic_made"] is True
    assert sum(said["by_kind"].values()) == 700
    records = read_all(kafka.bootstrap_servers, topic)
    assert len(records) == 700
    assert said["bytes"] == sum(len(value) + len(key or b"") for key, value in records)
    assert {orjson.loads(value)["type"] for _, value in records} == {"Feature"}
    kafka.delete_topic(topic)


def test_giants_go_to_a_topic_that_takes_them(kafka, group_id, capsys):
    """A topic that is made for giants has room for them."""
    topic = f"giants-{group_id}"
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"

    code = run(
        *("--topic", topic, "--partitions", 1, "--rate", "max", "--count", 20),
        *("--giants", 1, "--kafka", servers, "--json"),
    )

    assert code == 0
    assert last_json(capsys)["by_kind"]["giants"] == 1
    assert max(len(value) for _, value in read_all(kafka.bootstrap_servers, topic)) > 4_000_000
    kafka.delete_topic(topic)


def test_what_the_broker_refuses_is_counted_and_fails(kafka, topic_factory, capsys):
    """A record that is too large for its topic is told with its cause; the others arrive."""
    topic = topic_factory(1, max_message_bytes=20_000)
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"

    code = run(
        *("--topic", topic, "--rate", "max", "--count", 30, "--mix", "pings=1,coastlines=1"),
        *("--kafka", servers, "--json"),
    )

    out, err = capsys.readouterr()
    said = orjson.loads(out.splitlines()[-1])
    refused = sum(said["refused"].values())
    assert code == 1
    assert refused > 0
    assert refused + said["acknowledged"] == said["records"] == 30
    assert "max.message.bytes" in err
    assert len(read_all(kafka.bootstrap_servers, topic)) == 30 - refused


def test_files_are_replayed_in_order_and_again(kafka, topic_factory, tmp_path, capsys):
    """Values are those of the files, byte by byte; ``--repeat`` begins again until the count."""
    lines = [b'{"type":"Feature","id":%d,"geometry":null}' % n for n in range(5)]
    first, second = tmp_path / "a.ndjson", tmp_path / "b.geojson"
    first.write_bytes(b"\n".join(lines[:3]))
    second.write_bytes(b'{"type":"FeatureCollection","features":[' + b",".join(lines[3:]) + b"]}")
    topic = topic_factory(1)
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"

    code = run(
        *("--topic", topic, "--rate", "max", "--file", first, "--file", second),
        *("--repeat", "--count", 8, "--kafka", servers, "--json"),
    )

    assert code == 0
    assert last_json(capsys)["acknowledged"] == 8
    expected = [(b"%d" % (n % 5), lines[n % 5]) for n in range(8)]
    assert read_all(kafka.bootstrap_servers, topic) == expected


def test_a_bad_line_stops_the_replay_with_its_place(kafka, topic_factory, tmp_path, capsys):
    """What can no longer be replayed ends the command with exit code 1."""
    path = tmp_path / "a.ndjson"
    path.write_bytes(b'{"type":"Feature"}\nnope\n')
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"

    assert run("--topic", topic_factory(1), "--file", path, "--kafka", servers) == 1
    assert f"{path}: line 2 is not JSON" in capsys.readouterr().err


@pytest.mark.timeout(180)
def test_ctrl_c_ends_it_with_a_summary(kafka, topic_factory):
    """Everything sent until then is acknowledged, and that is exit code 0."""
    topic = topic_factory(2)
    command = [sys.executable, "-m", "consumer", "traffic", "--topic", topic, "--rate", "500"]
    environment = os.environ | {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    with subprocess.Popen(
        [*command, "--json"], cwd=ROOT, env=environment, stdout=subprocess.PIPE
    ) as process:
        try:
            reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends"})
            wait_until(
                lambda: sum(watermarks(reader, (topic, 0), 30.0, Reports()) or (0,)) > 20,
                90.0,
                "records on the topic",
            )
            reader.close()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            # Leaving the block waits for it, whatever went wrong.
            process.kill()

    said = orjson.loads(out.splitlines()[-1])
    assert process.returncode == 0
    assert said["interrupted"] is True
    assert said["acknowledged"] == said["records"] > 20
    assert len(read_all(kafka.bootstrap_servers, topic)) == said["records"]


def test_a_missing_topic_is_told_with_what_makes_it(kafka, group_id, capsys):
    """Nothing is made by accident."""
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"

    assert run("--topic", f"none-{group_id}", "--count", 1, "--kafka", servers) == 1
    err = capsys.readouterr().err
    assert f"topic none-{group_id} does not exist" in err
    assert "--partitions" in err


SERVERS = ("--kafka", "bootstrap.servers=localhost:1")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ((), "Missing option '--topic'"),
        (("--topic", "t"), "KAFKA_BOOTSTRAP_SERVERS: required"),
        (("--topic", "t", *SERVERS, "--mix", "ships=1"), "'ships' is no kind; allowed: kind=share"),
        (("--topic", "t", *SERVERS, "--rate", "0"), "'0' is no rate: records a second"),
        (("--topic", "t", *SERVERS, "--rate", "x"), "'x' is no rate"),
        (("--topic", "t", *SERVERS, "--seconds", "0"), "0.0 is not in the range"),
        (("--topic", "t", *SERVERS, "--count", "0"), "0 is not in the range"),
        (("--topic", "t", *SERVERS, "--file", "gone.json"), "'gone.json' does not exist"),
        (("--topic", "t", *SERVERS, "--giants", "1"), "--giants=1: need a known number"),
        (("--topic", "t", *SERVERS, "--giants", "9", "--count", "3"), "at most one for each"),
        (("--topic", "t", *SERVERS, "--rate", "max", "--shift", "60"), "needs a --rate"),
        (("--topic", "t", *SERVERS, "--max-vertices", "5"), "5 is not in the range"),
        (("--topic", "t", "--kafka", "bootstrap.server=x:1"), "did you mean bootstrap.servers?"),
        (("--topic", "t", "--kafka", "hunter2"), "not name=value"),
        (("--topic", "t", *SERVERS, "--file", __file__, "--giants", "2"), "leave it out with"),
        (("--topic", "t", *SERVERS, "--file", __file__, "--repeat"), "needs an end"),
        (("--topic", "t", "surplus"), "surplus"),
    ],
)
def test_what_is_asked_wrongly_is_told_and_exits_with_2(arguments, wrong, capsys):
    """One message with the value and what is allowed; nothing is sent, no traceback."""
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert wrong in err
    assert "Traceback" not in err
    assert "hunter2" not in err


def test_a_broker_that_is_not_there_exits_with_1(monkeypatch, capsys):
    """Where it looked and what to check."""
    monkeypatch.setattr("consumer.traffic.command._CLUSTER_SECONDS", 0.5)

    assert run("--topic", "t", *SERVERS, "--count", 1) == 1
    err = capsys.readouterr().err
    assert "no broker of localhost:1 answered" in err
    assert "is bootstrap.servers right" in err
