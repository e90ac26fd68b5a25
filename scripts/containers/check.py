"""Builds and starts the Compose stack in a Docker engine, and checks what containers promise.

Owns the story: healthy, sized from the container's limit, scraped, drained on a stop, alive in
256 MB under heavy traffic. ``stack`` talks to the engine. Prints a summary; exit code 0 only when
every point holds.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from stack import ROOT, CheckError, Memory, Stack, wait_for

GRACE_SECONDS = 30.0
SMALL_MEMORY = "256m"
#: About 200 MB in 4,000 records, heavier by far than what the stack's own traffic sends.
HEAVY_RECORDS = 4_000
HEAVY_MIX = "pings=.6,lines=.1,polygons=.15,coastlines=.15"
HEAVY_GIANTS = 16
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "vertex-budget.json"
MIB = 1 << 20


class Report:
    """What was found, a line each."""

    def __init__(self) -> None:
        self.failures = 0
        self._started = time.monotonic()

    def point(self, name: str, *, good: bool, found: str) -> None:
        """Write one point down."""
        self.failures += not good
        self._write("ok  " if good else "FAIL", f"{name}: {found}")

    def note(self, text: str) -> None:
        """Write something down that is neither good nor bad."""
        self._write("    ", text)

    def _write(self, verdict: str, text: str) -> None:
        print(f"{time.monotonic() - self._started:5.0f} s  {verdict}  {text}", flush=True)


class MemoryWatch(threading.Thread):
    """Looks at the worker's control group every other second, and keeps the most of each figure."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._ended = threading.Event()
        self.most_used = 0
        self.most_peak_ratio = 0.0
        self.last: Memory | None = None

    def run(self) -> None:
        """Look until ``end``."""
        while not self._ended.wait(2.0):
            try:
                self.last = self._stack.memory("worker")
                ratio = float(self._stack.budget()["figures"]["pool_peak_ratio"]["value"])
            except (CheckError, OSError, LookupError, ValueError):
                # The container may be starting or gone: the story judges that, not the watch.
                continue
            self.most_used = max(self.most_used, self.last.used)
            self.most_peak_ratio = max(self.most_peak_ratio, ratio)

    def end(self) -> None:
        """Look no longer."""
        self._ended.set()
        self.join(30.0)


def check(stack: Stack, report: Report) -> None:
    """Run the whole story."""
    _starts(stack, report)
    _sizes_itself(stack, report)
    _is_scraped(stack, report)
    _survives(stack, report)
    _drains(stack, report)


def _starts(stack: Stack, report: Report) -> None:
    stack.compose("build", seconds=400)
    size = int(stack.docker("image", "inspect", "--format", "{{.Size}}", "vertex-budget:local"))
    base = _base_bytes(stack)
    report.note(f"image of {size / 1e6:.0f} MB, {(size - base) / 1e6:.0f} MB over its base")
    found = stack.docker(
        "run", "--rm", "--entrypoint", "sh", "vertex-budget:local", "-c",
        "id -u; command -v gcc cc make ld || true; ls /opt/venv/bin",
    ).split()  # fmt: skip
    tools = {Path(name).name for name in found} & {"gcc", "cc", "make", "ld", "pip", "hatchling"}
    report.point(
        "image",
        good=found[0] == "10001" and not tools,
        found=f"user {found[0]}, tools {tools or '-'}",
    )
    before = time.monotonic()
    stack.compose("up", "--detach", "--wait", "--wait-timeout", "180", seconds=240)
    report.point("up --wait", good=True, found=f"healthy in {time.monotonic() - before:.0f} s")


def _base_bytes(stack: Stack) -> int:
    match = re.search(r"^ARG PYTHON_IMAGE=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    try:
        name = match[1] if match else ""
        return int(stack.docker("image", "inspect", "--format", "{{.Size}}", name))
    except CheckError:
        # A builder may keep the base to itself.
        return 0


def _sizes_itself(stack: Stack, report: Report) -> None:
    limit = stack.memory("worker").limit
    sized = wait_for("a sizing", 90, lambda: (b := stack.budget())["sizing"] and b)
    available = int(sized["figures"]["memory_available_bytes"]["value"])
    said = re.search(r"handler processes? of .*", stack.logs("worker"))
    report.point(
        "sized from the limit",
        good=0 < available < 0.8 * limit and f"in {limit // MIB} MiB" in (said[0] if said else ""),
        found=f"limit {limit / MIB:.0f} MiB, available {available / MIB:.0f} MiB,"
        f" {sized['sizing']['vertex_budget']:,} vertices ({said[0] if said else 'nothing said'})",
    )


def _is_scraped(stack: Stack, report: Report) -> None:
    for expression, least in (
        ('up{job="vertex-budget"}', 1.0),
        ("vertex_budget_vertices", 1.0),
        ("vertex_budget_last_sizing_timestamp_seconds", 1.0),
    ):

        def value(expression: str = expression, least: float = least) -> float | None:
            found = float(stack.query(expression)[0]["value"][1])
            return found if found >= least else None

        report.point(
            "Prometheus", good=True, found=f"{expression} = {wait_for(expression, 45, value):.0f}"
        )
    expressions = _dashboard_expressions(json.loads(DASHBOARD.read_text()))

    def unanswered() -> list[str]:
        # Of the rates, those need two scrapes.
        return [e for e in expressions if not stack.query(e)]

    until = time.monotonic() + 30
    while (empty := unanswered()) and time.monotonic() < until:
        time.sleep(2)
    report.point(
        "dashboard",
        good=bool(expressions) and not empty,
        found=f"{len(expressions)} queries, without an answer: {', '.join(empty) or 'none'}",
    )


def _dashboard_expressions(dashboard: dict[str, Any]) -> list[str]:
    return [
        target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]


def _survives(stack: Stack, report: Report) -> None:
    stack.compose("stop", "traffic")
    stack.set("WORKER_MEMORY", SMALL_MEMORY)
    before = time.monotonic()
    stack.compose(
        "up", "--detach", "--no-build", "--no-deps", "--wait", "--wait-timeout", "90", "worker"
    )
    report.note(f"restarted with {SMALL_MEMORY} in {time.monotonic() - before:.0f} s")
    watch = MemoryWatch(stack)
    watch.start()
    before = time.monotonic()
    sent = _send_heavy(stack)
    report.note(
        f"sent {sent['records']:,} records, {sent['bytes'] / 1e6:.0f} MB, {sent['by_kind']}"
    )
    wait_for("the lag is worked off", 240, lambda: _caught_up(stack))
    seconds = time.monotonic() - before
    watch.end()
    state = stack.inspect("worker")
    totals = stack.budget()["totals"]
    last = watch.last or stack.memory("worker")
    report.point(
        f"{SMALL_MEMORY} survived",
        good=not state["State"]["OOMKilled"]
        and state["State"]["Running"]
        and not state["RestartCount"]
        and last.kills == 0
        and last.limit == 256 * MIB
        and watch.most_used < last.limit,
        found=f"used at most {watch.most_used / MIB:.0f} MiB of {last.limit / MIB:.0f}"
        f" (with page cache {last.peak / MIB:.0f}, the pool's own figure"
        f" {watch.most_peak_ratio:.2f}), {last.kills} kills, {state['RestartCount']} restarts,"
        f" worked off in {seconds:.0f} s",
    )
    dead = totals["messages"]["dead-lettered"]
    report.point(
        "every record handled",
        good=totals["messages"]["done"] >= sent["acknowledged"] and not dead,
        found=f"{totals['messages']['done']:,} done, {dead} dead letters {totals['dead_letters']},"
        f" {sent['acknowledged']:,} sent",
    )


def _send_heavy(stack: Stack) -> dict[str, Any]:
    text = stack.compose(
        "run", "--rm", "--no-deps", "-T", "traffic",
        "traffic", "--topic", "town", "--rate", "max", "--count", str(HEAVY_RECORDS),
        "--mix", HEAVY_MIX, "--giants", str(HEAVY_GIANTS), "--seed", "7", "--json",
        seconds=240,
    )  # fmt: skip
    return dict(json.loads(text.strip().splitlines()[-1]))


def _caught_up(stack: Stack) -> bool:
    budget = stack.budget()
    figures = budget["figures"]
    partitions = budget["partitions"]
    return (
        bool(partitions)
        and all(partition["lag_messages"] == 0 for partition in partitions)
        and figures["in_flight_messages"]["value"] == 0
    )


def _drains(stack: Stack, report: Report) -> None:
    sending = threading.Thread(target=_send_heavy, args=(stack,), daemon=True)
    sending.start()
    held = wait_for(
        "work in flight",
        90,
        lambda: (n := stack.budget()["figures"]["in_flight_messages"]["value"]) > 20 and n,
        every=0.2,
    )
    before = time.monotonic()
    stack.docker("stop", stack.container("worker"))
    seconds = time.monotonic() - before
    state = stack.inspect("worker")["State"]
    said = stack.logs("worker", "1")
    report.point(
        "docker stop drains",
        good=state["ExitCode"] == 0 and not state["OOMKilled"] and seconds < GRACE_SECONDS,
        found=f"about {held} records in flight, exit code {state['ExitCode']}"
        f" in {seconds:.1f} s of {GRACE_SECONDS:.0f} ({said})",
    )
    sending.join(240)


def main() -> int:
    """Check, print, clean up; return the exit code."""
    # As Ctrl-C: what was started is to be taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = Report()
    try:
        stack = Stack()
        stack.down()
    except CheckError as error:
        report.point("engine", good=False, found=str(error))
        return 1
    try:
        check(stack, report)
    except (CheckError, OSError, LookupError, ValueError) as error:
        report.point("check", good=False, found=f"{type(error).__name__}: {error}")
        for service in ("worker", "kafka", "topics", "traffic"):
            print(f"--- last lines of {service}\n{_last_lines(stack, service)}")
    finally:
        stack.down()
    print("containers: " + (f"{report.failures} failed" if report.failures else "all well"))
    return 1 if report.failures else 0


def _last_lines(stack: Stack, service: str) -> str:
    try:
        return stack.logs(service, "15")
    except CheckError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
