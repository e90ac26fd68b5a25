"""The flags of ``vertex-budget traffic``; what it does is imported when it is run.

Owns names, ranges and help. ``consumer.traffic.command`` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from consumer.traffic.mix import DEFAULT_MIX_TEXT

_EPILOG = """\b
Half a minute of a town's traffic, 5,000 records a second, the topic made when it is missing:
  vertex-budget traffic --topic town --partitions 8 --rate 5000 --seconds 30 \\
    --kafka bootstrap.servers=localhost:9092

\b
A day in ten minutes: nights of pings, busy hours of parcels and coastlines:
  vertex-budget traffic --topic town --rate 2000 --shift 600 \\
    --mix pings=.9,lines=.05,polygons=.04,coastlines=.01

\b
Your own data, as fast as the broker takes it, keyed by a property:
  vertex-budget traffic --topic town --rate max --file roads.ndjson --file lots.geojson --key id

\b
The broker, from the environment as well: KAFKA_BOOTSTRAP_SERVERS, KAFKA_SASL_USERNAME,
KAFKA_SASL_PASSWORD_FILE, ... Exit codes: 0 the broker took every record sent (also after Ctrl-C),
1 it did not or there is none, 2 asked wrongly.
"""


def _rate(_context: click.Context, _flag: click.Parameter, value: str) -> float | None:
    """Return records a second; None means as fast as possible."""
    if value == "max":
        return None
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate <= 10_000_000:
        msg = f"{value!r} is no rate: records a second, above 0, or 'max'."
        raise click.BadParameter(msg)
    return rate


_SECONDS = click.FloatRange(min=0, min_open=True, max=366 * 86_400.0)
_MANY = click.IntRange(min=1, max=10**12)


@click.command(epilog=_EPILOG)
@click.option("--topic", required=True, metavar="NAME", help="The topic to write to.")
@click.option(
    "--mix",
    default=DEFAULT_MIX_TEXT,
    show_default=True,
    metavar="KIND=SHARE,...",
    help="Shares of pings of vehicles, road lines, polygons (parcels with holes) and coastlines.",
)
@click.option(
    "--rate",
    callback=_rate,
    default="1000",
    show_default=True,
    metavar="N|max",
    help="Records a second.",
)
@click.option("--seconds", type=_SECONDS, help="Stop after so long. Default: at Ctrl-C.")
@click.option("--count", type=_MANY, help="Stop after so many records.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The same seed, the same records."
)
@click.option(
    "--shift",
    type=_SECONDS,
    metavar="SECONDS",
    help="Let a day pass in so many seconds, from midnight on: the rate moves between 0.4 and 1.6"
    " of --rate, and all but pings between a tenth and three times their shares.",
)
@click.option(
    "--giants",
    type=click.IntRange(0, 10_000),
    default=0,
    help="Coastlines of 200,000 vertices (4.5 MB) to spread over the run. A topic that is made"
    " here takes them; others need max.message.bytes of 5 MB or more.",
)
@click.option(
    "--max-vertices",
    type=click.IntRange(1_000, 200_000),
    default=20_000,
    show_default=True,
    help="Most vertices of the other coastlines; 20,000 is half of what a broker takes by default.",
)
@click.option(
    "--vehicles",
    type=click.IntRange(1, 1_000_000),
    default=200,
    show_default=True,
    help="Vehicles that send pings: so many keys.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    help="Make the topic with so many partitions when it is missing. Default: do not.",
)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="PATH",
    help="Send what is in this file instead: NDJSON (a Feature or geometry a line), a GeoJSON text"
    " sequence, or a FeatureCollection of any size. May be repeated.",
)
@click.option(
    "--key",
    "key_property",
    metavar="PROPERTY",
    help="Property of the files' Features that becomes the key. Default: the Feature's id.",
)
@click.option("--repeat", is_flag=True, help="Begin the files again until --count or --seconds.")
@click.option(
    "--kafka",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the Kafka client; may be repeated. [KAFKA_NAME]",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object on the last line.")
def traffic(**given: Any) -> int:
    """Write traffic to a topic: generated as a town makes it, or replayed from files.

    Generated records are GeoJSON Features: moving vehicles, bending roads, parcels with
    courtyards, and coasts with bays within bays. Keys are those of vehicles, roads, parcels.
    """
    from consumer.traffic.command import Request, run

    return run(Request(**given))
