"""The flags of ``vertex-budget try``; what it does is imported when it is run.

Owns names, ranges and help. ``consumer.trial.command`` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_EPILOG = """\b
A handler of your own, in tag.py of this folder, on a file with a GeoJSON object a line:
  vertex-budget try --handler tag:tag pings.ndjson

\b
What it returns as well, and a machine's answer for a script:
  vertex-budget try --handler tag:tag --outputs 3 pings.ndjson
  vertex-budget try --handler tag:tag --json pings.ndjson | jq .failed

\b
A handler that comes with the worker, on the first 1,000 records that something else writes:
  export VERTEX_BUDGET_JOIN_LAYER=countries.geojson VERTEX_BUDGET_OUTPUT_TOPIC=any
  zcat roads.ndjson.gz | vertex-budget try --handler consumer.handlers:join --limit 1000 -

\b
The table has a line for each size class of records: "units" is the larger of a record's vertices
and its bytes / 64, "a record" and "a vertex" are mean seconds of decoding and handling, "working
bytes" what a record needs of memory meanwhile. Small inputs are mostly first times: try thousands.

\b
Exit codes: 0 every record was done, 1 one failed or asked for a retry, or it could not be tried,
2 asked wrongly.
"""


def _handler(_context: click.Context, _flag: click.Parameter, value: str) -> str:
    module, _, name = value.partition(":")
    if not (module and name):
        msg = f"{value!r} is not of the form module:name, as in tag:tag for the tag of tag.py."
        raise click.BadParameter(msg)
    return value


@click.command(name="try", epilog=_EPILOG)
@click.option(
    "--handler",
    required=True,
    callback=_handler,
    metavar="MODULE:NAME",
    help="The handler: a function of one batch, or a class; in this folder, installed, or on"
    " PYTHONPATH.",
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path),
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Handler processes. Seconds are those of one process, whatever their number.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=86_400.0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of a record alone.",
)
@click.option(
    "--outputs",
    type=click.IntRange(0, 1_000),
    default=0,
    show_default=True,
    help="Show so many of the first outputs.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object instead.")
def try_handler(**given: Any) -> int:
    """Run a handler over files, in real handler processes, without Kafka.

    FILE is NDJSON (a Feature or geometry a line), a GeoJSON text sequence, or a FeatureCollection
    of any size, whose Features are records; - is standard input. Each record that fails or asks
    for a retry is named with its place and the reason, as its dead letter would be; the rest is
    counted. What dies or hangs costs its process, and is tried alone to find the record that does
    it. What the handler writes elsewhere is written. It finds records of topic "try", a partition a
    file, in order within a size class; a retry is not carried out.
    """
    from consumer.trial.command import Request, run

    return run(Request(**given))
