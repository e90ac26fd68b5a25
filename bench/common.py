"""What the benchmarks share: arguments, spreads, tables, the broker, memory and time of processes.

Owns nothing that is measured. Every script takes ``--quick`` (under a minute), ``--json`` (one
object on the last line of stdout, everything else on stderr) and ``--seed``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consumer.broker import KafkaAdmin, RealKafka

PROJECT = Path(__file__).resolve().parent.parent

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def argument_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every script takes."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller and under a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--seed", type=int, default=1, help="seed of generated traffic")
    parser.add_argument("--repeats", type=int, help="interleaved repeats (default 3)")
    parser.add_argument("--bootstrap", help="use this Kafka instead of starting one")
    return parser


def say(text: str) -> None:
    """Tell a person how far a run has come."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of repeated measurements."""

    median: float
    least: float
    most: float

    def as_json(self) -> dict[str, float]:
        """Return the three figures rounded to four significant digits."""
        return {
            "median": significant(self.median),
            "min": significant(self.least),
            "max": significant(self.most),
        }

    def __str__(self) -> str:
        return f"{figure(self.median)} ({figure(self.least)}-{figure(self.most)})"


def spread_of(values: Sequence[float]) -> Spread:
    """Return median, least and most of ``values`` (at least one)."""
    return Spread(statistics.median(values), min(values), max(values))


def significant(value: float) -> float:
    """Return ``value`` with four significant digits."""
    return float(f"{value:.4g}")


def figure(value: float) -> str:
    """Return a number as people read it: 412 k, 6.1 k, 0.65."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f} k"
    if abs(value) >= 1_000:
        return f"{value / 1000:.1f} k"
    return f"{value:.3g}"


def print_table(rows: Sequence[Sequence[str]], *, to_stderr: bool = False) -> None:
    """Print rows in aligned columns; the first is the heading."""
    out = sys.stderr if to_stderr else sys.stdout
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip(), file=out)
        if number == 0:
            print("  ".join("-" * width for width in widths), file=out)


def finish(result: dict[str, Any], *, as_json: bool) -> None:
    """Print the result as one JSON object on the last line, when asked to."""
    if as_json:
        sys.stdout.flush()
        print(json.dumps(result, separators=(",", ":")), flush=True)


@contextmanager
def real_kafka(bootstrap: str | None) -> Iterator[KafkaAdmin]:
    """Yield a real Kafka: the one at the given address, or one started for this run."""
    if bootstrap:
        yield KafkaAdmin(bootstrap)
        return
    say("starting a Kafka")
    with RealKafka() as broker:
        yield broker


def process_tree(pid: int) -> list[int]:
    """Return ``pid`` and everything under it that is alive."""
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                children = (task / "children").read_text()
                found.extend(int(child) for child in children.split())
        except OSError:
            continue
    return found


def proportional_bytes(pids: Sequence[int]) -> int:
    """Return the summed proportional set size: shared pages count once."""
    total = 0
    for pid in pids:
        try:
            with Path(f"/proc/{pid}/smaps_rollup").open() as lines:
                for line in lines:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except OSError:
            continue
    return total


def processor_seconds(pid: int) -> float:
    """Return user and system seconds of all threads of one process, 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_SECOND


def thread_seconds(pid: int) -> dict[str, float]:
    """Return processor seconds by thread name of one process (``name`` or ``name:tid``)."""
    seconds: dict[str, float] = {}
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return seconds
    for task in tasks:
        try:
            stat = (task / "stat").read_text()
        except OSError:
            continue
        name = "main" if task.name == str(pid) else stat[stat.index("(") + 1 : stat.rindex(")")]
        fields = stat[stat.rindex(")") + 2 :].split()
        spent = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_SECOND
        seconds[name] = seconds.get(name, 0.0) + spent
    return seconds


class MemoryPeak(threading.Thread):
    """Samples the proportional set size of a process tree until stopped."""

    def __init__(self, pid: int, *, interval_seconds: float = 0.25) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        """Sample until told to stop."""
        while not self._stopping.is_set():
            self.peak_bytes = max(self.peak_bytes, proportional_bytes(process_tree(self._pid)))
            self._stopping.wait(self._interval_seconds)

    def stop(self) -> int:
        """Stop sampling and return the peak."""
        self._stopping.set()
        self.join()
        return self.peak_bytes


def wait_until(deadline: float, what: str) -> None:
    """Raise when ``deadline`` (monotonic) has passed."""
    if time.monotonic() > deadline:
        msg = f"gave up waiting for {what}"
        raise TimeoutError(msg)
