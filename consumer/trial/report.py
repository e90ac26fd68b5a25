"""What a trial says: for people, or as one JSON object.

Owns the words and the table; counts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from consumer.core.events import Output
from consumer.traffic.files import name_of
from consumer.trial.records import TriedRecord
from consumer.trial.tally import ClassCost, NamedRecord, Tally
from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS
from sizing.units import about_bytes

#: Characters of an output that are shown.
_SHOWN_CHARACTERS = 200


def show(
    console: Console, tally: Tally, files: Sequence[Path], handler: str, seconds: float
) -> None:
    """Print the records that were not done, the outputs, the costs, and the counts."""
    for item in tally.named:
        console.print(f"{item.outcome}: {_place(files, item.record)}: {_words(item)}")
    unnamed = tally.failed.total() + tally.retry.total() - len(tally.named)
    if unnamed:
        console.print(f"and {unnamed:,} more that failed or asked for a retry")
    for record, output in tally.first_outputs:
        console.print(f"output: {_place(files, record)}: {_output_words(output)}")
    if tally.costs:
        console.print(_table(tally.costs))
    counts = [f"{tally.done:,} done"]
    for reasons, words in ((tally.failed, "failed"), (tally.retry, "asked for a retry")):
        if reasons:
            counts.append(f"{reasons.total():,} {words} ({_reasons(reasons)})")
    console.print(
        f"{handler}: {_number(tally.records, 'record')} of {_number(len(files), 'file')}"
        f" in {seconds:.1f} s: {', '.join(counts)};"
        f" {_number(tally.outputs, 'output')} ({about_bytes(tally.output_bytes)})"
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _reasons(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())


def _place(files: Sequence[Path], record: TriedRecord) -> str:
    return f"{name_of(files[record.file])}, {record.place}"


def _words(item: NamedRecord) -> str:
    text = " ".join(item.text.split()) or item.error_class
    return f"{item.reason}: {text}" if text else item.reason


def _output_words(output: Output) -> str:
    key = "" if output.key is None else f"{_text(output.key)} = "
    return key + ("null" if output.value is None else _text(output.value))


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _table(costs: Mapping[int, ClassCost]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("class", "units", "records", "vertices", "a record", "a vertex", "working bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for size_class, cost in sorted(costs.items()):
        a_vertex = cost.seconds_per_vertex
        table.add_row(
            str(size_class),
            _units(size_class),
            f"{cost.records:,}",
            f"{cost.vertices:,}",
            _time(cost.seconds_per_record),
            "" if a_vertex is None else _time(a_vertex),
            about_bytes(cost.working_bytes_per_record),
        )
    return table


def _units(size_class: int) -> str:
    least = int(CLASS_EDGES_UNITS[size_class])
    if size_class == CLASS_COUNT - 1:
        return f"{least:,}-"
    return f"{least:,}-{int(CLASS_EDGES_UNITS[size_class + 1]) - 1:,}"


def _time(seconds: float) -> str:
    """Write a short time for people.

    >>> _time(0.0000123), _time(0.0456), _time(7.8)
    ('12.3 us', '45.6 ms', '7.8 s')
    """
    for unit_seconds, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit_seconds:
            return f"{seconds / unit_seconds:.1f} {unit}"
    return f"{seconds * 1e6:.1f} us" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"


def as_data(tally: Tally, files: Sequence[Path], handler: str, seconds: float) -> dict[str, Any]:
    """Return everything as plain data, units in the names."""
    return {
        "handler": handler,
        "files": [name_of(path) for path in files],
        "records": tally.records,
        "payload_bytes": tally.payload_bytes,
        "seconds": round(seconds, 3),
        "done": tally.done,
        "failed": dict(tally.failed),
        "retry": dict(tally.retry),
        "named": [
            {
                "file": name_of(files[item.record.file]),
                "place": item.record.place,
                "outcome": item.outcome,
                "reason": item.reason,
                "error_class": item.error_class,
                "text": item.text,
            }
            for item in tally.named
        ],
        "classes": [
            {
                "class": size_class,
                "least_units": int(CLASS_EDGES_UNITS[size_class]),
                "records": cost.records,
                "vertices": cost.vertices,
                "seconds": cost.seconds,
                "seconds_per_record": cost.seconds_per_record,
                "seconds_per_vertex": cost.seconds_per_vertex,
                "working_bytes_per_record": round(cost.working_bytes_per_record),
            }
            for size_class, cost in sorted(tally.costs.items())
        ],
        "outputs": {
            "count": tally.outputs,
            "bytes": tally.output_bytes,
            "first": [
                {
                    "file": name_of(files[record.file]),
                    "place": record.place,
                    "key": None if output.key is None else _text(output.key),
                    "value": None if output.value is None else _text(output.value),
                    "headers": [
                        [name, None if value is None else _text(value)]
                        for name, value in output.headers
                    ],
                }
                for record, output in tally.first_outputs
            ],
        },
    }
