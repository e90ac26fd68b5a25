"""Every command of the README is run: here, or by the script that is named beside it.

The commands are the README's own lines. Only what belongs to the reader's machine is replaced:
the environment's ``bin``, the broker, the port, the names of topics and groups, and how many
records are made.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import requests

from consumer.broker import KafkaAdmin, RealKafka
from tests.acceptance.running import bare_environment
from tests.repo.documents import ROOT, blocks
from tests.waiting import wait_until

#: Section -> who runs its commands.
RUN_BY = {
    "Vertex Budget": "test_the_first_line_in_a_fresh_environment",
    "Run it on your Kafka": "test_the_readme_from_kafka_to_handler",
    "Write a handler": "test_the_readme_from_kafka_to_handler",
    "Settings": "test_the_readme_from_kafka_to_handler",
    "Containers": "test_the_containers_are_checked_by_a_script",
}
RECORDS = 20_000
NAMES = ("geo-workers", "taggers", "sizing", "positions", "tagged")
#: Longest that a start, or the work on all records, may take.
SECONDS = 90.0


def test_every_command_has_its_test() -> None:
    """A new block of commands does not go by untested."""
    assert {block.section for block in blocks("README.md", "console")} == RUN_BY.keys()
    assert not [name for name in RUN_BY.values() if name not in globals()]


def test_the_second_line_is_what_ci_runs() -> None:
    """The test line stands alone in its block, and CI takes it from its own copy."""
    _, second = blocks("README.md", "console", "Vertex Budget")
    (line,) = second.lines
    assert f'test_line="{line}"' in (ROOT / ".ci/run").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_line_in_a_fresh_environment(tmp_path: Path) -> None:
    """From a clone to the end of the demonstration, with what the package itself depends on."""
    first, _ = blocks("README.md", "console", "Vertex Budget")
    (line,) = first.lines
    tree = tmp_path / "clone"
    # What a clone has: nothing that was made here.
    made = shutil.ignore_patterns(".git", ".venv", ".*cache*", "__pycache__", ".hypothesis")
    shutil.copytree(ROOT, tree, ignore=made)
    environment = {
        **bare_environment(),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(ROOT / "requirements/ci.lock"),
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-euc", line],
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "none was lost" in done.stdout


def test_the_containers_are_checked_by_a_script() -> None:
    """What the README does with Compose is what ``scripts/check-containers`` does in an engine."""
    (block,) = blocks("README.md", "console", "Containers")
    script = "".join(path.read_text() for path in (ROOT / "scripts/containers").glob("*.py"))
    for line in block.lines:
        words = shlex.split(line)
        if words[0] == "curl":
            assert f'"/{words[-1].partition("/")[2]}"' in script
            continue
        assert words[:2] == ["docker", "compose"]
        command, *flags = words[2:]
        assert re.search(rf'compose\([^)]*"{command}"', script), command
        assert set(flags) <= {"-d", "--build", "--wait", "--volumes"}
    assert (ROOT / "scripts/check-containers").is_file()


class Reader:
    """Somebody who types what the README says, in a folder of their own."""

    def __init__(self, folder: Path, kafka: KafkaAdmin, unique: Callable[[str], str]) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.names = {name: unique(name) for name in NAMES}
        self._replaced = {
            ".venv/bin/vertex-budget": f"{shlex.quote(sys.executable)} -m consumer",
            "localhost:9092": kafka.bootstrap_servers,
            "localhost:9464": f"127.0.0.1:{self._port}",
            "--count 100000": f"--count {RECORDS}",
        }
        self._environment = {
            **bare_environment(),
            "PYTHONPATH": str(ROOT),
            "VERTEX_BUDGET_HTTP_ADDRESS": f"127.0.0.1:{self._port}",
            "VERTEX_BUDGET_PROCESSES": "2",
        }
        self._worker: subprocess.Popen[bytes] | None = None
        self._session = requests.Session()
        self._session.trust_env = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and (self._folder / "log").exists():
            error.add_note((self._folder / "log").read_text()[-4000:])
        self._session.close()
        if self._worker is not None and self._worker.poll() is None:
            self._worker.kill()
            self._worker.wait(10.0)

    def types(self, line: str) -> None:
        """Do what one line says."""
        for written, here in self._replaced.items():
            line = line.replace(written, here)
        for name, here in self.names.items():
            line = re.sub(rf"(?<=[= ]){name}\b", here, line)
        words = shlex.split(line)
        if words[0] == "export":
            for name, _, value in (word.partition("=") for word in words[1:]):
                self._environment[name] = value
        elif words[0] == "curl":
            assert self._session.get(f"http://{words[-1]}", timeout=10.0).status_code == 200, line
        elif "run" in words and "--help" not in words:
            self._starts(words)
        else:
            done = subprocess.run(
                words,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            assert done.stdout or "traffic" in words

    def _starts(self, words: list[str]) -> None:
        """Start a worker, and wait until it has handled everything that there is."""
        self.stops()
        with (self._folder / "log").open("ab") as log:
            self._worker = subprocess.Popen(
                words,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._is_done, SECONDS, f"all records by: {shlex.join(words)}")

    def _is_done(self) -> bool:
        assert self._worker is not None
        assert self._worker.poll() is None, f"the worker ended with {self._worker.returncode}"
        budget = self.budget()
        return bool(budget) and budget["totals"]["messages"]["done"] == RECORDS

    def budget(self) -> Any:
        """Return ``/budget``; nothing before it answers."""
        try:
            return self._session.get(f"http://127.0.0.1:{self._port}/budget", timeout=10.0).json()
        except requests.ConnectionError:
            return None

    def stops(self) -> None:
        """Press Ctrl-C, as it were, and expect a clean end."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(40.0) == 0


@pytest.fixture
def reader(
    tmp_path: Path, kafka: KafkaAdmin, _unique: Callable[[str], str]
) -> Iterator[tuple[Reader, KafkaAdmin]]:
    """A reader with the README's handlers in their folder, and data of their own."""
    sources = blocks("README.md", "python", "Write a handler")
    (tmp_path / "tag.py").write_text(sources[0].text)
    (tmp_path / "pings.ndjson").write_text('{"type":"Point","coordinates":[-2.9,53.4]}\n' * 3)
    with Reader(tmp_path, kafka, _unique) as somebody:
        yield somebody, kafka
        somebody.stops()
        if not isinstance(kafka, RealKafka):
            for name in ("positions", "tagged"):
                kafka.delete_topic(somebody.names[name])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_readme_from_kafka_to_handler(reader: tuple[Reader, KafkaAdmin]) -> None:
    """Traffic, a worker, its numbers, a worker that only watches, a handler of one's own."""
    somebody, kafka = reader
    modes = []
    for section in ("Run it on your Kafka", "Write a handler", "Settings"):
        for block in blocks("README.md", "console", section):
            for line in block.lines:
                somebody.types(line)
                if " run " in f"{line} " and "--help" not in line:
                    modes.append(somebody.budget()["mode"])
    assert modes == ["enforce", "shadow", "enforce"]
    somebody.stops()
    tagged = somebody.names["tagged"]
    assert kafka.client.list_topics(tagged, 10.0).topics[tagged].partitions


@pytest.mark.slow
def test_the_simulator_of_the_contributors_guide() -> None:
    """The scenario that the guide names exists, and its line comes out."""
    block = blocks("CONTRIBUTING.md", "console", "See the core step by step")[0]
    words = shlex.split(block.lines[0])
    assert words[:2] == [".venv/bin/python", "-m"]
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=ROOT,
        env={**bare_environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(words[-1])


def test_files_in_the_contributors_commands_exist() -> None:
    """Each file or folder that a command of the guide names is there."""
    lines = [line for block in blocks("CONTRIBUTING.md", "console") for line in block.lines]
    words = [word for line in lines for word in shlex.split(line)]
    paths = [w for w in words if re.match(r"(tests|sizing|consumer|bench|scripts)/", w)]
    assert paths
    assert not [path for path in paths if not (ROOT / path).exists()]
