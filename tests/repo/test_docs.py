"""The documentation is right: what it names exists, what it computes comes out, its code works.

Examples are taken from the documents; no test repeats one. The commands that need a Kafka, a new
environment or an engine are run by ``test_docs_commands``.
"""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import shapely

from consumer import cli
from consumer.batch import OutputRecord
from consumer.core import reasons
from consumer.core.admission.own_pauses import RETRYING_RECORDS
from consumer.core.admission.pausing import PAUSE_FROM_SECONDS
from consumer.core.config import FlowConfig
from consumer.core.flow import LEAST_SHARDS
from consumer.core.limits import LIMITS, NONE
from consumer.core.measuring.schedule import WARMUP_PATIENCE
from consumer.core.status import STATE_NAMES
from consumer.kafka import dead_letters
from consumer.payload.geojson_scan import COLLECTION_DEPTH_LIMIT
from consumer.settings.table import CONFIG_FILE_VARIABLE, PREFIX, SETTINGS
from consumer.telemetry.metrics_table import METRICS
from consumer.testing import batch_of
from sizing.charge import WORK_SHARE_RATIO
from sizing.classes import PAYLOAD_BYTES_PER_UNIT
from sizing.model import HELD_BYTES_PER_RECORD, LEAST_BYTES_PER_VERTEX_OF_TEXT
from sizing.rates import (
    CHUNKS_REMEMBERED,
    PRIOR_BYTES_PER_VERTEX,
    PRIOR_SECONDS_PER_MESSAGE,
    PRIOR_SECONDS_PER_VERTEX,
)
from sizing.report import Sample
from tests.repo.documents import ROOT, blocks, documents, first_column, links, sections, text_of
from tests.snapshots import SIZING

DOCTEST_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
POINT = b'{"type":"Feature","properties":{"vehicle_id":"%s"},"geometry":%s}'
CENTRE = b'{"type":"Point","coordinates":[-2.9,53.4]}'
ELSEWHERE = b'{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,2],[0,2],[0,0]]]}'


# -- what is written from tables ---------------------------------------------------------------


def test_tables_are_those_of_the_code() -> None:
    """Each table made from the code is what ``scripts/render-docs`` writes now."""
    done = subprocess.run(
        [sys.executable, "scripts/render-docs", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_setting_and_metric_is_documented() -> None:
    """Each row of either table has its line."""
    settings, metrics = text_of("docs/settings.md"), text_of("docs/metrics.md")
    assert not [row.variable for row in SETTINGS if f"| `{row.variable}` |" not in settings]
    assert not [row.full_name for row in METRICS if f"| `{row.full_name}` |" not in metrics]


@pytest.mark.parametrize("name", reasons.KINDS)
def test_every_kind_of_reasons_is_documented(name: str) -> None:
    """There is a table of each kind."""
    assert text_of("docs/how-it-works.md").count(f"<!-- table {name} -->") == 1


# -- where things are --------------------------------------------------------------------------


def test_every_place_on_the_architecture_page_is_there() -> None:
    """A file or folder that it names exists, and so does a test that it names."""
    text = text_of("docs/architecture.md")
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py(?:::\w+)?|/))`", text))
    assert len(named) > 40
    for name in sorted(named):
        path, _, test = name.partition("::")
        found = [ROOT / base / path for base in ("", "consumer", "consumer/core")]
        (place,) = [place for place in found if place.exists()][:1] or [None]
        assert place is not None, f"{path} is not there"
        assert not test or f"def {test}(" in place.read_text(), name


def test_every_folder_is_on_the_architecture_page() -> None:
    """A package that a newcomer sees is explained, there and at its own top."""
    text = text_of("docs/architecture.md")
    packages = [path.parent for path in (ROOT / "consumer").rglob("__init__.py")]
    for package in packages:
        said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
        assert len(said.splitlines()) >= 4, f"{package.name}: says too little of itself"
        assert f"{package.name}/" in text, f"{package.name} is not on the page"


# -- what is named -----------------------------------------------------------------------------


def test_states_and_causes_are_those_of_the_core() -> None:
    """The README explains every state and every cause, in the order of the code's tables."""
    assert first_column("README.md", "`state`") == list(STATE_NAMES)
    assert first_column("README.md", "`limited_by`") == [NONE, *LIMITS.names]


def test_headers_of_dead_letters_are_those_of_the_code() -> None:
    """Every header that begins with ``dlq.`` is named, and no other."""
    named = set(re.findall(r"`(dlq\.[a-z0-9.]+)`", text_of("docs/how-it-works.md")))
    known = {v for v in vars(dead_letters).values() if isinstance(v, str) and v[:4] == "dlq."}
    assert named == known - {dead_letters.PREFIX}


def test_exit_codes_are_those_of_the_command_line() -> None:
    """The README names every exit code."""
    (line,) = (t for t in text_of("README.md").splitlines() if t.startswith("Exit codes:"))
    codes = (cli.OK, cli.FAILED, cli.USAGE, cli.INTERRUPTED)
    assert [int(code) for code in re.findall(r"\d+", line)] == list(codes)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_names_of_settings_and_metrics_exist(path: Path) -> None:
    """Whatever looks like one of our variables or metrics is one."""
    text = path.read_text()
    variables = {row.variable for row in SETTINGS} | {
        CONFIG_FILE_VARIABLE,
        f"{PREFIX}_CORPUS",
        f"{PREFIX}_",
    }
    assert not set(re.findall(rf"\b{PREFIX}(?:_[A-Z_]*)?\b", text)) - variables
    metrics = {row.full_name for row in METRICS}
    assert not set(re.findall(r"\bvertex_budget_[a-z_]+\b", text)) - metrics


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_paths_exist(path: Path) -> None:
    """Links lead somewhere, down to the heading; so does each path of the tree in code quotes."""
    for target in links(path):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        assert not anchor or anchor in sections(file.read_text()), target
    prose = re.findall(r"`([\w./-]+)`", path.read_text())
    ours = [p for p in prose if re.match(r"(consumer|sizing|tests|bench|scripts|docs|deploy)/", p)]
    assert not [p for p in ours if not (ROOT / p).exists()]


def test_changelog_has_the_version_of_the_project() -> None:
    """The version that is built has an entry, and what is not released has a place."""
    headings = re.findall(r"^## \[(.+?)\]", text_of("CHANGELOG.md"), re.MULTILINE)
    version = re.search(r'^version = "(.+)"$', text_of("pyproject.toml"), re.MULTILINE)
    assert version is not None
    assert headings[:2] == ["Unreleased", version[1]]


# -- what is computed --------------------------------------------------------------------------


def budget_example() -> Any:
    """Return the ``/budget`` that the documentation computes with."""
    (block,) = blocks("docs/how-it-works.md", "json")
    return json.loads(block.text)


@pytest.mark.parametrize("name", ["docs/how-it-works.md", "CONTRIBUTING.md"])
def test_examples_come_out_as_written(name: str) -> None:
    """Every Python example runs on the real functions, one after another."""
    runner = doctest.DocTestRunner(optionflags=DOCTEST_FLAGS)
    known: dict[str, Any] = {"budget": budget_example()}
    tried = 0
    said: list[str] = []
    for number, block in enumerate(blocks(name, "python")):
        test = doctest.DocTestParser().get_doctest(block.text, known, f"{name}-{number}", name, 0)
        result = runner.run(test, out=said.append, clear_globs=False)
        known = test.globs
        tried += result.attempted
        assert not result.failed, "".join(said)
    assert tried


def test_budget_example_has_the_fields_of_a_sizing() -> None:
    """What the example shows is what ``/budget`` has today, and each of it."""
    sizing = budget_example()["sizing"]
    assert set(sizing) == set(SIZING.as_data())
    assert set(sizing["sample"]) == {field.name for field in dataclasses.fields(Sample)}


def test_the_readme_redoes_the_example() -> None:
    """The README's line of figures is that of the example, and gives its deadline bound."""
    sizing = budget_example()["sizing"]
    (line,) = (t for t in text_of("README.md").splitlines() if t.strip().startswith("= (15 s"))
    figures = [float(x.replace(",", "")) for x in re.findall(r"[\d.,]+\d|\d", line)]
    deadline, chunks, parent, work, chain, bound = figures
    assert bound == sizing["deadline_bound_messages"]
    assert deadline == sizing["drain_deadline_seconds"]
    assert parent == pytest.approx(sizing["parent_seconds_per_message"] * 1e6, rel=1e-3)
    assert (deadline - chunks) / (parent + work + chain) * 1e6 == pytest.approx(bound, rel=1e-3)


def test_figures_of_the_rules_are_those_of_the_code() -> None:
    """Where the explanation names a constant, it has the constant's value."""
    config = FlowConfig(processes=1)
    patience = WARMUP_PATIENCE * config.warmup_seconds
    text = " ".join(text_of("docs/how-it-works.md").split())
    for said in (
        f"payload bytes / {PAYLOAD_BYTES_PER_UNIT}.",
        f"payload (value, key, headers) + {HELD_BYTES_PER_RECORD:g} ",
        f"about {config.chunk_seconds * 1e3:g} ms of work, at most {config.chunk_bytes >> 20} MiB",
        f"and {WORK_SHARE_RATIO} * memory_available_bytes",
        f"with {config.warmup_messages:,} records and {config.warmup_seconds:g} seconds",
        f"or after {patience:g} seconds by the clock",
        f"its last {CHUNKS_REMEMBERED} chunks",
        f"at least {PRIOR_SECONDS_PER_MESSAGE * 1e3:g} ms a message,"
        f" {PRIOR_SECONDS_PER_VERTEX * 1e6:g} µs a vertex and {PRIOR_BYTES_PER_VERTEX:g} bytes",
        f"under {LEAST_BYTES_PER_VERTEX_OF_TEXT:g} for a vertex of text",
        f"hashed to {LEAST_SHARDS} shards",
        f"more than {PAUSE_FROM_SECONDS:g} seconds of work",
        f"or {RETRYING_RECORDS:,} records",
        f"more than {COLLECTION_DEPTH_LIMIT} collections inside each other",
    ):
        assert said in text, said


# -- handlers ----------------------------------------------------------------------------------


@pytest.fixture
def handler_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the README's handlers, each in the file that the README names."""
    named = re.findall(r"This one is `(\w+)\.py`", text_of("README.md"))
    written = blocks("README.md", "python", "Write a handler")
    assert len(named) == len(written)
    for name, block in zip(named, written, strict=True):
        (tmp_path / f"{name}.py").write_text(block.text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in named:
        sys.modules.pop(name, None)


def handler_named(spec: str) -> Any:
    """Return what ``module:name`` names."""
    module, _, name = spec.partition(":")
    return getattr(importlib.import_module(module), name)


def test_the_function_of_the_readme(handler_folder: Path) -> None:
    """It answers what is in the centre, and refuses what has no location."""
    values = [POINT % (b"4001", CENTRE), POINT % (b"4002", ELSEWHERE), POINT % (b"4003", b"null")]
    handled = batch_of(*values, keys=["a", "b", "c"]).handled_by(handler_named("tag:tag"))
    assert handled.outputs == [OutputRecord(0, b"4001 is in the centre", b"a")]
    assert handled.failed == {2: "no-location"}
    assert handled.done == [0, 1]


def test_the_class_of_the_readme(handler_folder: Path) -> None:
    """It stores each record once, however often it is handled, and waits for a locked database."""
    areas = handler_named("store:Areas")
    values = [POINT % (b"1", CENTRE), POINT % (b"2", ELSEWHERE)]
    batch = batch_of(*values, topic="town", partition=3, offsets=[100, 101])
    for _ in range(2):
        assert batch.handled_by(areas).done == [0, 1]
    other = sqlite3.connect(handler_folder / "areas.db", timeout=1.0)
    rows = other.execute("select place, area from areas order by place").fetchall()
    assert rows == [("town/3/100", 0.0), ("town/3/101", 4.0)]
    assert shapely.area(shapely.from_geojson(ELSEWHERE)) == 4.0
    other.execute("begin immediate")
    assert batch.handled_by(areas).retry == {0: "retry-requested", 1: "retry-requested"}
    other.rollback()
    other.close()


def test_the_unit_test_of_the_readme(handler_folder: Path) -> None:
    """What it says of the handler holds."""
    handler_named("test_tag:test_what_has_no_location_is_refused")()


def test_the_handlers_of_the_readme_are_typed(handler_folder: Path) -> None:
    """``mypy --strict`` finds nothing in them, and finds a batch that is used wrongly."""
    # shapely ships no types; the README says so.
    (handler_folder / "mypy.ini").write_text("[mypy-shapely.*]\nignore_missing_imports = True\n")
    (handler_folder / "wrong.py").write_text(
        "from consumer.batch import Batch\n\n\n"
        "def handle(batch: Batch) -> None:\n    batch.fail('0', 1)\n    batch.part([0])\n"
    )
    files = sorted(path.name for path in handler_folder.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-color-output", *files],
        cwd=handler_folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert found == [
        ("wrong.py", "5", "arg-type"),
        ("wrong.py", "5", "arg-type"),
        ("wrong.py", "6", "attr-defined"),
    ], done.stdout + done.stderr
