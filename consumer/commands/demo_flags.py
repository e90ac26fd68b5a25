"""The flags of ``vertex-budget demo``; what it does is imported when it is run.

Owns names, ranges and help. ``consumer.demo.command`` does the work.
"""

from __future__ import annotations

import click

_EPILOG = """\b
See it work, in about a minute, with nothing but this package:
  vertex-budget demo

\b
The same on a real Kafka (needs vertex-budget[kafka]), with coastlines of 200,000 vertices:
  vertex-budget demo --real-kafka

\b
For a script: one JSON object on the last line of stdout:
  vertex-budget demo --seconds 20 --json | tail -1

\b
Exit codes: 0 every record was handled or dead-lettered, 1 one was not or the demo could not run,
2 asked wrongly.
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--seconds",
    type=click.FloatRange(10, 3_600),
    default=50.0,
    show_default=True,
    help="How long traffic is sent; starting, draining and stopping come on top.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object on the last line.")
@click.option("--no-tui", is_flag=True, help="Plain lines instead of a live view.")
@click.option("--real-kafka", is_flag=True, help="Start a real Kafka, and send giants as well.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides the traffic.")
def demo(*, seconds: float, as_json: bool, no_tui: bool, real_kafka: bool, seed: int) -> int:
    """Show the worker on a day's traffic: what it measures, which bound binds, when it pauses.

    Starts a broker in this process and the real worker beside it, with little memory and a short
    deadline, so that a quiet night, a busy hour and a burst take it to each of its two bounds. At
    the end every record is accounted for.
    """
    from consumer.demo.command import run

    return run(seconds=seconds, as_json=as_json, plain=no_tui, real_kafka=real_kafka, seed=seed)
