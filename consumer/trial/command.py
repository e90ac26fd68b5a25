"""``vertex-budget try``: files through a handler, and what came of it.

Owns the flow of the command: records, processes, progress, report, exit code. Reads no settings of
the worker; what a handler reads of the environment it finds there, but for the broker's
credentials, as in the worker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from consumer.errors import ConsumerError
from consumer.traffic.files import name_of
from consumer.trial import report
from consumer.trial.records import Cutter, read_files
from consumer.trial.running import Runner
from consumer.trial.tally import Tally

#: Width of the table where no terminal says how wide it is.
_FILE_COLUMNS = 160


class TrialError(ConsumerError):
    """There is nothing to try a handler on."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, as the command line says it."""

    handler: str
    files: Sequence[Path]
    processes: int
    #: most records
    limit: int | None
    #: seconds of a record alone
    timeout: float
    #: outputs to show
    outputs: int
    as_json: bool


def run(request: Request) -> int:
    """Try the handler and say what came of each record.

    Returns
    -------
    int
        0 when every record was done; 1 when one failed or asked for a retry.

    Raises
    ------
    ConsumerError
        When the handler cannot be opened or a file cannot be read, after what was tried is told;
        or when there are no records.
    """
    tally = Tally(request.outputs)
    cutter = Cutter(read_files(request.files, request.limit), tally.seconds_per_record)
    begun = time.monotonic()
    progress, advance = _progress(request, tally)
    runner = Runner(
        request.handler,
        cutter,
        tally,
        timeout_seconds=request.timeout,
        on_progress=advance,
    )
    try:
        with progress:
            runner.run(request.processes, _environment())
    finally:
        # What was tried before an error or Ctrl-C is told first.
        if tally.records:
            _report(request, tally, time.monotonic() - begun)
    if cutter.problem is not None:
        raise cutter.problem
    if not tally.records:
        names = ", ".join(map(name_of, request.files))
        text = f"there are no records in {names}: is it the right file, and was it written?"
        raise TrialError(text)
    return 1 if tally.failed or tally.retry else 0


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}


def _report(request: Request, tally: Tally, seconds: float) -> None:
    if request.as_json:
        data = report.as_data(tally, request.files, request.handler, seconds)
        print(orjson.dumps(data).decode())  # noqa: T201 - the command's result
        return
    # What a handler says is text, whatever brackets it has.
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _FILE_COLUMNS
    report.show(console, tally, request.files, request.handler, seconds)


def _progress(
    request: Request, tally: Tally
) -> tuple[AbstractContextManager[Any], Callable[[], None]]:
    """Return a bar to enter and what moves it; without a terminal, nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return nullcontext(), lambda: None
    bar = Progress(
        SpinnerColumn(),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    # What is between the records of a file is missing at the end; of a pipe nothing is known.
    sizes = [path.stat().st_size for path in request.files if path.is_file()]
    in_bytes = request.limit is None and len(sizes) == len(request.files)
    task = bar.add_task("", total=sum(sizes) if in_bytes else request.limit)

    def advance() -> None:
        text = f"{tally.records:,} records"
        if tally.failed or tally.retry:
            text += f", {tally.failed.total() + tally.retry.total():,} not done"
        done = tally.payload_bytes if in_bytes else tally.records
        bar.update(task, completed=done, description=text)

    return bar, advance
