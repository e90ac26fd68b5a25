"""Run the real worker as a subprocess and watch it from outside.

The worker is ``python -m consumer run`` with settings in its environment, on a fresh group.
Everything is read from its ``/metrics`` and from ``/proc``: the clock runs from the first
observation that shows a handled record to the one that shows all of them, so start-up is not
counted. ``steady`` leaves out the warm-up too: it starts at the first observation that shows a
sizing. The worker renews its picture a few times a second and less often when it has nothing to
do, so the end is the moment from which the handler processes spent no more processor time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.common import (
    CLOCK_TICKS_PER_SECOND,
    PROJECT,
    MemoryPeak,
    process_tree,
    processor_seconds,
    thread_seconds,
    wait_until,
)
from bench.topics import fresh_group

#: Between observations; a scrape costs the worker about a millisecond.
OBSERVE_SECONDS = 0.2
#: Between observations when nearly all records are handled.
OBSERVE_LAST_SECONDS = 0.05
STOP_SECONDS = 60.0
#: What the system counts processor time in.
TICK_SECONDS = 1.0 / CLOCK_TICKS_PER_SECOND
PREFIX = "vertex_budget_"
#: Outcomes that end a record; one that failed comes again.
SETTLED = ("done", "dead-lettered", "skipped")


@dataclass(frozen=True, slots=True)
class Observation:
    """The worker at one moment."""

    at: float
    messages: float
    sized: bool
    parent_seconds: float
    children_seconds: float
    threads: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ProductRun:
    """What one run of the worker took."""

    messages: int
    #: first handled record seen to last
    seconds: float
    records_per_second: float
    #: from the first sizing to the end; None when there was no sizing or too little after it
    steady_records_per_second: float | None
    #: processor microseconds of the parent per record, client threads included
    parent_microseconds: float
    #: the same by thread: "main" is the thread that started the process
    thread_microseconds: Mapping[str, float]
    #: processor microseconds of the handler processes per record
    children_microseconds: float
    #: processor seconds of the handler processes / (processes * seconds)
    children_busy_ratio: float
    peak_bytes: int
    outcomes: Mapping[str, float]
    metrics: Mapping[str, float] = field(repr=False)
    exit_code: int | None
    log: str = field(repr=False)


def run_product(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    handler: str,
    processes: int = 2,
    settings: Mapping[str, str] | None = None,
    timeout_seconds: float = 180.0,
) -> ProductRun:
    """Let the worker handle ``count`` records of ``topic`` and stop it.

    Raises
    ------
    RuntimeError
        If it exits early or does not finish in time; carries the end of its log.
    """
    port = _free_port()
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VERTEX_BUDGET", "KAFKA_"))
    }
    environment.update(
        {
            "PYTHONPATH": str(PROJECT),
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "KAFKA_GROUP_ID": fresh_group(),
            "VERTEX_BUDGET_TOPICS": topic,
            "VERTEX_BUDGET_HANDLER": handler,
            "VERTEX_BUDGET_PROCESSES": str(processes),
            "VERTEX_BUDGET_HTTP_ADDRESS": f"127.0.0.1:{port}",
        }
    )
    environment.update(settings or {})
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "consumer", "run"],
            cwd=PROJECT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        memory = MemoryPeak(worker.pid)
        memory.start()
        try:
            seen, metrics = _watch(worker, port, count, timeout_seconds)
            worker.send_signal(signal.SIGTERM)
            worker.wait(STOP_SECONDS)
        except Exception as error:
            msg = f"{error}; the worker's log ends:\n{_tail(log.fileno())}"
            raise RuntimeError(msg) from error
        finally:
            for pid in reversed(process_tree(worker.pid)) if worker.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
            worker.wait()
            peak_bytes = memory.stop()
        text = _tail(log.fileno(), 20_000)
    return _summary(
        seen,
        metrics,
        processes=processes,
        peak_bytes=peak_bytes,
        exit_code=worker.returncode,
        log=text,
    )


def _watch(
    worker: subprocess.Popen[bytes], port: int, count: int, timeout_seconds: float
) -> tuple[list[Observation], dict[str, float]]:
    """Observe until ``count`` records have an outcome; the first observation has handled none."""
    deadline = time.monotonic() + timeout_seconds
    seen: list[Observation] = []
    while True:
        if worker.poll() is not None:
            msg = f"exit code {worker.returncode} before the end"
            raise RuntimeError(msg)
        wait_until(deadline, f"{count:,} records; seen {seen[-1].messages if seen else 0:,.0f}")
        metrics = _scrape(port)
        if metrics is not None:
            now = _observe(worker.pid, metrics)
            if now.messages or not seen:
                seen.append(now)
            else:
                seen[0] = now
            if now.messages >= count:
                return seen, metrics
        nearly = seen and seen[-1].messages > 0.9 * count
        time.sleep(OBSERVE_LAST_SECONDS if nearly else OBSERVE_SECONDS)


def _observe(pid: int, metrics: Mapping[str, float]) -> Observation:
    children = process_tree(pid)[1:]
    return Observation(
        at=time.monotonic(),
        messages=sum(metrics.get(f'messages_total{{outcome="{name}"}}', 0) for name in SETTLED),
        sized=_total(metrics, "sizings_total") > 0,
        parent_seconds=processor_seconds(pid),
        children_seconds=sum(processor_seconds(child) for child in children),
        threads=thread_seconds(pid),
    )


def _summary(
    seen: list[Observation],
    metrics: dict[str, float],
    *,
    processes: int,
    peak_bytes: int,
    exit_code: int,
    log: str,
) -> ProductRun:
    handled = [moment for moment in seen if moment.messages]
    first, last = handled[0], handled[-1]
    if first is last:
        first = seen[0]
    ended_at = next(
        moment.at
        for moment in seen
        if moment.children_seconds >= last.children_seconds - TICK_SECONDS
    )
    seconds = max(ended_at - first.at, TICK_SECONDS)
    done = last.messages - first.messages
    sized = next((moment for moment in handled if moment.sized), None)
    steady = None
    if (
        sized is not None
        and last.messages - sized.messages > 0.2 * last.messages
        and ended_at > sized.at
    ):
        steady = (last.messages - sized.messages) / (ended_at - sized.at)
    threads = {
        name: 1e6 * (spent - first.threads.get(name, 0.0)) / done
        for name, spent in last.threads.items()
    }
    return ProductRun(
        messages=int(last.messages),
        seconds=seconds,
        records_per_second=done / seconds,
        steady_records_per_second=steady,
        parent_microseconds=1e6 * (last.parent_seconds - first.parent_seconds) / done,
        thread_microseconds={name: spent for name, spent in threads.items() if spent >= 0.005},
        children_microseconds=1e6 * (last.children_seconds - first.children_seconds) / done,
        children_busy_ratio=(last.children_seconds - first.children_seconds)
        / (processes * seconds),
        peak_bytes=peak_bytes,
        outcomes={
            name: value for name, value in metrics.items() if name.startswith("messages_total")
        },
        metrics=metrics,
        exit_code=exit_code,
        log=log,
    )


def _scrape(port: int) -> dict[str, float] | None:
    """Return samples by name with labels and without the prefix, None while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return None
    samples = {}
    for line in text.splitlines():
        if line.startswith(PREFIX):
            name, _, value = line.removeprefix(PREFIX).rpartition(" ")
            samples[name] = float(value)
    return samples


def _total(metrics: Mapping[str, float], name: str) -> float:
    return sum(value for sample, value in metrics.items() if sample.partition("{")[0] == name)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _tail(descriptor: int, length: int = 3_000) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, length, max(0, size - length)).decode(errors="replace")


def count_outcome(run: ProductRun, outcome: str) -> int:
    """Return how many records had one outcome."""
    return int(run.outcomes.get(f'messages_total{{outcome="{outcome}"}}', 0))
