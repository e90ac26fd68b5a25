"""The command line: what it says, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from consumer import cli
from consumer.errors import ConfigError, ConsumerError
from consumer.settings.table import SETTINGS
from consumer.telemetry.http import ListenError
from consumer.version import worker_version
from sizing.errors import UnitError

GOOD = [
    "--topics=parcels",
    "--handler=shop.geo:tag",
    "--kafka=bootstrap.servers=kafka:9092",
    "--kafka=group.id=tagger",
]


@pytest.fixture
def failing() -> Iterator[list[BaseException]]:
    """The command ``fail``, which raises what the test puts into the list."""
    errors: list[BaseException] = []

    @cli.cli.command("fail")
    def fail() -> int:
        raise errors.pop()

    yield errors
    del cli.cli.commands["fail"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ListenError(":9464", "address already in use"), 1, "cannot listen on :9464: address"),
        (ConsumerError("no broker answers at kafka:9092"), 1, "no broker answers at kafka:9092"),
        (UnitError("9XB", "bytes", "write 1MB"), 1, "'9XB' is not an amount of bytes"),
        (ConfigError("oauth_cb", "a:b", "a function"), 2, "oauth_cb='a:b': a function"),
        (click.UsageError("no such thing"), 2, "no such thing"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_message_and_an_exit_code(failing, error, code, text, capsys):
    """2 for what was asked wrongly, 1 for what could not be done; stdout stays clean."""
    failing.append(error)
    assert cli.main(["fail"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert "Traceback" not in err


def test_our_own_bug_is_not_disguised(failing):
    """What nobody expects keeps its traceback: it is to be reported, not to be shortened."""
    failing.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail"])


def test_run_refuses_bad_settings_all_at_once(capsys):
    """Every problem in one message on stderr, exit code 2, before anything is loaded."""
    assert cli.main(["run", "--processes=0", "--topics=a b"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "vertex-budget: 5 settings are not right:"
    assert sorted(line.split()[0].rstrip(":") for line in lines[1:]) == [
        "--processes",
        "--topics",
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_GROUP_ID",
        "VERTEX_BUDGET_HANDLER",
    ]
    assert "'0' is not allowed; allowed: auto, or 1 to 1,024 processes" in err


@pytest.mark.parametrize("arguments", [["run", "--procesess=1"], ["rum"], ["config", "stray"]])
def test_what_is_not_a_command_or_flag_is_a_usage_error(arguments, capsys):
    """Exit code 2 and where to find help."""
    assert cli.main(arguments) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "config"])
def test_help_teaches_every_setting(command, capsys):
    """Each flag with its variable and default, the precedence, and an example to copy."""
    assert cli.main([command, "--help"]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    for row in SETTINGS:
        assert f" {row.flag} " in words
        assert f"[{row.variable}" in words
        assert row.help.split(". ")[0].rstrip(".") in words
    assert "KAFKA_SASL_PASSWORD_FILE" in text
    assert f"vertex-budget {command} --topics" in text
    assert "defaults, environment, file, flags" in text


def test_the_examples_in_help_are_accepted(capsys):
    """What the help tells people to type is right."""
    for arguments in (["--help"], ["run", "--help"], ["config", "--help"]):
        cli.main(arguments)
        text = capsys.readouterr().out.replace("\\\n", " ")
        examples = re.findall(
            r"^\s+vertex-budget (?:run|config) (--topics.*|--mode.*)$", text, re.MULTILINE
        )
        assert examples
        for example in examples:
            assert cli.main(["config", "--check", *example.split()]) == 0, example
            capsys.readouterr()


def test_version(capsys):
    """The version that dead letters and metrics carry."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"vertex-budget, version {worker_version()}"


def test_config_lists_every_setting_with_its_origin(capsys, monkeypatch):
    """Value, origin, range, meaning; secrets hidden; nothing is connected to."""
    monkeypatch.setenv("VERTEX_BUDGET_CAP", "5,000,000")
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "hunter2hunter2")
    assert cli.main(["config", *GOOD, "--memory-limit", "512MiB"]) == 0
    out = capsys.readouterr().out
    assert "cap = 5000000  (environment VERTEX_BUDGET_CAP)" in out
    assert "memory_limit = 536870912  (flag --memory-limit)" in out
    assert "processes = auto: from cores and memory  (default)" in out
    assert "sasl.password = (hidden)" in out
    assert "hunter2" not in out
    words = " ".join(out.split())
    for row in SETTINGS:
        assert f"{row.name} = " in words
        assert row.help in words
        assert f"Allowed: {row.allowed}." in words


def test_config_as_json(capsys):
    """One object on stdout with every row, also when there are problems."""
    assert cli.main(["config", "--json", *GOOD, "--cap=0"]) == 2
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert said["valid"] is False
    assert said["problems"] == [
        {
            "name": "--cap",
            "source": "flag",
            "wrong": "'0' is not allowed",
            "allowed": "none, or 1 to 1,000,000,000,000,000 vertices",
        }
    ]
    assert [row["name"] for row in said["settings"]] == [row.name for row in SETTINGS]
    assert said["settings"][0]["value"] == "parcels"
    assert said["settings"][0]["origin"] == "flag --topics"
    assert {row["name"]: row["value"] for row in said["kafka"]} == {
        "bootstrap.servers": "kafka:9092",
        "group.id": "tagger",
    }
    assert "--cap (flag): '0' is not allowed" in err


def test_config_check(capsys, tmp_path):
    """A deployment's file can be checked before it is deployed: exit code 0 or 2."""
    path = tmp_path / "worker.toml"
    path.write_text("topics = 'a'\nhandler = 'b:c'\n[kafka]\n'group.id' = 'g'\n")
    assert cli.main(["config", "--check", "--config-file", str(path)]) == 2
    assert "KAFKA_BOOTSTRAP_SERVERS: must be set" in capsys.readouterr().err
    with path.open("a") as file:
        file.write("'bootstrap.servers' = 'kafka:9092'\n")
    assert cli.main(["config", "--check", "--config-file", str(path)]) == 0
    assert capsys.readouterr() == ("every setting is right\n", "")


def module(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run ``python -m consumer`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "consumer", *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=Path(cli.__file__).parent.parent,
        **options,  # type: ignore[call-overload]
    )


def test_the_module_is_the_command():
    """``python -m consumer`` has the same exit codes."""
    assert module("--version").returncode == 0
    bad = module("run")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("vertex-budget: 4 settings are not right:\n")


def test_importing_the_main_module_loads_nothing_of_ours():
    """A child process that imports its parent's main module again pays nothing for it."""
    code = (
        "import sys, consumer.__main__;"
        "print([m for m in sys.modules if m.startswith(('consumer.', 'click', 'pydantic'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
        cwd=Path(cli.__file__).parent.parent,
    )
    assert done.stdout.strip() == "['consumer.__main__']"


def test_a_reader_that_goes_away_ends_it_quietly():
    """``vertex-budget config | head -1``: no traceback, whatever was not read."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = subprocess.run(
            [sys.executable, "-m", "consumer", "config", *GOOD],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=50,
            check=False,
            cwd=Path(cli.__file__).parent.parent,
        )
    finally:
        os.close(writing)
    assert (process.returncode, process.stderr) == (1, "")


def test_shells_can_complete_commands() -> None:
    """The README's line for ``.bashrc`` yields a script, and the script's question an answer."""
    runner = CliRunner()
    script = runner.invoke(
        cli.cli, prog_name="vertex-budget", env={"_VERTEX_BUDGET_COMPLETE": "bash_source"}
    )
    assert "complete" in script.output
    answer = runner.invoke(
        cli.cli,
        prog_name="vertex-budget",
        env={
            "_VERTEX_BUDGET_COMPLETE": "bash_complete",
            "COMP_WORDS": "vertex-budget tr",
            "COMP_CWORD": "1",
        },
    )
    assert "traffic" in answer.output
