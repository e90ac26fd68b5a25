"""The files that containers are made of say what the worker needs. No engine is used here.

``scripts/check-containers`` builds and starts all of it for real.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer.commands.traffic_flags import traffic
from consumer.core.config import FlowConfig
from consumer.core.flow import Flow
from consumer.settings.address import Address
from consumer.settings.reading import Settings, load_settings
from consumer.settings.table import SETTINGS
from consumer.telemetry.http import HttpServer
from consumer.telemetry.metrics import MetricsRegistry
from consumer.telemetry.metrics_table import METRICS

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKER = SERVICES["worker"]
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/vertex-budget.json").read_text())
HEALTHCHECK = ROOT / "deploy" / "healthcheck.py"
OWN_IMAGE = "vertex-budget:local"


def instructions(name: str) -> list[str]:
    """Return the arguments of each such instruction of the Dockerfile, continued lines joined."""
    lines = re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    return [line.split(maxsplit=1)[1] for line in lines if line.startswith(f"{name} ")]


def default_of(text: str) -> str:
    """Return a Compose value with the defaults of its variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def worker_settings() -> Settings:
    """Read the worker's environment as the worker does."""
    return load_settings(WORKER["environment"])


def test_worker_s_environment_is_right():
    """Every variable that the stack gives the worker is a setting with an allowed value."""
    settings = worker_settings()

    assert settings.kafka["bootstrap.servers"] == "kafka:9092"
    assert settings.kafka["group.id"]


def test_stop_grace_period_is_over_the_shutdown_grace():
    """The worker's own deadline ends a drain, not SIGKILL."""
    seconds = float(WORKER["stop_grace_period"].removesuffix("s"))

    assert seconds > worker_settings().shutdown_grace_seconds


def test_worker_has_a_memory_limit_and_no_swap():
    """What the worker sizes itself from is there, and swap does not stretch it."""
    assert re.fullmatch(r"\d+m", default_of(WORKER["mem_limit"]))
    assert WORKER["memswap_limit"] == WORKER["mem_limit"]


@pytest.mark.parametrize("service", ["worker", "traffic"])
def test_own_containers_may_do_little(service: str):
    """The file system is read-only, no capability is left and none can be won."""
    container = SERVICES[service]

    assert container["image"] == OWN_IMAGE
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges"]
    assert "privileged" not in container
    assert "user" not in container, "the image says who"


def test_every_service_is_limited_and_checked():
    """Whatever keeps running has a memory limit and, but for Grafana, a health check."""
    for name, service in SERVICES.items():
        if name == "topics":
            continue
        assert "mem_limit" in service, name
        assert "healthcheck" in service or name == "grafana", name


def test_ports_are_open_to_this_machine_alone():
    """Nothing is published to the network."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert len(published) == 4
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_grafana_starts_only_when_asked_for():
    """Plain ``up`` starts everything but Grafana, and nothing waits for it."""
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["grafana"]
    assert not any("grafana" in service.get("depends_on", {}) for service in SERVICES.values())


def test_topic_is_made_read_and_written():
    """The topic that is made is the one that the worker reads and the traffic goes to."""
    made = shlex.split(SERVICES["topics"]["command"])
    command, *arguments = shlex.split(SERVICES["traffic"]["command"])
    with traffic.make_context("traffic", arguments) as context:
        written = context.params["topic"]

    assert command == traffic.name
    assert worker_settings().topics == (written,) == (made[made.index("--topic") + 1],)
    assert WORKER["depends_on"]["topics"] == {"condition": "service_completed_successfully"}


def test_prometheus_scrapes_the_worker_s_port():
    """The only target is the worker, where it listens by default."""
    (job,) = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    (targets,) = job["static_configs"]
    port = worker_settings().http_address.port

    assert targets["targets"] == [f"worker:{port}"]
    assert str(port) in instructions("EXPOSE")
    assert default_of(WORKER["ports"][0]) == f"127.0.0.1:{port}:{port}"


def test_dockerfile_builds_with_any_builder():
    """No frontend is fetched, no digest or name of an image is fixed, nothing needs BuildKit."""
    assert "# syntax" not in DOCKERFILE
    assert "@sha256" not in DOCKERFILE
    assert "<<" not in DOCKERFILE
    assert "--mount" not in DOCKERFILE
    assert "--link" not in DOCKERFILE
    assert {line.split()[0] for line in instructions("FROM")} == {"${PYTHON_IMAGE}"}


def test_image_runs_as_a_fixed_user_and_hands_on_signals():
    """A number that policies can check, and the worker itself as the first process."""
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", instructions("USER")[-1])
    assert json.loads(instructions("ENTRYPOINT")[-1]) == ["vertex-budget"]
    assert json.loads(instructions("CMD")[-1]) == ["run"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert "/healthz" in instructions("HEALTHCHECK")[-1]


def test_image_is_made_of_the_locked_versions():
    """The lock constrains every install, and dependencies are installed before the source."""
    assert "PIP_CONSTRAINT=/src/requirements/ci.lock" in DOCKERFILE
    assert DOCKERFILE.index("-r dependencies.txt") < DOCKERFILE.index("COPY consumer")


def test_image_s_label_is_the_project_s_version():
    """The label does not go stale."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert f"VERSION={project['version']}" in instructions("ARG")


def test_builder_is_given_what_is_copied_and_no_more():
    """Each source of a COPY is let through by .dockerignore, and all else is held back."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for arguments in instructions("COPY")
        if not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    }

    assert "*" in lines
    assert let_through == copied
    assert all((ROOT / path).exists() for path in copied)


def expressions() -> list[str]:
    """Return every query of the dashboard."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_dashboard_asks_for_metrics_that_there_are(expression: str):
    """Every name and label of a query is in the table of metrics."""
    known = {row.full_name: row for row in METRICS}
    names = re.findall(r"vertex_budget_\w+", expression)

    assert names
    for name in names:
        assert name in known
    labels = set(re.findall(r"(\w+)=~?\"", expression)) - {"instance"}
    labels |= set(re.findall(r"by \((\w+)\)", expression))
    assert labels <= {label for name in names for label in known[name].labels}


def test_dashboard_s_panels_do_not_overlap():
    """Each panel has an id of its own and a place of its own."""
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)


def run_healthcheck(port: int, *arguments: str, host: str = "") -> subprocess.CompletedProcess[str]:
    """Run it as the image does."""
    return subprocess.run(
        [sys.executable, "-I", "-S", HEALTHCHECK, *arguments],
        env={**os.environ, "VERTEX_BUDGET_HTTP_ADDRESS": f"{host}:{port}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("host", ["", "0.0.0.0", "127.0.0.1"])
def test_healthcheck_tells_what_the_worker_answers(host: str):
    """The exit code is the worker's answer, and the reason is written for people."""
    flow = Flow(FlowConfig(processes=1))
    server = HttpServer(
        Address(host, 0),
        MetricsRegistry(flow.snapshot),
        flow.snapshot,
        lambda: (True, "running"),
        lambda: (False, "joining the group"),
    )
    server.start()
    try:
        live = run_healthcheck(server.port, host=host)
        ready = run_healthcheck(server.port, "/readyz", host=host)
        port = server.port
    finally:
        server.close()
    nobody = run_healthcheck(port, host=host)

    assert live.returncode == 0
    assert ready.returncode == 1
    assert "joining the group" in ready.stdout
    assert nobody.returncode == 1
    assert not nobody.stderr


def test_healthcheck_s_default_is_the_worker_s():
    """Both listen and ask at the same port when nothing is set."""
    (default,) = [row.default for row in SETTINGS if row.name == "http_address"]

    assert f'DEFAULT_ADDRESS = "{default}"' in HEALTHCHECK.read_text()


@pytest.mark.parametrize(
    "script",
    ["scripts/check-containers", "scripts/containers/engine.sh", "scripts/containers/stand-ins.sh"],
)
def test_scripts_parse(script: str):
    """The shell takes every line of them."""
    subprocess.run(["bash", "-n", ROOT / script], check=True, timeout=30)
