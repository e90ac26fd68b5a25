"""One Kafka node: its ports, its settings, its files and its process.

Owns what a single node needs. Knows nothing of when a cluster is ready.
A node never outlives the process that started it, however that ends.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import random
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from consumer.broker.admin import BrokerError

#: Below the range that the kernel takes for outgoing connections, so that a port stays free while
#: its node is down.
_PORTS = range(15_000, 32_000)
_LOG_TAIL_LINES = 25

#: Asks the kernel to kill this process when its parent ends (PR_SET_PDEATHSIG is 1), then becomes
#: the given program. A parent that ended before the request is told by another parent id.
TIED_TO_PARENT = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(slots=True)
class Node:
    """One Kafka process: broker and controller."""

    #: from 1
    number: int
    directory: Path
    log_path: Path
    broker_port: int
    controller_port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def properties_path(self) -> Path:
        """Its settings file."""
        return self.directory / "server.properties"

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self, java: Sequence[str], log4j_path: Path) -> None:
        """Start the process; its output is added to the log."""
        arguments = [
            *java,
            f"-Dlog4j2.configurationFile={log4j_path}",
            "kafka.Kafka",
            str(self.properties_path),
        ]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", TIED_TO_PARENT, str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal must not take the broker from a worker that drains.
                start_new_session=True,
            )

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_LOG_TAIL_LINES:])


def broker_settings(node: Node, nodes: Sequence[Node]) -> dict[str, object]:
    """Broker settings: quick to start and to rebalance, no topic by accident."""
    replicas = len(nodes)
    in_sync = min(2, replicas)
    return {
        "process.roles": "broker,controller",
        "node.id": node.number,
        "controller.quorum.voters": ",".join(
            f"{n.number}@127.0.0.1:{n.controller_port}" for n in nodes
        ),
        "listeners": f"PLAINTEXT://127.0.0.1:{node.broker_port},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{node.broker_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": node.directory / "data",
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        # A killed node may register again only when its old session has ended (default 9 s).
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 1000,
        # Few partitions of the internal topics: each costs the start of a group some time.
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        # Room for records of many thousand vertices.
        "message.max.bytes": 16 * 1024 * 1024,
    }


def cluster_id() -> str:
    """Return a new cluster id: 22 characters of URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # The tool takes a leading minus sign for an option.
        if not text.startswith("-"):
            return text


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now; holding them all until the last is found."""
    # The state of the module's generator is the caller's (tests seed it).
    choice = random.SystemRandom()
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(1000):
            port = choice.choice(_PORTS)
            candidate = held.enter_context(socket.socket())
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    message = f"no {count} free ports on 127.0.0.1 between {_PORTS.start} and {_PORTS.stop}"
    raise BrokerError(message)


def accepts(port: int) -> bool:
    """Whether something listens on the port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False
