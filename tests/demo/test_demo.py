"""``vertex-budget demo`` as a stranger runs it: nothing but the package, one line, an account."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import orjson
import psutil
import pytest

from consumer import cli
from consumer.core.limits import LIMITS, NONE
from consumer.core.status import STATE_NAMES
from consumer.demo.worker import MEMORY_LIMIT_BYTES
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
#: A demonstration of ten seconds, on a machine that has other things to do.
DEADLINE_SECONDS = 150.0


@contextmanager
def demo(tmp_path, *arguments: str):
    """Start one in a folder where nothing of ours lies; its output goes to ``out`` and ``err``."""
    command = [sys.executable, "-m", "consumer", "demo", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (
        (tmp_path / "out").open("wb") as out,
        (tmp_path / "err").open("wb") as err,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=err) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def worker_of(process: subprocess.Popen) -> psutil.Process | None:
    """Return the worker's process, once it handles records."""
    for child in psutil.Process(process.pid).children():
        if len(child.children()) >= 2:
            return child
    return None


def wait_for_worker(process: subprocess.Popen) -> psutil.Process:
    worker = wait_until(lambda: worker_of(process), 60.0, "the worker")
    assert worker is not None
    return worker


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_every_record_is_accounted_for(tmp_path):
    """Exit code 0, and one object on the last line whose figures agree with each other."""
    with demo(tmp_path, "--seconds", "10", "--json", "--seed", "3") as process:
        code = process.wait(DEADLINE_SECONDS)

    err = (tmp_path / "err").read_text()
    assert code == 0, err
    said = orjson.loads((tmp_path / "out").read_text().splitlines()[-1])
    assert said["produced"] == said["handled"] + said["dead_lettered"] > 10_000
    assert said["dead_letter_reasons"] == {"malformed-json": 1, "killed-process": 1}
    assert (said["dead_lettered"], said["lost"], said["duplicates"]) == (2, 0, 0)
    assert (said["uncommitted"], said["unfinished"], said["evictions"]) == (0, 0, 0)
    assert said["max_charge_over_budget"] <= 0.0
    assert 0 < said["peak_bytes"] < MEMORY_LIMIT_BYTES
    assert said["metrics_url"].startswith("http://127.0.0.1:")
    assert set(said["states"]) <= set(STATE_NAMES)
    assert said["states"]["running"] > 0
    assert said["sizings"][0]["reason"] == "warm-up"
    for sizing in said["sizings"]:
        bounds = {bound: sizing[f"{bound}_bound_vertices"] for bound in ("memory", "deadline")}
        assert sizing["vertex_budget"] == min(bounds.values()) == bounds[sizing["binding"]]
        assert sizing["limited_by"] in {NONE, *LIMITS.names}
        assert sizing["message_budget"] >= 1
    times = [sizing["at_seconds"] for sizing in said["sizings"]]
    assert times == sorted(times)
    # Without a terminal it tells the same in lines.
    assert "--- night: " in err
    assert "--- busy hour: " in err
    assert "sized: first measurement of the live traffic" in err
    assert "none was lost" in err


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_finishes_what_was_produced(tmp_path):
    """It stops producing, lets the worker finish, and gives the account all the same."""
    with demo(tmp_path, "--seconds", "600", "--json") as process:
        wait_for_worker(process)
        err = tmp_path / "err"
        wait_until(lambda: "handled, " in err.read_text(), 60.0, "a line of progress")
        process.send_signal(signal.SIGINT)
        code = process.wait(DEADLINE_SECONDS)

    assert code == 0, err.read_text()
    said = orjson.loads((tmp_path / "out").read_text().splitlines()[-1])
    assert said["produced"] == said["handled"] + said["dead_lettered"]
    assert said["lost"] == 0
    assert "interrupted" in err.read_text()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_that_dies_is_told(tmp_path):
    """Exit code 1, with the worker's own; nothing of it is left behind."""
    with demo(tmp_path, "--seconds", "600") as process:
        worker = wait_for_worker(process)
        children = worker.children(recursive=True)
        worker.kill()
        code = process.wait(60.0)

    assert code == 1
    assert "the worker ended with exit code -9" in (tmp_path / "err").read_text()
    psutil.wait_procs(children, timeout=20.0)
    assert not any(child.is_running() for child in children)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_nothing_outlives_a_demonstration_that_is_killed(tmp_path):
    """The worker and its processes go with it, whatever ends it."""
    with demo(tmp_path, "--seconds", "600") as process:
        worker = wait_for_worker(process)
        family = [worker, *worker.children(recursive=True)]
        process.kill()
        process.wait(10.0)

    _, alive = psutil.wait_procs(family, timeout=20.0)
    assert alive == []


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--seconds", "1"), "1.0 is not in the range 10<=x<=3600"),
        (("--seconds", "x"), "'x' is not a valid float"),
        (("--seed", "x"), "'x' is not a valid integer"),
        (("--no-tuy",), "No such option '--no-tuy'"),
        (("surplus",), "surplus"),
    ],
)
def test_what_is_asked_wrongly_is_told_and_exits_with_2(arguments, wrong, capsys):
    """Nothing is started."""
    assert cli.main(["demo", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert wrong in err
