"""The Compose stack under check: started, asked, looked at from outside, and taken down.

Owns the calls of ``docker`` and what is read of a container. Judges nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "vertex-budget-check"
#: Longest wait for any answer of the engine that has no limit of its own.
COMMAND_SECONDS = 120.0
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PORTS = ("WORKER_PORT", "KAFKA_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")


class CheckError(Exception):
    """Something is not as it must be."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A container's memory, in bytes, as its own control group says."""

    #: anonymous and shared: what cannot be given back
    used: int
    #: the most that was charged, page cache included
    peak: int
    limit: int
    kills: int


class Stack:
    """One project of ``docker compose``, on ports of its own."""

    def __init__(self) -> None:
        docker = shutil.which("docker")
        if docker is None:
            msg = "there is no docker command"
            raise CheckError(msg)
        self._docker = docker
        self._environment = dict(os.environ)
        with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in _PORTS]
        for name, held in zip(_PORTS, with_ports, strict=True):
            self._environment[name] = str(held.getsockname()[1])
            held.close()

    def set(self, name: str, value: str) -> None:
        """Set a variable of the Compose file for every command from now on."""
        self._environment[name] = value

    def docker(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run ``docker`` and return what it printed; an exit code other than 0 is an error."""
        done = subprocess.run(
            [self._docker, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-3000:]
            msg = f"docker {' '.join(arguments)}: exit code {done.returncode}\n{said}"
            raise CheckError(msg)
        return done.stdout

    def compose(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run ``docker compose`` on this project."""
        return self.docker("compose", "--project-name", PROJECT, *arguments, seconds=seconds)

    def logs(self, service: str, lines: str = "all") -> str:
        """Return the last lines that a service wrote."""
        text = self.compose("logs", "--no-log-prefix", "--tail", lines, service)
        # Compose clears the line before each, terminal or not.
        return _CONTROL.sub("", text).strip()

    def container(self, service: str) -> str:
        """Return the id of a service's container, running or not."""
        return self.compose("ps", "--all", "--quiet", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container."""
        (found,) = json.loads(self.docker("inspect", self.container(service)))
        return dict(found)

    def worker(self, path: str) -> str:
        """Ask the worker."""
        return self._get("WORKER_PORT", path)

    def budget(self) -> dict[str, Any]:
        """Return the worker's ``/budget``."""
        return dict(json.loads(self.worker("/budget")))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Ask Prometheus for an expression's value now."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        answer = json.loads(self._get("PROMETHEUS_PORT", path))
        return list(answer["data"]["result"])

    def _get(self, port_name: str, path: str) -> str:
        address = f"http://127.0.0.1:{self._environment[port_name]}{path}"
        with urllib.request.urlopen(address, timeout=10.0) as answer:
            return str(answer.read().decode())

    def memory(self, service: str) -> Memory:
        """Read a running container's control group, version 2 or 1, from inside."""
        script = (
            "cd /sys/fs/cgroup; if [ -e memory.max ]; then cat memory.stat memory.events;"
            " echo max $(cat memory.max); echo most $(cat memory.peak);"
            " else cd memory; cat memory.stat memory.oom_control;"
            " echo max $(cat memory.limit_in_bytes); echo most $(cat memory.max_usage_in_bytes); fi"
        )
        text = self.docker("exec", self.container(service), "sh", "-c", script)
        # memory.events has a "max" too; ours comes later.
        values = dict(line.split()[:2] for line in text.splitlines() if len(line.split()) >= 2)
        if "total_rss" in values:
            used = int(values["total_rss"]) + int(values["total_shmem"])
        else:
            used = int(values["anon"]) + int(values["shmem"])
        return Memory(used, int(values["most"]), int(values["max"]), int(values["oom_kill"]))

    def down(self) -> None:
        """Take everything down, with its volumes and what else was started for it."""
        # The tests' own containers of `compose run` too: they are orphans to `down`.
        self.compose(
            "--profile", "grafana", "down", "--volumes", "--remove-orphans", "--timeout", "5"
        )


def wait_for(what: str, seconds: float, condition: Callable[[], Any], every: float = 1.0) -> Any:
    """Return the condition's first true value; what is not there yet may fail."""
    until = time.monotonic() + seconds
    why: object = ""
    while time.monotonic() < until:
        try:
            if value := condition():
                return value
        except (CheckError, OSError, LookupError, ValueError) as error:
            why = f": {error}"
        time.sleep(every)
    msg = f"{what}: not within {seconds:.0f} s{why}"
    raise CheckError(msg)
