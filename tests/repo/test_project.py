"""The project's own files agree with each other."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEST_LINE = ".venv/bin/pip install -q '.[test]' && .venv/bin/pytest"


def test_installed_version_is_the_project_file_s():
    """The version is written once, in pyproject.toml, and the installed package says the same."""
    assert metadata.version("vertex-budget") == PROJECT["version"]


def test_version_is_not_repeated_in_the_source():
    """No module carries a version of its own that could go stale."""
    quoted = re.compile(rf"""["']{re.escape(PROJECT["version"])}["']""")
    sources = [p for package in ("consumer", "sizing") for p in (ROOT / package).rglob("*.py")]

    assert sources
    assert not [str(path) for path in sources if quoted.search(path.read_text())]


def test_ci_runs_the_test_line_of_the_readme():
    """What the README tells people to run is what CI runs."""
    assert TEST_LINE in (ROOT / "README.md").read_text().splitlines()
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


def test_packages_are_typed_and_documented():
    """Both packages carry their types, and every module says what it is for."""
    for package in ("consumer", "sizing"):
        assert (ROOT / package / "py.typed").is_file()
    silent = [
        str(path.relative_to(ROOT))
        for package in ("consumer", "sizing")
        for path in (ROOT / package).rglob("*.py")
        if (text := path.read_text()).strip() and not ast.get_docstring(ast.parse(text))
    ]

    assert not silent


def test_every_test_says_what_it_shows():
    """Each test states the behaviour that it checks in its docstring."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert not silent


def test_lock_names_no_host():
    """The lock holds names and versions only: where they come from is the reader's choice."""
    lock = (ROOT / "requirements" / "ci.lock").read_text()

    assert "://" not in lock
    assert re.search(r"^confluent-kafka==", lock, re.MULTILINE)
