"""Records per second of the worker beside what could be had without it.

Pings, a mix and heavy records on a real Kafka (one broker on this machine, 8 partitions,
uncompressed, preloaded), two handler processes, a spatial join with some 500 polygons:

- ``product``: the worker itself, a real process on a fresh group, everything on, no outputs;
- ``memory`` (a): decode and the same handler over payloads in memory, two processes, no Kafka;
- ``loop`` (b): a plain consume loop, one record at a time, ``json.loads``, ``shape``, same join;
- ``vector`` (c): ``consume(500)``, the worker's own decoder and handler, one process,
  ``fetch.queue.backoff.ms`` mended.

They take turns, several times over, so that a disturbance of the machine hits all of them; what
counts is the ratio within one round. Loops commit every second. A loop is timed from its first
record to its last or until its time is up, the worker from the first handled record that it shows
to the last (start-up excluded, warm-up included; ``steady`` leaves the warm-up out).
Memory is the peak of the proportional set size of everything that a contender runs.

Processor time per record hardly depends on what else the machine does, and says where the rest
goes: with two cores for everything, broker included, (a) has them to itself.

JSON keys: ``kinds.<kind>.<contender>.records_per_second``, ``kinds.<kind>.ratios`` (worker over
each), ``kinds.<kind>.aims``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Run as a file, the script's own folder is on the path and the project is not.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common import (
    PROJECT,
    MemoryPeak,
    argument_parser,
    figure,
    finish,
    print_table,
    real_kafka,
    say,
    significant,
    spread_of,
)
from bench.product import ProductRun, count_outcome, run_product
from bench.topics import PARTITIONS, fill_topic
from bench.workloads import COPIES, KINDS, load_traffic, with_copies, write_layer
from consumer.broker import KafkaAdmin

PROCESSES = 2
#: Least share of (a) that the worker should reach.
AIMS = {"pings": 0.6, "mixed": 0.8, "heavy": 0.9}
#: Records preloaded: some ten seconds of the worker's work, and a few in a quick run.
RECORDS = {"pings": 2_500_000, "mixed": 1_000_000, "heavy": 45_000}
QUICK_RECORDS = {"pings": 400_000, "mixed": 150_000, "heavy": 6_000}
LOOPS = ("loop", "vector")
BASELINES = ("memory", *LOOPS)
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Result:
    """One turn of one contender."""

    records_per_second: float
    #: processor microseconds per record of all its processes (the broker's are not counted)
    processor_microseconds: float
    peak_bytes: int
    product: ProductRun | None = None


def run_baseline(
    name: str, options: argparse.Namespace, *, kind: str, bootstrap: str, topic: str, layer: Path
) -> Result:
    """Run one contender that is not the worker, in a process of its own."""
    arguments = [
        *("--kind", kind),
        *("--seed", str(options.seed)),
        *("--layer", str(layer)),
        *("--bootstrap", bootstrap),
        *("--topic", topic),
        *("--processes", str(PROCESSES)),
        *("--seconds", str(1.5 if options.quick else 8.0)),
    ]
    contender = subprocess.Popen(
        [sys.executable, "-m", "bench.baselines", name, *arguments],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    memory = MemoryPeak(contender.pid)
    memory.start()
    try:
        output, _ = contender.communicate(timeout=120)
    finally:
        contender.kill()
        contender.wait()
        peak_bytes = memory.stop()
    if contender.returncode:
        msg = f"{name} on {kind} ended with exit code {contender.returncode}"
        raise RuntimeError(msg)
    found = json.loads(output)
    return Result(found["records_per_second"], found["processor_microseconds"], peak_bytes)


def run_worker(
    options: argparse.Namespace, *, count: int, kafka: KafkaAdmin, topic: str, layer: Path
) -> Result:
    """Run the worker over the whole topic."""
    settings = join_settings(layer) | {"VERTEX_BUDGET_MEMORY_LIMIT": options.memory_limit}
    outputs = None
    if options.outputs:
        outputs = kafka.create_topic(f"{topic}-out-{uuid.uuid4().hex[:6]}", PARTITIONS)
        settings["VERTEX_BUDGET_OUTPUT_TOPIC"] = outputs
    try:
        run = run_product(
            kafka.bootstrap_servers,
            topic,
            count,
            handler="consumer.handlers:join",
            processes=PROCESSES,
            settings=settings,
        )
    finally:
        if outputs:
            kafka.delete_topic(outputs)
    if count_outcome(run, "done") < count:
        msg = f"the worker did not handle all of {count:,} records: {dict(run.outcomes)}"
        raise RuntimeError(msg)
    spent = run.parent_microseconds + run.children_microseconds
    return Result(run.records_per_second, spent, run.peak_bytes, run)


def join_settings(layer: Path) -> dict[str, str]:
    """Return the settings that point the join handler at its layer."""
    return {"VERTEX_BUDGET_JOIN_LAYER": str(layer)}


def measure_kind(
    kind: str, options: argparse.Namespace, *, kafka: KafkaAdmin, layer: Path, repeats: int
) -> dict[str, Any]:
    """Let all contenders take turns on one kind of traffic."""
    traffic = load_traffic(kind, options.seed)
    count = int((QUICK_RECORDS if options.quick else RECORDS)[kind] * options.scale)
    topic = kafka.create_topic(f"throughput-{kind}-{uuid.uuid4().hex[:8]}", PARTITIONS)
    results: dict[str, list[Result]] = {}
    try:
        fill_topic(
            kafka.bootstrap_servers, topic, with_copies(traffic.records, options.copies), count
        )
        for _ in range(repeats):
            for name in options.contenders:
                if name == "product":
                    result = run_worker(options, count=count, kafka=kafka, topic=topic, layer=layer)
                else:
                    result = run_baseline(
                        name,
                        options,
                        kind=kind,
                        bootstrap=kafka.bootstrap_servers,
                        topic=topic,
                        layer=layer,
                    )
                results.setdefault(name, []).append(result)
                say(f"  {kind} {name}: {figure(result.records_per_second)} records/s")
    finally:
        kafka.delete_topic(topic)
    report = _kind_report(kind, results)
    return report | {
        "source": traffic.source,
        "mean_bytes": significant(traffic.mean_bytes),
        "records": count,
    }


def _kind_report(kind: str, results: dict[str, list[Result]]) -> dict[str, Any]:
    report: dict[str, Any] = {
        name: {
            "records_per_second": spread_of([r.records_per_second for r in turns]).as_json(),
            "processor_microseconds": significant(
                spread_of([r.processor_microseconds for r in turns]).median
            ),
            "peak_mib": significant(max(turn.peak_bytes for turn in turns) / MIB),
        }
        for name, turns in results.items()
    }
    turns = results.get("product")
    if not turns:
        return report
    runs = [turn.product for turn in turns if turn.product]
    report["product"] |= _product_details(runs)
    ratios = {}
    for name in BASELINES:
        if name in results:
            pairs = zip(turns, results[name], strict=True)
            by_round = [a.records_per_second / b.records_per_second for a, b in pairs]
            ratios[name] = spread_of(by_round).as_json()
    report["ratios"] = ratios
    if "memory" in results and all(run.steady_records_per_second for run in runs):
        steady = [
            (run.steady_records_per_second or 0.0) / base.records_per_second
            for run, base in zip(runs, results["memory"], strict=True)
        ]
        report["steady_ratio"] = spread_of(steady).as_json()
    report["aims"] = {
        name: {"aim": aim, "reached": ratios[name]["median"] >= aim}
        for name, aim in {"memory": AIMS[kind], "loop": 1.0, "vector": 1.0}.items()
        if name in ratios
    }
    return report


def _product_details(runs: list[ProductRun]) -> dict[str, Any]:
    steady = [run.steady_records_per_second for run in runs if run.steady_records_per_second]
    names = sorted({name for run in runs for name in run.thread_microseconds})
    return {
        "steady_records_per_second": spread_of(steady).as_json() if steady else None,
        "parent_microseconds": spread_of([run.parent_microseconds for run in runs]).as_json(),
        "parent_busy_ratio": significant(
            spread_of(
                [run.parent_microseconds * run.records_per_second / 1e6 for run in runs]
            ).median
        ),
        "thread_microseconds": {
            name: significant(
                spread_of([run.thread_microseconds.get(name, 0.0) for run in runs]).median
            )
            for name in names
        },
        "children_microseconds": significant(
            spread_of([run.children_microseconds for run in runs]).median
        ),
        "children_busy_ratio": significant(
            spread_of([run.children_busy_ratio for run in runs]).median
        ),
        "outcomes": dict(runs[-1].outcomes),
        "exit_codes": [run.exit_code for run in runs],
    }


def main() -> None:
    """Measure and report."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=("product", *BASELINES),
        default=["product", *BASELINES],
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the records preloaded")
    parser.add_argument(
        "--copies",
        type=int,
        default=COPIES,
        help="copies of the records with keys of their own; 1: keys as in the data",
    )
    parser.add_argument("--outputs", action="store_true", help="the worker produces outputs too")
    parser.add_argument("--memory-limit", default="2GiB", help="VERTEX_BUDGET_MEMORY_LIMIT")
    options = parser.parse_args()
    repeats = options.repeats or (1 if options.quick else 3)
    kinds: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, real_kafka(options.bootstrap) as kafka:
        layer = Path(folder) / "layer.geojson"
        polygons = write_layer(layer, options.seed)
        for kind in options.kinds:
            kinds[kind] = measure_kind(kind, options, kafka=kafka, layer=layer, repeats=repeats)
    result = {
        "bench": "throughput",
        "quick": options.quick,
        "repeats": repeats,
        "processes": PROCESSES,
        "polygons": polygons,
        "outputs": options.outputs,
        "copies": options.copies,
        "kinds": kinds,
    }
    if not options.json:
        for kind in options.kinds:
            _print_kind(kind, kinds[kind])
    finish(result, as_json=options.json)


def _print_kind(kind: str, report: dict[str, Any]) -> None:
    print(
        f"\n{kind}: {report['records']:,} records of {report['mean_bytes']:,.0f} bytes"
        f" ({report['source']})"
    )
    rows = [["", "records/s (min-max)", "product is", "aim", "CPU us/record", "peak MiB"]]
    for name in ("product", *BASELINES):
        if name not in report:
            continue
        speed = report[name]["records_per_second"]
        ratio = report.get("ratios", {}).get(name)
        aim = report.get("aims", {}).get(name)
        rows.append(
            [
                name,
                f"{figure(speed['median'])} ({figure(speed['min'])}-{figure(speed['max'])})",
                f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})" if ratio else "",
                f"{aim['aim']:g} {'reached' if aim['reached'] else 'MISSED'}" if aim else "",
                f"{report[name]['processor_microseconds']:.2f}",
                f"{report[name]['peak_mib']:,.0f}",
            ]
        )
    print_table(rows)
    details = report.get("product")
    if not details:
        return
    steady, parent = details["steady_records_per_second"], details["parent_microseconds"]
    if steady:
        ratio = report.get("steady_ratio")
        share = f", {ratio['median']:.2f} of memory" if ratio else ""
        print(f"after the warm-up: {figure(steady['median'])} records/s{share}")
    threads = ", ".join(f"{n} {us:.2f}" for n, us in details["thread_microseconds"].items())
    print(
        f"parent: {parent['median']:.2f} microseconds a record, busy"
        f" {details['parent_busy_ratio']:.2f} of a core ({threads})"
    )
    print(
        f"handler processes: {details['children_microseconds']:.2f} microseconds a record, on a"
        f" core {details['children_busy_ratio']:.2f} of the time"
    )


if __name__ == "__main__":
    main()
