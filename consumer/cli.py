"""The command line: commands, flags made from the table of settings, and exit codes.

Owns what people type and how a failure is told: one short message on stderr, never a traceback for
what can be expected. Exit codes: 0 well, 1 it could not be done, 2 it was asked wrongly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import orjson

from consumer.commands.demo_flags import demo
from consumer.commands.traffic_flags import traffic
from consumer.commands.try_flags import try_handler
from consumer.errors import ConfigError, ConsumerError
from consumer.settings.reading import Reading, SettingsError, read_settings
from consumer.settings.sources import KAFKA_FLAG
from consumer.settings.table import CONFIG_FILE_VARIABLE, SETTINGS, Setting
from consumer.version import worker_version
from sizing.errors import SizingError

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130

_NAME = "vertex-budget"
_Command = TypeVar("_Command", bound=Callable[..., Any])

_EXAMPLE = """\b
Try it on your own traffic, holding back only what memory needs:
  vertex-budget run --mode shadow \\
    --topics parcels --handler consumer.handlers:validate \\
    --kafka bootstrap.servers=localhost:9092 --kafka group.id=sizing

\b
See what it would use, and from where, before it runs:
  vertex-budget config --check
"""

_SETTINGS_EPILOG = """\b
Every flag is also an environment variable and a key of a TOML file. The later wins:
defaults, environment, file, flags. The Kafka client's own properties:
  --kafka sasl.username=me        flag
  KAFKA_SASL_USERNAME=me          environment
  KAFKA_SASL_PASSWORD_FILE=/run/secrets/kafka    environment, the value read from a file
  [kafka]
  sasl.username = "me"            TOML

\b
Example:
  vertex-budget {command} --topics parcels,roads --handler shop.geo:tag \\
    --kafka bootstrap.servers=kafka:9092 --kafka group.id=tagger
"""


@click.group(
    name=_NAME,
    epilog=_EXAMPLE,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(worker_version(), prog_name=_NAME)
def cli() -> None:
    """Handle geospatial Kafka records, never holding more than memory and time allow.

    The worker measures what a vertex and a message cost here, derives how much work may be in
    flight from the container's memory and the time it has to drain, and pauses and resumes
    partitions so that it never holds more. It says which of the two binds.
    """


cli.add_command(demo)
cli.add_command(traffic)
cli.add_command(try_handler)


def _option(row: Setting) -> Callable[[_Command], _Command]:
    choice = row.allowed.replace(", ", "|")
    plain = " " in choice or "'" in choice
    metavar = (row.unit.upper() or "TEXT") if plain else f"[{choice}]"
    default = "" if row.default == "(required)" else f"; default {row.default}"
    allowed = f" Allowed: {row.allowed}." if plain else ""
    return click.option(
        row.flag,
        row.name,
        metavar=metavar,
        help=f"{row.help}{allowed} [{row.variable}{default}]",
    )


def settings_options(function: _Command) -> _Command:
    """Give a command every flag of the table; ``reading_of`` reads them."""
    for row in reversed(SETTINGS):
        function = _option(row)(function)
    function = click.option(
        KAFKA_FLAG,
        "kafka",
        metavar="NAME=VALUE",
        multiple=True,
        help="A property of the Kafka client; may be repeated. [KAFKA_NAME]",
    )(function)
    return click.option(
        "--config-file",
        metavar="PATH",
        help=f"TOML file of settings, Kafka properties in its table [kafka]."
        f" [{CONFIG_FILE_VARIABLE}]",
    )(function)


def reading_of(given: dict[str, Any]) -> Reading:
    """Read all sources, with a command's parameters as the flags."""
    return read_settings(
        os.environ,
        flags={row.name: given[row.name] for row in SETTINGS},
        kafka=given["kafka"],
        config_file=given["config_file"],
    )


@cli.command(epilog=_SETTINGS_EPILOG.format(command="run"))
@settings_options
def run(**given: Any) -> int:
    """Join the group and handle records until SIGTERM or SIGINT.

    The first signal drains what is in flight, commits and leaves; a second one leaves at once.
    """
    reading = reading_of(given)
    if reading.settings is None:
        raise SettingsError(reading.problems)
    # Kafka, shapely and the rest: not for a command that only shows help or finds a mistake.
    from consumer.runtime.worker import run as run_worker
    from consumer.telemetry.logs import configure_logging

    settings = reading.settings
    writer = configure_logging(
        settings.log_format, settings.log_level.number, secrets=settings.secrets
    )
    try:
        return run_worker(settings)
    finally:
        writer.close()


@cli.command(epilog=_SETTINGS_EPILOG.format(command="config"))
@settings_options
@click.option("--check", is_flag=True, help="Only say whether everything is right.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def config(*, check: bool, as_json: bool, **given: Any) -> int:
    """List every setting: its value, where it comes from, what is allowed, what it means.

    Takes the same flags as run and connects to nothing. Secrets are not shown.
    """
    reading = reading_of(given)
    if as_json:
        click.echo(orjson.dumps(_config_data(reading), option=orjson.OPT_INDENT_2))
    elif not check:
        _show_config(reading)
    if reading.problems:
        raise SettingsError(reading.problems)
    if check and not as_json:
        click.echo("every setting is right")
    return OK


def _config_data(reading: Reading) -> dict[str, Any]:
    return {
        "valid": not reading.problems,
        "problems": [
            {"name": p.name, "source": p.source, "wrong": p.wrong, "allowed": p.allowed}
            for p in reading.problems
        ],
        "settings": [
            {
                "name": row.name,
                "value": shown.value,
                "origin": shown.origin,
                "environment": row.variable,
                "flag": row.flag,
                "unit": row.unit,
                "default": row.default,
                "allowed": row.allowed,
                "meaning": row.help,
                "reason_for_default": row.reason,
            }
            for row, shown in zip(SETTINGS, reading.shown, strict=True)
        ],
        "kafka": [
            {"name": shown.name, "value": shown.value, "origin": shown.origin}
            for shown in reading.kafka_shown
        ],
    }


def _show_config(reading: Reading) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for row, shown in zip(SETTINGS, reading.shown, strict=True):
        console.print(
            Text.assemble(
                (shown.name, "bold"), " = ", (shown.value, "cyan"), (f"  ({shown.origin})", "dim")
            )
        )
        meaning = f"{row.help} Allowed: {row.allowed}. {row.variable}, {row.flag}."
        why = f" Default {row.default}: {row.reason}."
        console.print(Padding(Text(meaning + why), (0, 0, 1, 4)))
    console.print(Text("Kafka properties", "bold"))
    for shown in reading.kafka_shown:
        console.print(Text.assemble("    ", shown.name, " = ", (shown.value, "cyan")), end="")
        console.print(Text(f"  ({shown.origin})", "dim"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. The only place where errors become text."""
    try:
        code = cli.main(args=arguments, prog_name=_NAME, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _failed("interrupted", INTERRUPTED)
    except (SettingsError, ConfigError) as error:
        return _failed(str(error), USAGE)
    except (ConsumerError, SizingError) as error:
        return _failed(str(error), FAILED)
    except BrokenPipeError:
        # The reader of stdout went away (``| head``): nothing to say, nowhere to say it. What
        # the interpreter still flushes at its end goes nowhere as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else OK


def _failed(text: str, code: int) -> int:
    click.echo(f"{_NAME}: {text}", err=True)
    return code
