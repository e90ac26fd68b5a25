"""The worker of the demonstration: a process, started as a user starts it, with an environment.

Owns its settings, its life and its log.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import consumer
from consumer.broker.node import TIED_TO_PARENT
from consumer.demo.broker import DemoError, Place
from consumer.demo.handler import FOLDER_VARIABLE
from consumer.demo.scenario import DEAD_LETTERS, TOPICS

GROUP = "demo"
PROCESSES = 2
#: Little, so that memory binds while records are light: some 40 MB of it are free for work.
MEMORY_LIMIT_BYTES = 192 << 20
#: A coastline of 200,000 vertices takes some 30 MB while it is handled.
MEMORY_LIMIT_WITH_GIANTS_BYTES = 240 << 20
#: Short, so that the deadline binds while records are heavy; half of it is the drain deadline.
SHUTDOWN_GRACE_SECONDS = 7.0
#: What a stop may take beyond the grace before it is ended.
_STOP_MARGIN_SECONDS = 15.0
#: The usual port first: an address that the documentation shows.
_USUAL_PORT = 9464


def free_port() -> int:
    """Return a port of this machine that nothing listens on, the usual one if it can be."""
    for port in (_USUAL_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    msg = "no port of 127.0.0.1 is free"
    raise DemoError(msg)


class DemoWorker:
    """The worker's process.

    Parameters
    ----------
    place : Place
        The broker.
    folder : Path
        For its log and for what its handlers write down.
    real_kafka : bool
        Whether the broker is a real one, and giants are to be expected.
    """

    def __init__(self, place: Place, folder: Path, *, real_kafka: bool) -> None:
        self.memory_limit_bytes = (
            MEMORY_LIMIT_WITH_GIANTS_BYTES if real_kafka else MEMORY_LIMIT_BYTES
        )
        self.port = free_port()
        self.folder = folder
        self.log_path = folder / "worker.log"
        mock = {"KAFKA_FETCH_WAIT_MAX_MS": "20"}
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("VERTEX_BUDGET", "KAFKA_"))
        } | {
            "PYTHONPATH": os.pathsep.join(
                filter(None, (_import_root(), os.environ.get("PYTHONPATH", "")))
            ),
            "KAFKA_BOOTSTRAP_SERVERS": place.bootstrap_servers,
            "KAFKA_GROUP_ID": GROUP,
            "KAFKA_GROUP_PROTOCOL": "consumer",
            **({} if real_kafka else mock),
            "VERTEX_BUDGET_TOPICS": ",".join(TOPICS),
            "VERTEX_BUDGET_HANDLER": "consumer.demo.handler:Generalise",
            "VERTEX_BUDGET_DLQ_TOPIC": DEAD_LETTERS,
            "VERTEX_BUDGET_PROCESSES": str(PROCESSES),
            "VERTEX_BUDGET_MEMORY_LIMIT": str(self.memory_limit_bytes),
            "VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS": str(SHUTDOWN_GRACE_SECONDS),
            "VERTEX_BUDGET_WARMUP_MESSAGES": "1000",
            "VERTEX_BUDGET_WARMUP_SECONDS": "0.2",
            "VERTEX_BUDGET_REMEASURE_INTERVAL_SECONDS": "10",
            "VERTEX_BUDGET_HTTP_ADDRESS": f"127.0.0.1:{self.port}",
            FOLDER_VARIABLE: str(folder),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", TIED_TO_PARENT, str(os.getpid())),
                    *(sys.executable, "-m", "consumer", "run"),
                ],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demonstration, which then stops it in order.
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def url(self) -> str:
        """Where it shows itself."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Raise unless it runs.

        Raises
        ------
        DemoError
            With the end of its log.
        """
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            msg = f"the worker ended with exit code {code}; its log ends with:\n{self.log_tail()}"
            raise DemoError(msg)

    def stop(self) -> int:
        """Send SIGTERM, as an orchestrator does, and return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(SHUTDOWN_GRACE_SECONDS + _STOP_MARGIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def log_tail(self, lines: int = 12) -> str:
        """Return the end of its log."""
        text = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])


def _import_root() -> str:
    """Return the folder that this package is imported from."""
    return str(Path(consumer.__file__).resolve().parent.parent)
