"""Microseconds that one light record costs in the parent process.

Two measurements. The core alone (``Flow.step`` with prepared runs and immediate results), by
records in flight, by partitions and by run length: it should be flat in the first two. And the
whole worker on a real Kafka with pings and a handler that does nothing: user and system time of
the parent process, the Kafka client's threads included, divided by the records handled.

JSON keys: ``microseconds_per_record`` (the whole parent, client included),
``core_microseconds_by_in_flight``, ``core_microseconds_by_partitions``,
``core_microseconds_by_run_records``.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Run as a file, the script's own folder is on the path and the project is not.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common import (
    Spread,
    argument_parser,
    finish,
    print_table,
    real_kafka,
    say,
    significant,
    spread_of,
)
from bench.core_cost import CoreCost, core_cost
from bench.product import ProductRun, run_product
from bench.topics import PARTITIONS as PARTITIONS_OF_TOPIC
from bench.topics import fill_topic
from bench.workloads import COPIES, load_traffic, with_copies

IN_FLIGHT = (100, 1_000, 10_000, 100_000, 1_000_000)
PARTITIONS = (1, 10, 100, 1_000)
RUN_RECORDS = (500, 50, 5)
#: The point from which one figure at a time is varied.
BASE_IN_FLIGHT, BASE_PARTITIONS, BASE_RUN_RECORDS = 10_000, 8, 500


def measure_core(options: argparse.Namespace, repeats: int) -> dict[str, dict[str, Any]]:
    """Return the core's cost by in flight, by partitions and by run length."""
    records = 50_000 if options.quick else 500_000

    def at(in_flight: int, partitions: int, run_records: int) -> CoreCost:
        return core_cost(
            in_flight=in_flight,
            partitions=partitions,
            run_records=run_records,
            records=min(records, 4_000 * run_records),
            seed=options.seed,
        )

    axes: dict[str, tuple[tuple[int, ...], Callable[[int], CoreCost]]] = {
        "in_flight": (IN_FLIGHT, lambda n: at(n, BASE_PARTITIONS, BASE_RUN_RECORDS)),
        "partitions": (PARTITIONS, lambda n: at(BASE_IN_FLIGHT, n, BASE_RUN_RECORDS)),
        "run_records": (RUN_RECORDS, lambda n: at(BASE_IN_FLIGHT, BASE_PARTITIONS, n)),
    }
    found: dict[str, dict[int, list[CoreCost]]] = {axis: {} for axis in axes}
    for _ in range(repeats):
        for axis, (points, measure) in axes.items():
            for point in points:
                found[axis].setdefault(point, []).append(measure(point))
        say("  core: one round")
    return {
        axis: {str(point): _core_row(costs) for point, costs in by_point.items()}
        for axis, by_point in found.items()
    }


def _core_row(costs: list[CoreCost]) -> dict[str, Any]:
    spread = spread_of([cost.microseconds_per_record for cost in costs])
    return {
        "spread": spread,
        "in_flight": costs[0].in_flight,
        "records_per_chunk": costs[0].records_per_chunk,
    }


def measure_worker(options: argparse.Namespace, repeats: int) -> list[ProductRun]:
    """Return runs of the whole worker on pings with a handler that does nothing."""
    traffic = load_traffic("pings", options.seed)
    count = 300_000 if options.quick else 1_500_000
    runs = []
    with real_kafka(options.bootstrap) as kafka:
        bootstrap = kafka.bootstrap_servers
        topic = kafka.create_topic(f"parent-cost-{uuid.uuid4().hex[:8]}", PARTITIONS_OF_TOPIC)
        try:
            fill_topic(bootstrap, topic, with_copies(traffic.records, COPIES), count)
            for _ in range(repeats):
                runs.append(
                    run_product(bootstrap, topic, count, handler="bench.light_handler:handle")
                )
                say(f"  worker: {runs[-1].parent_microseconds:.2f} microseconds a record")
        finally:
            kafka.delete_topic(topic)
    return runs


def main() -> None:
    """Measure and report."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--core-only", action="store_true", help="no Kafka, no worker")
    options = parser.parse_args()
    repeats = options.repeats or (1 if options.quick else 3)
    core = measure_core(options, repeats)
    result: dict[str, Any] = {"bench": "parent_cost", "quick": options.quick, "repeats": repeats}
    for axis, rows in core.items():
        result[f"core_microseconds_by_{axis}"] = {
            point: significant(row["spread"].median) for point, row in rows.items()
        }
    for axis in ("in_flight", "partitions"):
        medians = [row["spread"].median for row in core[axis].values()]
        result[f"core_{axis}_most_over_least"] = significant(max(medians) / min(medians))
    result["core_reached_in_flight"] = {
        point: row["in_flight"] for point, row in core["in_flight"].items()
    }
    if not options.core_only:
        runs = measure_worker(options, repeats)
        result |= _worker_result(runs)
    if not options.json:
        _print(result, core)
    finish(result, as_json=options.json)


def _worker_result(runs: list[ProductRun]) -> dict[str, Any]:
    whole = spread_of([run.parent_microseconds for run in runs])
    threads = {name for run in runs for name in run.thread_microseconds}
    return {
        "microseconds_per_record": significant(whole.median),
        "microseconds_per_record_spread": whole.as_json(),
        "microseconds_by_thread": {
            name: significant(
                spread_of([r.thread_microseconds.get(name, 0.0) for r in runs]).median
            )
            for name in sorted(threads)
        },
        "records_per_second": spread_of([run.records_per_second for run in runs]).as_json(),
        "exit_codes": [run.exit_code for run in runs],
    }


def _print(result: dict[str, Any], core: dict[str, dict[str, Any]]) -> None:
    for axis, rows in core.items():
        print(f"\ncore alone, microseconds a record by {axis.replace('_', ' ')}")
        lines = [["", "median (min-max)", "in flight", "records a chunk"]]
        for point, row in rows.items():
            spread: Spread = row["spread"]
            lines.append(
                [
                    f"{int(point):,}",
                    str(spread),
                    f"{row['in_flight']:,}",
                    f"{row['records_per_chunk']:,.0f}",
                ]
            )
        print_table(lines)
    print(
        f"\nmost over least: {result['core_in_flight_most_over_least']} by in flight,"
        f" {result['core_partitions_most_over_least']} by partitions"
    )
    if "microseconds_per_record" not in result:
        return
    whole = result["microseconds_per_record_spread"]
    print(
        f"\nwhole parent, client included: {whole['median']} microseconds a record"
        f" ({whole['min']}-{whole['max']})"
    )
    print_table(
        [
            ["thread", "microseconds"],
            *([name, f"{spent:.2f}"] for name, spent in result["microseconds_by_thread"].items()),
        ]
    )


if __name__ == "__main__":
    main()
