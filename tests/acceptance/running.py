"""The worker as its user runs it: a process with an environment, a port, a log and an exit code.

``Worker`` starts it, reads what it shows and what its handlers wrote down, and ends it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
HANDLER = "tests.acceptance.handlers:Recorder"
#: A start with two processes on a busy machine, the group's first rebalance included.
START_SECONDS = 40.0

#: metric -> labels (without the prefix, sorted) -> value
Metrics = Mapping[str, Mapping[tuple[str, ...], float]]


class Handled(NamedTuple):
    """One record that a handler has finished."""

    at_ns: int
    topic: str
    partition: int
    offset: int
    key: str
    #: its place in the file of its process
    line: int

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset."""
        return self.partition, self.offset


class Worker:
    """One worker process.

    Parameters
    ----------
    folder : Path
        For its log and for what its handlers write down; several workers may share it.
    bootstrap_servers, topic, group : str
        What it reads, and as whom.
    processes : int
        Handler processes.
    handler : str
        The recording handler unless told otherwise.
    **environment
        More settings, by their environment variables.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap_servers: str,
        topic: str,
        group: str,
        *,
        processes: int = 2,
        handler: str = HANDLER,
        **environment: object,
    ) -> None:
        self.folder = folder
        self.topic = topic
        self.group = group
        number = 1 + len(list(folder.glob("log-*")))
        self.log_path = folder / f"log-{number}"
        self._environment = {
            **bare_environment(),
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "KAFKA_GROUP_ID": group,
            "VERTEX_BUDGET_TOPICS": topic,
            "VERTEX_BUDGET_HANDLER": handler,
            "VERTEX_BUDGET_PROCESSES": str(processes),
            "VERTEX_BUDGET_HTTP_ADDRESS": "127.0.0.1:0",
            "VBTEST_RECORDS": str(folder),
            **{name: str(value) for name, value in environment.items()},
        }
        self._port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._session = requests.Session()
        # A proxy of whoever runs the tests is not asked.
        self._session.trust_env = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"the worker's log ends with:\n{self.log()[-6000:]}")
        self._session.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10.0)

    # -- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the process; see ``until_ready`` for the rest."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "consumer", "run"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def until_ready(self) -> Self:
        """Wait until the worker says that it is ready."""
        self.until(lambda: self._get("/readyz") == 200, "ready", START_SECONDS)
        return self

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 40.0) -> Any:
        """Wait for a condition while the worker runs."""

        def look() -> Any:
            assert self.running, f"the worker ended with {self.exit_code}, before: {what}"
            return condition()

        return wait_until(look, seconds, what, poll_seconds=0.05)

    def until_said(self, words: str) -> None:
        """Wait until some words are in its log."""
        self.until(lambda: words in self.log(), f"a log line with {words!r}")

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code, None while it runs."""
        return None if self.process is None else self.process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the worker itself."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, seconds: float = 40.0) -> None:
        """Stop as a container's runtime does, and expect a clean exit."""
        self.send(signal.SIGTERM)
        wait_until(lambda: not self.running, seconds, "the end after SIGTERM")
        assert self.exit_code == 0, self.log()[-3000:]

    def kill(self) -> None:
        """Kill as a container's runtime does when memory is short: everything at once."""
        assert self.process is not None
        children = self.handler_pids()
        self.process.kill()
        self.process.wait(10.0)
        paths = [Path(f"/proc/{pid}") for pid in children]
        wait_until(lambda: not any(p.exists() for p in paths), 10.0, "the children's end")

    def handler_pids(self) -> list[int]:
        """Process ids of the handler processes."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [
            int(pid)
            for pid in path.read_text().split()
            if b"consumer.processes.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    # -- what it shows -----------------------------------------------------------------------

    def log(self) -> str:
        """Everything that it has written."""
        return self.log_path.read_text(errors="replace")

    def metrics(self) -> Metrics:
        """Scrape it; nothing before it can be scraped."""
        try:
            text = self._session.get(f"{self._url()}/metrics", timeout=10.0).text
        except requests.ConnectionError:
            return {}
        found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found[sample.name.removeprefix("vertex_budget_")][labels] = sample.value
        return found

    def metric(self, name: str, *labels: str) -> float:
        """Return one value; 0 where there is none yet."""
        return self.metrics().get(name, {}).get(labels, 0.0)

    def budget(self) -> Any:
        """Return /budget."""
        return orjson.loads(self._session.get(f"{self._url()}/budget", timeout=10.0).content)

    def state(self) -> str:
        """Return the state that is 1."""
        states = self.metrics().get("state", {})
        return next((state for (state,), value in states.items() if value), "")

    def lag(self) -> float | None:
        """Lag of all partitions by its own metric; None before it knows."""
        values = self.metrics().get("lag_messages")
        return sum(values.values()) if values else None

    def _get(self, path: str) -> int:
        try:
            return self._session.get(f"{self._url()}{path}", timeout=10.0).status_code
        except requests.ConnectionError:
            return 0

    def status(self, path: str) -> int:
        """Return the status code of a path."""
        return self._get(path)

    def _url(self) -> str:
        if not self._port:
            said = re.search(r"metrics on port (\d+)", self.log())
            if said is None:
                raise requests.ConnectionError
            self._port = int(said[1])
        return f"http://127.0.0.1:{self._port}"

    # -- what its handlers wrote down --------------------------------------------------------

    def handled(self) -> list[Handled]:
        """Everything that was handled, in the order of time (as far as one chunk tells)."""
        return handled(self.folder)

    def until_handled(self, count: int, seconds: float = 40.0) -> None:
        """Wait until so many different records were handled."""
        self.until(
            lambda: len({h.place for h in self.handled()}) >= count, f"{count} handled", seconds
        )


def bare_environment() -> dict[str, str]:
    """Return the environment without the settings of whoever runs the tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VERTEX_BUDGET", "KAFKA_", "VBTEST_"))
    }


def run_to_end(environment: Mapping[str, str], seconds: float = 40.0) -> tuple[int, str]:
    """Run a worker that is not to start; return its exit code and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "consumer", "run"],
        cwd=ROOT,
        env={**bare_environment(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout


def handled(folder: Path) -> list[Handled]:
    """Read what the handlers of all workers of a folder wrote down."""
    found = []
    for path in folder.glob("handled-*"):
        for number, line in enumerate(path.read_text().splitlines()):
            at, topic, partition, offset, key = line.split(" ")
            found.append(Handled(int(at), topic, int(partition), int(offset), key, number))
    return sorted(found, key=lambda h: (h.at_ns, h.line))


def duplicates(records: Iterable[Handled]) -> dict[tuple[int, int], int]:
    """Return the records that were handled more than once, and how often."""
    counts = Counter(h.place for h in records)
    return {place: count for place, count in counts.items() if count > 1}


def out_of_order(records: Iterable[Handled]) -> list[Handled]:
    """Return records whose key was already further on, first handling of each only."""
    furthest: dict[tuple[int, str], int] = {}
    seen: set[tuple[int, int]] = set()
    wrong = []
    for record in records:
        if record.place in seen or not record.key:
            continue
        seen.add(record.place)
        chain = record.partition, record.key
        if record.offset < furthest.get(chain, -1):
            wrong.append(record)
        furthest[chain] = max(record.offset, furthest.get(chain, -1))
    return wrong
