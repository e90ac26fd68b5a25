"""What users type and read stays: the lists here may grow; nothing in them is removed or renamed.

Scripts, dashboards, alerts, deployments and handlers of users hold these names. They are written
out, and not read from the code's own tables, so that a change of a table does not change them too.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from consumer import cli
from consumer.batch import Batch, OutputRecord, Record, Retry
from consumer.core import reasons
from consumer.core.commands import Destination, Produce
from consumer.demo.account import Account
from consumer.demo.command import _report
from consumer.demo.watch import Watch
from consumer.kafka.dead_letters import Left, dead_letter_headers, dead_letter_topic
from consumer.processes.loader import load_handler
from consumer.settings.address import Address
from consumer.settings.reading import load_settings
from consumer.settings.table import SETTINGS
from consumer.telemetry.explanations import explained
from consumer.telemetry.http import HttpServer
from consumer.telemetry.logs import Log, configure_logging
from consumer.telemetry.metrics import MetricsRegistry
from tests.acceptance.running import Worker
from tests.snapshots import SNAPSHOT


def assert_stay(names: Iterable[Any], found: Iterable[Any], what: str) -> None:
    """Fail with the names that are gone; a text is a list of words."""
    gone = sorted(set(names.split() if isinstance(names, str) else names) - set(found))
    assert not gone, f"{what} are gone: {gone}; names may be added, never removed or renamed"


# -- settings and commands -----------------------------------------------------------------------

#: environment variable, flag, TOML key
SETTING_NAMES = {
    ("VERTEX_BUDGET_TOPICS", "--topics", "topics"),
    ("VERTEX_BUDGET_HANDLER", "--handler", "handler"),
    ("VERTEX_BUDGET", "--vertex-budget", "vertex_budget"),
    ("VERTEX_BUDGET_CAP", "--cap", "cap"),
    ("VERTEX_BUDGET_MODE", "--mode", "mode"),
    ("VERTEX_BUDGET_ORDERING", "--ordering", "ordering"),
    ("VERTEX_BUDGET_PROCESSES", "--processes", "processes"),
    ("VERTEX_BUDGET_MEMORY_LIMIT", "--memory-limit", "memory_limit"),
    ("VERTEX_BUDGET_MEMORY_HEADROOM", "--memory-headroom", "memory_headroom"),
    ("VERTEX_BUDGET_DEADLINE_HEADROOM", "--deadline-headroom", "deadline_headroom"),
    ("VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS", "--shutdown-grace-seconds", "shutdown_grace_seconds"),
    (
        "VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS",
        "--handler-timeout-seconds",
        "handler_timeout_seconds",
    ),
    ("VERTEX_BUDGET_WARMUP_MESSAGES", "--warmup-messages", "warmup_messages"),
    ("VERTEX_BUDGET_WARMUP_SECONDS", "--warmup-seconds", "warmup_seconds"),
    (
        "VERTEX_BUDGET_REMEASURE_INTERVAL_SECONDS",
        "--remeasure-interval-seconds",
        "remeasure_interval_seconds",
    ),
    (
        "VERTEX_BUDGET_COMMIT_INTERVAL_SECONDS",
        "--commit-interval-seconds",
        "commit_interval_seconds",
    ),
    ("VERTEX_BUDGET_MAX_ATTEMPTS", "--max-attempts", "max_attempts"),
    (
        "VERTEX_BUDGET_MAX_UNCOMMITTED_MESSAGES",
        "--max-uncommitted-messages",
        "max_uncommitted_messages",
    ),
    ("VERTEX_BUDGET_DLQ_TOPIC", "--dlq-topic", "dlq_topic"),
    ("VERTEX_BUDGET_OUTPUT_TOPIC", "--output-topic", "output_topic"),
    ("VERTEX_BUDGET_JOIN_LAYER", "--join-layer", "join_layer"),
    ("VERTEX_BUDGET_JOIN_PROPERTY", "--join-property", "join_property"),
    ("VERTEX_BUDGET_OAUTH_CB", "--oauth-cb", "oauth_cb"),
    ("VERTEX_BUDGET_HTTP_ADDRESS", "--http-address", "http_address"),
    ("VERTEX_BUDGET_LOG_FORMAT", "--log-format", "log_format"),
    ("VERTEX_BUDGET_LOG_LEVEL", "--log-level", "log_level"),
}
#: TOML key -> words that are its values
SETTING_WORDS = {
    "mode": ("enforce", "shadow"),
    "ordering": ("key", "partition", "unordered"),
    "log_format": ("text", "json"),
    "log_level": ("debug", "info", "warning", "error"),
    "processes": ("auto", "3"),
    "memory_limit": ("auto", "512MiB"),
    "handler_timeout_seconds": ("auto", "90s"),
    "cap": ("none", "2,100,000"),
    "http_address": (":9464", "0.0.0.0:9464", "[::1]:0"),
}
#: command -> flags that are no settings
COMMAND_FLAGS = {
    "run": "--config-file --kafka --help -h",
    "config": "--config-file --kafka --check --json --help -h",
    "demo": "--seconds --json --no-tui --real-kafka --seed --help -h",
    "traffic": """
        --topic --mix --rate --seconds --count --seed --shift --giants --max-vertices --vehicles
        --partitions --file --key --repeat --kafka --json --help -h
    """,
}
CONFIG_KEYS = """
    valid problems[].name problems[].source problems[].wrong problems[].allowed
    settings[].name settings[].value settings[].origin settings[].environment settings[].flag
    settings[].unit settings[].default settings[].allowed settings[].meaning
    settings[].reason_for_default kafka[].name kafka[].value kafka[].origin
"""
DEMO_KEYS = """
    produced handled dead_lettered dead_letter_reasons lost unfinished duplicates uncommitted
    evictions max_charge_over_budget states limited_by pauses peak_bytes metrics_url seconds
    sizings[].at_seconds sizings[].reason sizings[].vertex_budget sizings[].message_budget
    sizings[].binding sizings[].limited_by sizings[].memory_bound_vertices
    sizings[].deadline_bound_vertices
"""
TRAFFIC_KEYS = """
    topic topic_made records bytes acknowledged refused by_kind seconds records_per_second
    interrupted largest_allowed_bytes
"""
GOOD_SETTINGS = {
    "VERTEX_BUDGET_TOPICS": "parcels",
    "VERTEX_BUDGET_HANDLER": "consumer.handlers:validate",
    "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
    "KAFKA_GROUP_ID": "tagger",
}


def flags_of(command: str) -> set[str]:
    """Return what a command understands, as it is typed."""
    found = cli.cli.commands[command]
    context = click.Context(found, info_name=command, parent=click.Context(cli.cli))
    context.help_option_names = ["-h", "--help"]
    return {name for parameter in found.get_params(context) for name in parameter.opts}


def test_settings_keep_their_variables_flags_and_keys():
    """Each setting is one variable, one flag of run and config, and one key of the TOML file."""
    rows = {(row.variable, row.flag, row.name) for row in SETTINGS}
    assert_stay(SETTING_NAMES, rows, "settings")
    for command in ("run", "config"):
        assert_stay((row[1] for row in SETTING_NAMES), flags_of(command), f"flags of {command}")


@pytest.mark.parametrize(
    ("key", "word"), [(key, word) for key, words in SETTING_WORDS.items() for word in words]
)
def test_settings_keep_the_words_of_their_values(key: str, word: str):
    """What a deployment has written as a value is still accepted."""
    load_settings(GOOD_SETTINGS, flags={key: word})


def test_commands_keep_their_flags():
    """Commands and the flags that are no settings; ``--version`` and ``--help`` for all."""
    assert_stay(COMMAND_FLAGS, cli.cli.commands, "commands")
    for command, flags in COMMAND_FLAGS.items():
        assert_stay(flags, flags_of(command), f"flags of {command}")
    for flag in ("--version", "--help", "-h"):
        assert cli.main([flag]) == 0, flag


def test_exit_codes_stay(capsys: pytest.CaptureFixture[str]):
    """0 well, 1 it could not be done, 2 it was asked wrongly, 130 interrupted."""
    assert (cli.OK, cli.FAILED, cli.USAGE, cli.INTERRUPTED) == (0, 1, 2, 130)
    assert cli.main(["config", "--check", "--topics=a", "--handler=b:c"]) == 2
    assert "KAFKA_BOOTSTRAP_SERVERS" in capsys.readouterr().err


def test_kafka_properties_keep_their_spelling(tmp_path: Path):
    """``KAFKA_NAME``, ``KAFKA_NAME_FILE``, ``--kafka name=value`` and ``[kafka]`` in the file."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2hunter2\n")
    path = tmp_path / "worker.toml"
    path.write_text('topics = ["a"]\n[kafka]\nclient.id = "file"\n"fetch.min.bytes" = 2\n')
    given = {
        "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
        "KAFKA_GROUP_ID": "tagger",
        "KAFKA_SASL_PASSWORD_FILE": str(secret),
        "VERTEX_BUDGET_HANDLER": "a:b",
        "VERTEX_BUDGET_CONFIG_FILE": str(path),
    }
    assert load_settings(given, kafka=["client.rack=flag"]).kafka == {
        "bootstrap.servers": "kafka:9092",
        "group.id": "tagger",
        "sasl.password": "hunter2hunter2",
        "client.id": "file",
        "fetch.min.bytes": "2",
        "client.rack": "flag",
    }


def test_config_keeps_the_keys_of_its_json(capsys: pytest.CaptureFixture[str]):
    """What ``vertex-budget config --json`` writes, for deployments that check themselves."""
    assert cli.main(["config", "--json", "--topics=a", "--kafka", "client.id=x"]) == 2
    assert_stay(CONFIG_KEYS, keys(json.loads(capsys.readouterr().out)), "keys of `config --json`")


def test_the_demonstration_keeps_the_keys_of_its_json():
    """What ``vertex-budget demo --json`` writes on its last line."""
    watch = Watch(0, os.getpid())
    watch._take(explained(SNAPSHOT))
    said = json.loads(orjson.dumps(_report(watch, Account(), "http://127.0.0.1:9464")))
    assert_stay(DEMO_KEYS, keys(said), "keys of `demo --json`")


# -- metrics, HTTP -------------------------------------------------------------------------------

#: name without ``vertex_budget_`` -> labels
METRIC_LABELS: Mapping[str, tuple[str, ...]] = {
    "vertices": (),
    "messages": (),
    "bound_vertices": ("bound",),
    "bound_messages": ("bound",),
    "binding": ("bound",),
    "limited_by": ("cause",),
    "in_flight_vertices": (),
    "in_flight_messages": (),
    "in_flight_bytes": (),
    "charged_vertices": ("bound",),
    "used_ratio": ("bound",),
    "most_admitted_ratio": (),
    "bytes_per_vertex": (),
    "bytes_per_message": (),
    "seconds_per_vertex": (),
    "seconds_per_message": (),
    "vertices_per_second": (),
    "memory_available_bytes": (),
    "drain_deadline_seconds": (),
    "deadline_source": ("source",),
    "drain_bound_seconds": (),
    "predicted_drain_seconds": (),
    "partitions": ("condition",),
    "pauses_total": (),
    "resumes_total": (),
    "paused_seconds_total": (),
    "state": ("state",),
    "state_seconds_total": ("state",),
    "messages_total": ("outcome",),
    "vertices_total": (),
    "dead_letters_total": ("reason",),
    "sizings_total": ("reason",),
    "last_sizing_timestamp_seconds": (),
    "sample_messages": (),
    "sample_vertices": (),
    "lag_messages": ("partition", "topic"),
    "lag_seconds": (),
    "handler_processes": (),
    "pool_peak_ratio": (),
    "build_info": ("version",),
}
BOUNDS = ("memory", "deadline")
STATES = (
    "warming-up",
    "running",
    "backpressured",
    "stalled",
    "idle",
    "waiting-on-retries",
    "waiting-for-instance-id",
    "draining",
)
#: metric -> values of its one label
LABEL_VALUES = {
    "bound_vertices": BOUNDS,
    "bound_messages": BOUNDS,
    "binding": BOUNDS,
    "charged_vertices": BOUNDS,
    "used_ratio": BOUNDS,
    "limited_by": "none memory deadline ordering ramp cap fixed initial",
    "deadline_source": ("max.poll.interval", "shutdown-grace"),
    "partitions": ("assigned", "paused"),
    "state": STATES,
    "state_seconds_total": STATES,
    "messages_total": ("done", "dead-lettered", "skipped", "failed"),
}
PROCESS_METRICS = ("process_resident_memory_bytes", "process_cpu_seconds_total")
PATHS = ("/", "/budget", "/healthz", "/metrics", "/readyz")

FIGURES = """
    vertex_budget message_budget bound_vertices bound_messages used_ratio most_admitted_ratio
    charged_vertices in_flight_vertices in_flight_messages in_flight_bytes memory_available_bytes
    drain_deadline_seconds drain_bound_seconds predicted_drain_seconds lag_messages lag_seconds
    pool_peak_ratio
"""
BUDGET_KEYS = """
    state state_cause mode limited_by binding deadline_source
    state_seconds.warming-up state_seconds.backpressured
    figures.bound_vertices.value.memory figures.bound_vertices.value.deadline
    figures.bound_messages.value.memory figures.bound_messages.value.deadline
    figures.charged_vertices.value.memory figures.charged_vertices.value.deadline
    figures.used_ratio.value.memory figures.used_ratio.value.deadline
    sizing last_sizing_at processes.wanted processes.ready
    partitions[].topic partitions[].partition partitions[].paused partitions[].committed_end
    partitions[].lag_messages
    totals.messages.done totals.messages.dead-lettered totals.messages.failed totals.vertices
    totals.dead_letters.malformed-json totals.sizings.warm-up totals.sizings.interval
    totals.pauses totals.resumes totals.paused_seconds
    sizing.reason sizing.at sizing.vertex_budget sizing.message_budget sizing.binding
    sizing.memory_bound_vertices sizing.deadline_bound_vertices
    sizing.memory_bound_messages sizing.deadline_bound_messages
    sizing.bytes_per_vertex sizing.bytes_per_message
    sizing.seconds_per_vertex sizing.seconds_per_message
    sizing.vertices_per_second sizing.parent_seconds_per_message sizing.memory_available_bytes
    sizing.drain_deadline_seconds sizing.deadline_source sizing.processes
    sizing.effective_processes sizing.largest_chain_ratio sizing.all_decoded_bound_vertices
    sizing.notes sizing.sample.messages sizing.sample.vertices sizing.sample.payload_bytes
    sizing.sample.exact_ratio sizing.sample.handler_seconds sizing.sample.cpu_ratio
    sizing.sample.first_at sizing.sample.last_at
    sizing.sample.windows[].topic sizing.sample.windows[].partition
    sizing.sample.windows[].first_offset sizing.sample.windows[].last_offset
    sizing.sample.classes[].from_units sizing.sample.classes[].messages
    sizing.sample.classes[].units sizing.sample.classes[].observations
    sizing.sample.classes[].seconds_per_unit sizing.sample.classes[].seconds_spread_ratio
    sizing.sample.classes[].working_bytes_per_unit
"""


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every key in plain data: ``sizing.sample.windows[].topic``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}{key}"
            yield from keys(inner, f"{path}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, f"{path.removesuffix('.')}[].")


@pytest.fixture
def url() -> Iterator[str]:
    """Where a worker is served whose picture has something in every field."""
    server = HttpServer(
        Address("127.0.0.1", 0),
        MetricsRegistry(lambda: SNAPSHOT),
        lambda: SNAPSHOT,
        lambda: (True, "running"),
        lambda: (False, "joining the group"),
    )
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def test_metrics_keep_their_names_labels_and_values(url: str):
    """Dashboards and alerts query names, labels, and the values of labels that are few words."""
    text = requests.get(f"{url}/metrics", timeout=20).text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    names = {s.name.removeprefix("vertex_budget_"): tuple(sorted(s.labels)) for s in samples}
    assert_stay(METRIC_LABELS.items(), names.items(), "metrics with their labels")
    assert_stay((f"vertex_budget_{n}" for n in METRIC_LABELS), (s.name for s in samples), "names")
    assert_stay(PROCESS_METRICS, (s.name for s in samples), "metrics of the process")
    for name, values in LABEL_VALUES.items():
        found = {
            s.labels[METRIC_LABELS[name][0]] for s in samples if s.name == f"vertex_budget_{name}"
        }
        assert_stay(values, found, f"values of the label of {name}")


def test_paths_stay(url: str):
    """Scrapers, probes and people ask for these; health is a status and a reason."""
    codes = {path: requests.get(f"{url}{path}", timeout=20).status_code for path in PATHS}
    assert codes == dict.fromkeys(PATHS, 200) | {"/readyz": 503}
    assert requests.get(f"{url}/healthz", timeout=20).json() == {"live": True, "reason": "running"}
    assert_stay({"ready", "reason"}, requests.get(f"{url}/readyz", timeout=20).json(), "keys")


def test_budget_keeps_its_keys(url: str):
    """Everything of ``/budget``, to the last level."""
    found = set(keys(requests.get(f"{url}/budget", timeout=20).json()))
    assert_stay(BUDGET_KEYS, found, "keys of /budget")
    for figure in FIGURES.split():
        said = {f"figures.{figure}.{key}" for key in ("value", "unit", "formula")}
        assert_stay(said, found, "figures of /budget")


# -- reasons, dead letters -----------------------------------------------------------------------

REASONS = {
    "Reason": """
        malformed-json not-geojson unsupported-format unsupported-type bad-coordinates open-ring
        too-deep handler-error handler-refused retries-exhausted out-of-memory killed-process
        timed-out output-too-large
    """,
    "RetryReason": "suspect-memory retry-requested follows-a-retry",
    "SizingReason": "warm-up interval mix-drift new-class prediction-failed memory-limit",
    "KillReason": "timed-out stop",
    "PauseReason": "ordering retry uncommitted",
}
#: the last two of one that its topic refused as too large
DEAD_LETTER_HEADERS = """
    dlq.reason dlq.error.class dlq.error.text dlq.source.topic dlq.source.partition
    dlq.source.offset dlq.attempts dlq.worker.version dlq.value.bytes dlq.value.sha256
"""


@pytest.mark.parametrize("kind", REASONS)
def test_reasons_stay(kind: str):
    """Labels of metrics, values of headers, and words of the log."""
    assert_stay(REASONS[kind], map(str, getattr(reasons, kind)), f"codes of {kind}")


def test_dead_letters_keep_their_topic_and_headers():
    """Who reads dead letters finds them by topic and tells them apart by their headers."""
    letter = Produce(
        1, Destination.DEAD_LETTER, ("parcels", 3), 70, b"key", b"{", [("trace", b"1")], 0
    )
    headers = dead_letter_headers(letter, worker_version="1", left=Left.VALUE)
    assert_stay(f"{DEAD_LETTER_HEADERS} trace", (name for name, _ in headers), "headers")
    assert dead_letter_topic("parcels") == "parcels.dlq"


# -- the log -------------------------------------------------------------------------------------


@pytest.fixture
def root_logger() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_log_line_keeps_its_shape(log_format: str):
    """Text: time, level, message, ``name=value``. JSON: the same by name, levels in small words."""
    now = [0.0]
    stream = io.StringIO()
    writer = configure_logging(log_format, stream=stream)
    log = Log("vertex-budget", 30.0, clock=lambda: now[0])
    log.say("info", "idle: no traffic", {"state": "idle"})
    for now[0] in (0.0, 1.0, 31.0):
        log.say("warning", "a commit failed", repeat_key="commit")
    try:
        raise OSError
    except OSError:
        logging.getLogger("consumer.telemetry.http").exception("cannot answer")
    writer.close()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    lines = stream.getvalue().splitlines()
    if log_format == "text":
        expected = (
            "INFO    idle: no traffic state=idle",
            "WARNING a commit failed",
            "WARNING a commit failed suppressed=1",
            'ERROR   cannot answer exception="Traceback .*"',
        )
        for line, shape in zip(lines, expected, strict=True):
            assert re.fullmatch(f"{time} {shape}", line), line
        return
    entries = [json.loads(line) for line in lines]
    assert [entry["level"] for entry in entries] == ["info", "warning", "warning", "error"]
    for entry in entries:
        assert_stay("time level logger message", entry, "fields of every line")
        assert re.fullmatch(time, entry["time"])
    assert (entries[0]["state"], entries[2]["suppressed"]) == ("idle", 1)
    assert "Traceback" in entries[3]["exception"]


def test_a_worker_keeps_the_fields_of_its_log(kafka, topic_factory, group_id, tmp_path, capsys):
    """A real worker on real traffic: each line an object, with fields beside the message."""
    topic = topic_factory(2)
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    arguments = ["--topic", topic, "--count", "2000", "--rate", "max", "--kafka", servers, "--json"]
    assert cli.main(["traffic", *arguments]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert_stay(TRAFFIC_KEYS, said, "keys of `traffic --json`")
    worker = Worker(
        tmp_path,
        kafka.bootstrap_servers,
        topic,
        group_id,
        processes=1,
        VERTEX_BUDGET_LOG_FORMAT="json",
        VERTEX_BUDGET_WARMUP_SECONDS=0.05,
        VERTEX_BUDGET_WARMUP_MESSAGES=500,
    )
    with worker:
        worker.until(lambda: worker.metric("sizings_total", "warm-up") == 1, "a sizing")
        worker.stop()
    entries = [json.loads(line) for line in worker.log().splitlines()]
    assert {entry["logger"] for entry in entries} >= {"vertex-budget"}
    for field, words in (
        ("state", r"(draining|running|backpressured|idle|warming-up): "),
        (
            "pool_peak_ratio",
            r"sized \(warm-up\): budget [\d,]+ vertices / [\d,]+ messages, .*binds",
        ),
        ("message", r"\d+ handler processes of .*; metrics on port \d+$"),
    ):
        assert [e for e in entries if field in e and re.match(words, e["message"])], field


# -- what handlers import ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["consumer.handlers:validate", "consumer.handlers:join"])
def test_handlers_that_come_with_the_worker_stay(name: str):
    """A deployment names them in ``VERTEX_BUDGET_HANDLER``."""
    load_handler(name)


def test_what_handlers_import_stays():
    """``from consumer.batch import ...``: the classes, and what a handler does with a batch."""
    module = importlib.import_module("consumer.batch")
    assert_stay(("Batch", "OutputRecord", "Record", "Retry"), vars(module), "names")
    assert issubclass(Retry, Exception)
    members = "geometries records properties document fail retry done output"
    assert_stay(members, dir(Batch), "members of Batch")
    assert_stay("key value headers topic partition offset timestamp_ms", Record._fields, "fields")
    # The rest is given by position as well.
    for callable_, parameters in (
        (OutputRecord, "index value key headers"),
        (Batch.fail, "self index reason text"),
        (Batch.retry, "self index reason"),
        (Batch.done, "self index"),
        (Batch.output, "self index value key headers"),
    ):
        assert " ".join(inspect.signature(callable_).parameters).startswith(parameters)
