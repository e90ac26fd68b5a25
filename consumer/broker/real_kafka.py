"""One to three Kafka nodes that start, answer, are killed, come back and stop together.

Owns the temporary directory and the life of the nodes' processes.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from consumer.broker.admin import BrokerError, KafkaAdmin
from consumer.broker.java import java_command
from consumer.broker.node import Node, accepts, broker_settings, cluster_id, free_ports

#: Java options for nodes that live for a minute: no time spent on optimising.
FOR_TESTS = ("-XX:TieredStopAtLevel=1",)

_POLL_SECONDS = 0.05

_LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1}: %m%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


class RealKafka(KafkaAdmin):
    """One to three Kafka nodes that live as long as this process, or as the ``with`` block.

    Start it from a thread that lives as long as it should: on Linux the kernel kills a node when
    the thread that started it ends.

    Parameters
    ----------
    nodes : int
        1, or 3 with replication 3 and two in-sync replicas.
    settings : Mapping, optional
        Broker settings by their Kafka names, over the ones chosen here.
    heap : str, optional
        Java's ``-Xmx`` of each node; default 384m alone, 256m as one of several.
    java_options : Sequence of str
        More options of each node's Java. `FOR_TESTS` halves the CPU seconds of a start, at the
        price of slower code under a long load.
    log_directory : Path, optional
        Where the nodes' logs go and stay. By default they are deleted with the data, unless the
        start fails.
    start_timeout_seconds : float
        Longest wait for an answer after a start; fetching the jars for the first time comes on
        top.

    Examples
    --------
    ::

        with RealKafka() as kafka:
            kafka.create_topic("pings", 4)
            Producer({"bootstrap.servers": kafka.bootstrap_servers})
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        settings: Mapping[str, object] | None = None,
        heap: str | None = None,
        java_options: Sequence[str] = (),
        log_directory: Path | None = None,
        start_timeout_seconds: float = 60.0,
    ) -> None:
        super().__init__("")
        self._node_count = nodes
        self._settings = dict(settings or {})
        self._heap = heap or ("384m" if nodes == 1 else "256m")
        self._java_options = list(java_options)
        self._log_directory = log_directory
        self._start_timeout_seconds = start_timeout_seconds
        self._directory: Path | None = None
        self._nodes: list[Node] = []
        self._java: list[str] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def process_ids(self) -> dict[int, int]:
        """Process id of each running node by its number, from 1."""
        return {
            node.number: node.process.pid
            for node in self._nodes
            if node.process is not None and node.is_running
        }

    def start(self) -> Self:
        """Start the nodes and wait until all of them answer.

        Raises
        ------
        BrokerError
            If the extra is not installed, the jars cannot be fetched, or a node does not answer
            in time; with the end of its log.
        """
        if self._directory is not None:
            message = "this Kafka has been started already"
            raise BrokerError(message)
        self._java = java_command(self._heap)
        atexit.register(self.stop)
        self._directory = Path(tempfile.mkdtemp(prefix="vertex-budget-kafka-"))
        try:
            self._lay_out(self._directory)
            self._format()
            self._start_nodes(self._nodes)
        except BaseException as error:
            # The log stays for whoever reads the message that names it.
            self.stop(keep_logs=isinstance(error, BrokerError))
            raise
        return self

    def stop(self, *, keep_logs: bool = False) -> None:
        """Stop the nodes cleanly and delete their data. Does nothing when not started."""
        atexit.unregister(self.stop)
        self._end(signal.SIGTERM, self._nodes)
        if self._directory is None:
            return
        for node in self._nodes:
            shutil.rmtree(node.directory, ignore_errors=True)
        if not keep_logs or self._log_directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None
        self._nodes = []
        self._client = None

    def kill(self, node: int | None = None) -> None:
        """Kill a node (all of them by default) with SIGKILL; its data stays for `restart`."""
        self._end(signal.SIGKILL, self._chosen(node))

    def restart(self, node: int | None = None) -> None:
        """Start a node (all of them by default) again on its data and ports, ended or not.

        Raises
        ------
        BrokerError
            As `start`.
        """
        chosen = self._chosen(node)
        self._end(signal.SIGTERM, chosen)
        self._start_nodes(chosen)

    def _chosen(self, number: int | None) -> list[Node]:
        chosen = [node for node in self._nodes if number in (None, node.number)]
        if not chosen:
            message = f"there is no node {number}: {len(self._nodes)} are started"
            raise BrokerError(message)
        return chosen

    def _lay_out(self, root: Path) -> None:
        """Choose ports and write each node's settings."""
        logs = self._log_directory or root
        logs.mkdir(parents=True, exist_ok=True)
        (root / "log4j2.properties").write_text(_LOG4J)
        ports = iter(free_ports(2 * self._node_count))
        self._nodes = [
            Node(n, root / f"node-{n}", logs / f"kafka-{n}.log", next(ports), next(ports))
            for n in range(1, self._node_count + 1)
        ]
        self.bootstrap_servers = ",".join(f"127.0.0.1:{node.broker_port}" for node in self._nodes)
        for node in self._nodes:
            node.directory.mkdir()
            settings = broker_settings(node, self._nodes) | self._settings
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            node.properties_path.write_text(text)

    def _format(self) -> None:
        """Write the cluster's identity into every node's empty data directory."""
        identity = cluster_id()
        for node in self._nodes:
            tool = ["kafka.tools.StorageTool", "format", "-t", identity]
            arguments = [*self._java, *FOR_TESTS, *tool, "-c", str(node.properties_path)]
            done = subprocess.run(
                arguments,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=self._start_timeout_seconds,
                check=False,
            )
            if done.returncode != 0:
                message = f"Kafka's data directory could not be formatted:\n{done.stdout.strip()}"
                raise BrokerError(message)

    def _start_nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            node.start(
                [*self._java, *self._java_options], node.directory.parent / "log4j2.properties"
            )
        deadline = time.monotonic() + self._start_timeout_seconds
        while not self._is_ready(nodes):
            if time.monotonic() > deadline:
                self._fail(nodes[0], f"does not answer after {self._start_timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def _is_ready(self, nodes: Sequence[Node]) -> bool:
        for node in nodes:
            if node.process is not None and not node.is_running:
                self._fail(node, f"ended at its start (exit code {node.process.returncode})")
        if not all(accepts(node.broker_port) for node in nodes):
            return False
        return self._broker_count() >= len(self.process_ids)

    def _fail(self, node: Node, what: str) -> None:
        message = (
            f"Kafka node {node.number} on 127.0.0.1:{node.broker_port} {what}; "
            f"its log {node.log_path} ends with:\n{node.log_tail()}"
        )
        raise BrokerError(message)

    def _end(self, how: signal.Signals, nodes: Sequence[Node]) -> None:
        running = [node.process for node in nodes if node.process is not None and node.is_running]
        for process in running:
            process.send_signal(how)
        for process in running:
            try:
                process.wait(timeout=20.0)
            except subprocess.TimeoutExpired:
                # The last two of three controllers cannot elect a leader to leave in peace.
                process.kill()
                process.wait()
