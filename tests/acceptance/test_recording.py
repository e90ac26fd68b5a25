"""A worker that records what its core is told, and the replay of it."""

from __future__ import annotations

import gzip
import subprocess
import sys
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from tests.acceptance import asking
from tests.acceptance.payloads import point, points
from tests.acceptance.running import HANDLER, ROOT, Worker, run_to_end
from tests.producing import produce

PARTITIONS = 4
EARLY: dict[str, Any] = {"VERTEX_BUDGET_WARMUP_SECONDS": 0.1, "VERTEX_BUDGET_WARMUP_MESSAGES": 500}
#: in payloads, keys, headers, outputs and exceptions, and nowhere else
SECRET = "xylophone"


def replayed(path) -> dict[str, Any]:
    """Replay a recording with the script, and return the summary."""
    done = subprocess.run(
        [sys.executable, "scripts/replay", "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return orjson.loads(done.stdout.splitlines()[-1])["summary"]


def produce_secrets(bootstrap_servers: str, topic: str) -> int:
    """Produce records that say something in every place where a record can."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    acts: Any = (
        {},
        {},
        {"do": "retry", "times": 1},
        {"do": "fail"},
        {"do": SECRET, "times": SECRET},
    )
    for number in range(40):
        _, value = point(number, note=f"{SECRET}-value", **acts[number % len(acts)])
        headers: Any = [(f"{SECRET}-name", f"{SECRET}-header".encode())]
        producer.produce(topic, value, f"{SECRET}-{number % 7}".encode(), headers=headers)
    producer.produce(topic, f"{{{SECRET}".encode(), f"{SECRET}-0".encode())
    assert producer.flush(30.0) == 0
    return 41


@pytest.mark.timeout(120)
def test_a_recorded_run_is_replayed_to_the_same_end(kafka, topic_factory, group_id, tmp_path):
    """Records, dead letters and committed offsets of the replay are the run's; no payload is kept."""
    topic = topic_factory(PARTITIONS)
    path = tmp_path / "incident.gz"
    count = produce_secrets(kafka.bootstrap_servers, topic)
    count += len(produce(kafka.bootstrap_servers, topic, points(3_000)))
    output = topic_factory(1)
    with Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic,
        group_id,
        VERTEX_BUDGET_RECORD=path,
        VERTEX_BUDGET_OUTPUT_TOPIC=output,
        **EARLY,
    ) as worker:
        worker.until(lambda: worker.metric("messages_total", "done") == count - 9, "all done")
        worker.until(
            lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "everything committed"
        )
        figures = worker.budget()
        worker.stop()
    summary = replayed(path)
    assert summary["fetched"] == count
    assert summary["records"]["done"] == figures["totals"]["messages"]["done"] == count - 9
    assert summary["dead_letters"] == {"malformed-json": 1, "not-wanted": 8}
    assert summary["committed"] == {
        f"{topic}[{partition}]": offset
        for partition, offset in asking.committed(kafka, group_id, topic).items()
    }
    assert summary["sizings"]["warm-up"] == 1
    assert (summary["state"], summary["differs"], summary["failure"]) == ("draining", "", "")
    assert summary["recording_ends"] == "the worker stopped"
    content = gzip.decompress(path.read_bytes())
    assert topic.encode() in content
    assert SECRET.encode() not in content
    assert b"coordinates" not in content


def test_a_killed_worker_leaves_what_it_was_told(kafka, topic_factory, group_id, tmp_path):
    """After SIGKILL the file is read up to its end, and the next worker keeps it under a name."""
    topic = topic_factory(PARTITIONS)
    path = tmp_path / "incident.gz"
    produce(kafka.bootstrap_servers, topic, points(600))
    arguments = (tmp_path, kafka.bootstrap_servers, topic, group_id)
    settings: dict[str, Any] = {"VERTEX_BUDGET_RECORD": path, "KAFKA_GROUP_INSTANCE_ID": "one"}
    with Worker(*arguments, **settings) as first:
        first.until_handled(600)
        first.until(lambda: asking.lag(kafka, group_id, topic, PARTITIONS) == 0, "commits")
        first.until(lambda: path.read_bytes() and replayed(path)["committed"], "it is in the file")
        first.kill()
    summary = replayed(path)
    assert summary["fetched"] == 600
    assert summary["recording_ends"] == "cut off: the worker was killed, or still runs"
    with Worker(*arguments, **settings) as second:
        second.until_ready()
        second.stop()
    assert replayed(path)["recording_ends"] == "the worker stopped"
    assert replayed(path.with_name("incident.gz.previous"))["fetched"] == 600


def test_a_recording_that_cannot_be_written_is_named_at_the_start(
    kafka, topic_factory, group_id, tmp_path
):
    """The folder is not there: exit code 1, with path, what is wrong and what to check."""
    path = tmp_path / "nowhere" / "incident.gz"
    code, text = run_to_end(
        {
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "KAFKA_GROUP_ID": group_id,
            "VERTEX_BUDGET_TOPICS": topic_factory(1),
            "VERTEX_BUDGET_HANDLER": HANDLER,
            "VERTEX_BUDGET_PROCESSES": "1",
            "VERTEX_BUDGET_HTTP_ADDRESS": "127.0.0.1:0",
            "VERTEX_BUDGET_RECORD": str(path),
            "VBTEST_RECORDS": str(tmp_path),
        }
    )
    assert code == 1
    assert "Traceback" not in text
    assert f"{path}: no recording can be written (No such file or directory)" in text
    assert "VERTEX_BUDGET_RECORD" in text
