"""Settings: names, sources, precedence, ranges, and every problem at once."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from consumer.core.config import FlowConfig, Mode, Ordering
from consumer.kafka.dead_letters import dead_letter_topic
from consumer.kafka.properties import client_refusal, property_of
from consumer.settings.address import Address
from consumer.settings.reading import (
    Reading,
    Settings,
    SettingsError,
    load_settings,
    read_settings,
    settings_table_markdown,
)
from consumer.settings.sources import is_injected
from consumer.settings.table import SETTINGS, shown

BASE = {
    "VERTEX_BUDGET_TOPICS": "parcels",
    "VERTEX_BUDGET_HANDLER": "shop.geo:tag",
    "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
    "KAFKA_GROUP_ID": "tagger",
}

#: field -> (as text, as a TOML value, parsed): one that is not the default
OTHER_VALUES: dict[str, tuple[str, Any, Any]] = {
    "topics": ("parcels, roads", ["parcels", "roads"], ("parcels", "roads")),
    "handler": ("a.b:C.handle", "a.b:C.handle", "a.b:C.handle"),
    "vertex_budget": ("2,100,000", 2_100_000, 2_100_000),
    "cap": ("5000000", 5_000_000, 5_000_000),
    "mode": ("Shadow", "shadow", Mode.SHADOW),
    "ordering": ("partition", "partition", Ordering.PARTITION),
    "processes": ("3", 3, 3),
    "memory_limit": ("512MiB", 536_870_912, 536_870_912),
    "memory_headroom": ("0.7", 0.7, 0.7),
    "deadline_headroom": ("1", 1, 1.0),
    "shutdown_grace_seconds": ("1m30s", 90, 90.0),
    "handler_timeout_seconds": ("20", 20.0, 20.0),
    "warmup_messages": ("500", 500, 500),
    "warmup_seconds": ("500ms", 0.5, 0.5),
    "remeasure_interval_seconds": ("10", 10, 10.0),
    "commit_interval_seconds": ("0.25", 0.25, 0.25),
    "max_attempts": ("1", 1, 1),
    "max_uncommitted_messages": ("1_000", 1000, 1000),
    "dlq_topic": ("dead", "dead", "dead"),
    "output_topic": ("tagged", "tagged", "tagged"),
    "join_layer": ("/data/zones.geojson", "/data/zones.geojson", "/data/zones.geojson"),
    "join_property": ("name", "name", "name"),
    "oauth_cb": ("shop.auth:token", "shop.auth:token", "shop.auth:token"),
    "http_address": ("[::1]:8080", "[::1]:8080", Address("::1", 8080)),
    "log_format": ("JSON", "json", "json"),
    "log_level": ("debug", "debug", "debug"),
    "record": ("/data/incident.gz", "/data/incident.gz", "/data/incident.gz"),
}

#: field -> texts that are not allowed
BAD_VALUES: dict[str, tuple[str, ...]] = {
    "topics": (",", "a b", "..", "x" * 250, "^geo.*"),
    "handler": ("module", "module:", ":name", "a/b:c", "a:b()"),
    "vertex_budget": ("0", "-1", "1.5", "many", "1" + "0" * 16),
    "cap": ("0", "1,00"),
    "mode": ("on",),
    "ordering": ("keys",),
    "processes": ("0", "1025", "two"),
    "memory_limit": ("512", "1XB", "-1GiB"),
    "memory_headroom": ("0", "1.01", "nan", "80%"),
    "deadline_headroom": ("0", "-0.5", "inf"),
    "shutdown_grace_seconds": ("0", "-1", "1 parsec", "86401"),
    "handler_timeout_seconds": ("0",),
    "warmup_messages": ("0", "true"),
    "warmup_seconds": ("0", "inf"),
    "remeasure_interval_seconds": ("0.5",),
    "commit_interval_seconds": ("0",),
    "max_attempts": ("0",),
    "max_uncommitted_messages": ("0",),
    "dlq_topic": ("a/b",),
    "output_topic": ("a b",),
    "join_layer": (),
    "join_property": (),
    "oauth_cb": ("token",),
    "http_address": ("9464", "localhost", ":65536", "[::g]:1", "a b:1", "::1:80"),
    "log_format": ("xml",),
    "log_level": ("loud",),
    "record": (),
}


def loaded(**extra: str) -> Settings:
    """Return the settings of ``BASE`` and these variables."""
    return load_settings(BASE | extra)


def problems_of(environment: dict[str, str], **sources: Any) -> list[str]:
    """Return the text of every problem."""
    return [str(problem) for problem in read_settings(environment, **sources).problems]


def toml_file(folder: Path, content: dict[str, Any]) -> str:
    """Write a TOML file and return its path."""
    path = folder / "worker.toml"
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    # JSON's numbers, texts, lists and true are TOML's as well.
    lines = [f"{k} = {json.dumps(v)}" for k, v in content.items() if k not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in table.items())]
    path.write_text("\n".join(lines))
    return str(path)


def origins(reading: Reading) -> dict[str, str]:
    """Return where each setting and property comes from."""
    return {row.name: row.origin for row in (*reading.shown, *reading.kafka_shown)}


def test_defaults_are_those_of_the_core():
    """What is not set is what the core takes by itself, so the two cannot drift apart."""
    settings = loaded()
    assert settings.flow_config(processes=4) == FlowConfig(processes=4)
    assert (settings.memory_headroom, settings.deadline_headroom) == (0.8, 0.5)
    assert settings.http_address == Address("", 9464)


def test_the_table_says_where_dead_letters_go():
    """What is said of the default is what the producer does."""
    (default,) = (row.default for row in SETTINGS if row.name == "dlq_topic")
    assert default == f"auto: {dead_letter_topic('<topic>')}"


def test_every_row_is_complete_and_tested():
    """Each row of the table says what it means, what is allowed and why; and is tried here."""
    names = [row.name for row in SETTINGS]
    assert names == list(OTHER_VALUES) == list(BAD_VALUES)
    for row in SETTINGS:
        assert row.help.endswith("."), row.name
        assert row.allowed, row.name
        assert row.default, row.name
        assert row.reason, row.name


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_every_setting_is_read_from_every_source(row, tmp_path):
    """A setting means the same as a variable, as a key of the file and as a flag."""
    text, in_toml, parsed = OTHER_VALUES[row.name]
    environment = {name: value for name, value in BASE.items() if name != row.variable}
    path = toml_file(tmp_path, {row.name: in_toml})

    by_variable = load_settings(environment | {row.variable: text})
    by_file = load_settings(environment, config_file=path)
    by_flag = load_settings(environment, flags={row.name: text})

    for settings in (by_variable, by_file, by_flag):
        assert getattr(settings, row.name) == parsed
    reading = read_settings(environment, flags={row.name: text})
    assert origins(reading)[row.name] == f"flag {row.flag}"


@pytest.mark.parametrize(
    ("row", "bad"),
    [(row, bad) for row in SETTINGS for bad in BAD_VALUES[row.name]],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(row, bad):
    """The message holds the variable, its source, the offending value and the allowed range."""
    (problem,) = problems_of(BASE | {row.variable: bad})
    assert problem.startswith(f"{row.variable} (environment): ")
    assert problem.endswith(f" is not allowed; allowed: {row.allowed}")
    assert bad[:50] in problem


@pytest.mark.parametrize(
    ("name", "word"), [("processes", "auto"), ("cap", "none"), ("dlq_topic", "AUTO")]
)
def test_a_later_source_can_say_what_being_unset_means(name, word):
    """``auto`` and ``none`` undo a value of an earlier source."""
    text = OTHER_VALUES[name][0]
    variable = next(row.variable for row in SETTINGS if row.name == name)
    settings = load_settings(BASE | {variable: text}, flags={name: word})
    assert getattr(settings, name) is None


def test_an_empty_variable_counts_as_not_set():
    """Compose passes ``${CAP:-}`` as an empty text."""
    assert loaded(VERTEX_BUDGET_CAP="", KAFKA_CLIENT_ID="").cap is None


def test_later_sources_win_setting_by_setting(tmp_path):
    """Defaults, environment, file, flags: each setting is taken from the last that names it."""
    path = toml_file(
        tmp_path,
        {
            "warmup_messages": 20,
            "max_attempts": 20,
            "kafka": {"client.id": "f", "client.rack": "f"},
        },
    )
    reading = read_settings(
        BASE
        | {
            "VERTEX_BUDGET_CONFIG_FILE": path,
            "VERTEX_BUDGET_WARMUP_MESSAGES": "10",
            "VERTEX_BUDGET_MAX_ATTEMPTS": "10",
            "VERTEX_BUDGET_PROCESSES": "10",
            "KAFKA_CLIENT_ID": "e",
            "KAFKA_CLIENT_RACK": "e",
        },
        flags={"max_attempts": "30", "processes": None},
        kafka=["client.rack=r"],
    )
    settings = reading.settings
    assert settings is not None
    assert (settings.processes, settings.warmup_messages, settings.max_attempts) == (10, 20, 30)
    assert (settings.kafka["client.id"], settings.kafka["client.rack"]) == ("f", "r")
    assert settings.commit_interval_seconds == 1
    found = origins(reading)
    assert found["processes"] == "environment VERTEX_BUDGET_PROCESSES"
    assert found["warmup_messages"] == f"{path} warmup_messages"
    assert found["max_attempts"] == "flag --max-attempts"
    assert found["client.id"] == f"{path} kafka.client.id"
    assert found["client.rack"] == "flag --kafka client.rack"
    assert found["commit_interval_seconds"] == "default"


def test_a_file_may_write_properties_as_dotted_keys(tmp_path):
    """``bootstrap.servers = ...`` is a table in a table to TOML, and a property to us."""
    path = tmp_path / "worker.toml"
    path.write_text(
        "topics = ['parcels']\nhandler = 'a:b'\n[kafka]\nbootstrap.servers = 'kafka:9092'\n"
        "group.id = 'g'\nfetch.min.bytes = 10\nsocket.keepalive.enable = true\n"
    )
    settings = load_settings({}, config_file=str(path))
    assert settings.kafka == {
        "bootstrap.servers": "kafka:9092",
        "group.id": "g",
        "fetch.min.bytes": "10",
        "socket.keepalive.enable": "true",
    }


def test_all_problems_are_reported_at_once(tmp_path):
    """One run tells everything that is wrong, from every source, alone and together."""
    path = toml_file(
        tmp_path, {"capp": 1, "cap": 7, "kafka": {"enable.auto.commit": True, "linger.ms": 2}}
    )
    environment = {
        "VERTEX_BUDGET_TOPICS": "parcels",
        "VERTEX_BUDGET_PROCESES": "4",
        "VERTEX_BUDGET_PROCESSES": "lots",
        "VERTEX_BUDGET_OUTPUT_TOPIC": "parcels",
        "VERTEX_BUDGET": "2000",
        "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
        "KAFKA_SESION_TIMEOUT_MS": "6000",
        "KAFKA_MAX_POLL_INTERVAL_MS": "0",
    }
    with pytest.raises(SettingsError) as caught:
        load_settings(environment, flags={"memory_headroom": "8"}, kafka=["oops"], config_file=path)
    names = [problem.name for problem in caught.value.problems]
    assert sorted(names) == sorted(
        [
            "VERTEX_BUDGET_PROCESES",
            "capp",
            "--kafka",
            "KAFKA_SESION_TIMEOUT_MS",
            "KAFKA_MAX_POLL_INTERVAL_MS",
            "kafka.enable.auto.commit",
            "KAFKA_GROUP_ID",
            "VERTEX_BUDGET_HANDLER",
            "VERTEX_BUDGET_PROCESSES",
            "--memory-headroom",
            "VERTEX_BUDGET_OUTPUT_TOPIC",
            "cap",
        ]
    )
    text = str(caught.value)
    assert text.startswith("12 settings are not right:\n")
    assert "did you mean VERTEX_BUDGET_PROCESSES?" in text
    assert "did you mean cap?" in text
    assert "did you mean session.timeout.ms?" in text
    assert "allowed range 1..86400000" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


@pytest.mark.parametrize(
    ("extra", "name", "wrong"),
    [
        ({"VERTEX_BUDGET_DLQ_TOPIC": "parcels"}, "VERTEX_BUDGET_DLQ_TOPIC", "feed itself"),
        ({"VERTEX_BUDGET_OUTPUT_TOPIC": "parcels"}, "VERTEX_BUDGET_OUTPUT_TOPIC", "feed itself"),
        ({"VERTEX_BUDGET_TOPICS": "a,a.dlq"}, "VERTEX_BUDGET_TOPICS", "read only one"),
        (
            {"VERTEX_BUDGET_DLQ_TOPIC": "x", "VERTEX_BUDGET_OUTPUT_TOPIC": "x"},
            "VERTEX_BUDGET_OUTPUT_TOPIC",
            "choose another",
        ),
        ({"VERTEX_BUDGET": "9", "VERTEX_BUDGET_CAP": "9"}, "VERTEX_BUDGET_CAP", "not capped"),
        (
            {"VERTEX_BUDGET_HANDLER": "consumer.handlers:join"},
            "VERTEX_BUDGET_JOIN_LAYER",
            "required",
        ),
        (
            {"VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS": "301"},
            "VERTEX_BUDGET_HANDLER_TIMEOUT_SECONDS",
            "300 seconds",
        ),
        ({"KAFKA_MAX_POLL_INTERVAL_MS": "30000"}, "KAFKA_MAX_POLL_INTERVAL_MS", "45000"),
        (
            {"KAFKA_GROUP_PROTOCOL": "consumer", "KAFKA_SESSION_TIMEOUT_MS": "6000"},
            "KAFKA_SESSION_TIMEOUT_MS",
            "group.protocol=consumer",
        ),
        ({"KAFKA_ENABLE_AUTO_COMMIT": "true"}, "KAFKA_ENABLE_AUTO_COMMIT", "must be false"),
    ],
)
def test_values_that_contradict_each_other_are_named(extra, name, wrong):
    """Each value is allowed alone; together they are one problem, at the setting to change."""
    (problem,) = problems_of(BASE | extra)
    assert problem.startswith(name)
    assert wrong in problem


def test_the_poll_interval_reaches_the_core():
    """The drain deadline rests on the interval that the client really has."""
    settings = loaded(KAFKA_MAX_POLL_INTERVAL_MS="90000", VERTEX_BUDGET="5")
    assert settings.max_poll_interval_seconds == 90
    config = settings.flow_config(processes=2)
    assert (config.max_poll_interval_seconds, config.fixed_vertices) == (90, 5)
    assert settings.flow_config(2, max_poll_interval_seconds=60).max_poll_interval_seconds == 60


def test_settings_cannot_change():
    """One reading holds for the life of the worker."""
    settings = loaded()
    with pytest.raises(ValidationError):
        settings.cap = 5


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_BOOTSTRAP_SERVERS", "bootstrap.servers"),
        ("KAFKA_SSL_CA_LOCATION", "ssl.ca.location"),
        ("KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL", "sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_a_variable_names_the_property_with_dots(variable, name):
    """Underscores stand for dots, and the client knows the outcome."""
    assert property_of(variable) == name
    assert client_refusal(name, "x") is None


def test_a_secret_is_read_from_a_file_and_never_shown(tmp_path, capsys):
    """``..._FILE`` takes the value from the file, without its last newline; nothing prints it."""
    path = tmp_path / "password"
    path.write_text("hunter2hunter2\n")
    reading = read_settings(
        BASE | {"KAFKA_SASL_PASSWORD_FILE": str(path), "KAFKA_SASL_USERNAME": "me"}
    )
    settings = reading.settings
    assert settings is not None
    assert settings.kafka["sasl.password"] == "hunter2hunter2"
    assert "sasl.password.file" not in settings.kafka
    assert settings.secrets == ("hunter2hunter2",)
    assert "hunter2" not in repr((reading, settings))
    assert ("sasl.password", "(hidden)") in {(row.name, row.value) for row in reading.kafka_shown}


def test_paths_and_real_file_properties_are_passed_on_as_they_are():
    """A location is a path for the client to read; and some properties are called ``.file``."""
    settings = loaded(
        KAFKA_SSL_CA_LOCATION="/etc/ca.pem",
        KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE="/etc/key.pem",
    )
    assert settings.kafka["ssl.ca.location"] == "/etc/ca.pem"
    assert settings.kafka["sasl.oauthbearer.assertion.private.key.file"] == "/etc/key.pem"


def test_a_secret_file_that_cannot_be_read_is_named(tmp_path):
    """The path and the reason are told; a secret given twice at one place is refused."""
    (problem,) = problems_of(BASE | {"KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "missing")})
    assert problem.startswith("KAFKA_SASL_PASSWORD_FILE (environment): cannot read")
    path = tmp_path / "password"
    path.write_text("from the file")
    (problem,) = problems_of(
        BASE | {"KAFKA_SASL_PASSWORD": "given", "KAFKA_SASL_PASSWORD_FILE": str(path)}
    )
    assert "KAFKA_SASL_PASSWORD says the same property" in problem
    assert "given" not in problem


@pytest.mark.parametrize(
    "environment",
    [
        {"KAFKA_SASL_PASWORD": "hunter2"},
        {"KAFKA_PASSWORD": "hunter2"},
        {"VERTEX_BUDGET_PASSWORD": "hunter2"},
        {"KAFKA_SSL_KEY_PASSWORD": "hunter2", "KAFKA_SSL_KEY_PASSWRD": "hunter2"},
    ],
)
def test_no_message_holds_what_may_be_a_secret(environment):
    """A secret whose name has a typing error is not shown either."""
    reading = read_settings(BASE | environment)
    assert reading.problems
    assert "hunter2" not in f"{SettingsError(reading.problems)} {reading}"


SERVICE = {
    "SERVICE_HOST": "10.96.0.12",
    "SERVICE_PORT": "9092",
    "SERVICE_PORT_CLIENT": "9092",
    "PORT": "tcp://10.96.0.12:9092",
    "PORT_9092_TCP": "tcp://10.96.0.12:9092",
    "PORT_9092_TCP_PROTO": "tcp",
    "PORT_9092_TCP_PORT": "9092",
    "PORT_9092_TCP_ADDR": "10.96.0.12",
    "PORT_53_UDP": "udp://[fd00::1]:53",
}


@pytest.mark.parametrize("service", ["KAFKA", "VERTEX_BUDGET", "KAFKA_HEADLESS"])
def test_what_kubernetes_injects_for_a_service_is_ignored(service):
    """A Service called ``kafka`` or ``vertex-budget`` puts such variables into every container."""
    injected = {f"{service}_{name}": value for name, value in SERVICE.items()}
    assert load_settings(BASE | injected | {"VERTEX_BUDGET_CORPUS": "/data"}) == loaded()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_PORT", "9092"),
        ("VERTEX_BUDGET_PORT", "8080"),
        ("VERTEX_BUDGET_SERVICE_HOST", "kafka.example"),
        ("KAFKA_SERVICE_PORT", "tcp"),
        ("VERTEX_BUDGET_PORTS", "tcp://10.0.0.1:1"),
    ],
)
def test_what_only_looks_injected_is_a_problem(variable, value):
    """A person's own mistake is not passed over because its name resembles Kubernetes'."""
    assert not is_injected(variable, value)
    assert [p.name for p in read_settings(BASE | {variable: value}).problems] == [variable]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"topics = [", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        (None, "cannot read it: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(content, wrong, tmp_path):
    """What is wrong with the file is told, beside everything else that is wrong."""
    path = tmp_path / "worker.toml"
    if content is not None:
        path.write_bytes(content)
    found = problems_of(BASE | {"VERTEX_BUDGET_CAP": "0"}, config_file=str(path))
    assert len(found) == 2
    assert found[0].startswith(f"config file ({path}): {wrong}")


def test_values_are_shown_as_they_can_be_written():
    """What ``config`` shows can be copied into a variable, and means the same there."""
    settings = loaded(**{row.variable: OTHER_VALUES[row.name][0] for row in SETTINGS[3:]})
    again = load_settings(
        BASE | {row.variable: shown(getattr(settings, row.name)) for row in SETTINGS[3:]}
    )
    assert again == settings


def test_the_table_as_markdown_has_a_line_for_each_row():
    """What the documentation shows is made from the table; a bar in a text does not end a cell."""
    lines = settings_table_markdown().splitlines()
    assert len(lines) == 2 + len(SETTINGS)
    cap = next(line for line in lines if "`VERTEX_BUDGET_CAP`" in line)
    assert "| `--cap` |" in cap
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 7 for line in lines)


#: what the core is told by something else than a setting
NOT_SET = {
    "processes",
    "retry_backoff_seconds",
    "retry_backoff_limit_seconds",
    "chunk_seconds",
    "chunk_bytes",
    "fetch_messages",
    "client_queue_bytes",
    "max_poll_interval_seconds",
}


def test_every_setting_of_the_core_arrives_there():
    """A line that ``flow_config`` lacks would have a setting do nothing, without a word."""
    other = {name: parsed for name, (_, _, parsed) in OTHER_VALUES.items()}
    usual, changed = (s.flow_config(2) for s in (loaded(), loaded().model_copy(update=other)))
    names = {each.name for each in dataclasses.fields(FlowConfig)} - NOT_SET
    assert [n for n in sorted(names) if getattr(usual, n) == getattr(changed, n)] == []
