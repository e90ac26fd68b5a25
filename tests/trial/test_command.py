"""``vertex-budget try`` as people run it: real handler processes, real files, no Kafka."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from consumer import cli
from consumer.errors import HandlerError
from consumer.trial.records import Cutter, read_files
from consumer.trial.running import Runner
from consumer.trial.tally import Tally
from tests.processes.chunks import HANDLERS, feature, is_running
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 50.0


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join([*lines, b""]))
    return path


def run(*arguments: object) -> int:
    return cli.main(["try", *map(str, arguments)])


def run_acts(*arguments: object) -> int:
    """Run the handler that does what each record says."""
    return run("--handler", f"{HANDLERS}:acts", *arguments)


@pytest.fixture
def said(capsys):
    """What ``--json`` wrote."""

    def read() -> Any:
        return orjson.loads(capsys.readouterr().out)

    return read


def named(data: Any) -> list[tuple[str, str, str]]:
    return [(item["place"], item["outcome"], item["reason"]) for item in data["named"]]


def test_all_done_is_zero(tmp_path, capsys):
    """Counts, costs by class and outputs, in words and a table."""
    path = write(tmp_path / "a.ndjson", *[feature()] * 30)

    assert run("--handler", f"{HANDLERS}:echo", "--outputs", 1, path) == 0

    *rest, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"{HANDLERS}:echo: 30 records of 1 file in ")
    assert ": 30 done; 30 outputs (" in last
    assert rest[0] == f"output: {path}, line 1: {feature().decode()}"
    assert rest[1].split() == [
        *("class", "units", "records", "vertices"),
        *("a", "record", "a", "vertex", "working", "bytes"),
    ]
    # A point of some 90 bytes: two units.
    assert rest[2].split()[:4] == ["0", "1-3", "30", "30"]
    assert len(rest) == 3


def test_failed_and_retried_records_are_named(tmp_path, capsys):
    """With file, place, reason and words; the exit code says that not all were done."""
    path = write(
        tmp_path / "a.ndjson", feature(), feature("fail"), feature("retry"), feature("raise")
    )
    other = write(tmp_path / "b.ndjson", feature("fail-in-words"))

    assert run_acts(path, other) == 1

    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert f"failed: {path}, line 2: not-wanted: of no use here" in lines
    assert f"retry: {path}, line 3: retry-requested: later" in lines
    assert f"failed: {other}, line 1: handler-refused: Not wanted: 17" in lines
    (raised,) = (line for line in lines if "line 4" in line)
    assert "handler-error: ValueError: cannot handle offset 3 (" in raised
    assert "5 records of 2 files" in lines[-1]
    assert "1 done, 3 failed (" in lines[-1]
    assert "1 asked for a retry (retry-requested 1)" in lines[-1]
    assert "Traceback" not in out + err


def test_what_cannot_be_decoded_is_a_dead_letter(tmp_path, said):
    """A broken line, and a format that is not decoded, have the worker's reasons."""
    wkt = b'{"type":"FeatureCollection","features":[]}'
    path = write(tmp_path / "a.ndjson", feature(), b"{broken", wkt, b"[1]", feature())

    assert run_acts("--json", path) == 1

    data = said()
    assert named(data) == [
        ("line 2", "failed", "malformed-json"),
        ("line 3", "failed", "unsupported-format"),
        ("line 4", "failed", "not-geojson"),
    ]
    assert (data["records"], data["done"]) == (5, 2)


def test_a_feature_collection_gives_its_features(tmp_path, said):
    """One record each, named by its number in the collection."""
    path = tmp_path / "a.geojson"
    features = [feature(), feature("fail"), feature()]
    path.write_bytes(b'{"type":"FeatureCollection","features":[\n%b]}' % b",\n".join(features))

    assert run_acts("--json", path) == 1

    data = said()
    assert named(data) == [("feature 1", "failed", "not-wanted")]
    assert data["named"][0]["file"] == str(path)
    assert data["failed"] == {"not-wanted": 1}


def test_a_text_sequence_gives_its_texts(tmp_path, said):
    """Separated as RFC 8142 says, over several lines where they like."""
    path = tmp_path / "a.geojsons"
    pretty = orjson.dumps(orjson.loads(feature("fail")), option=orjson.OPT_INDENT_2)
    path.write_bytes(b"".join(b"\x1e%b\n" % text for text in (feature(), pretty, feature())))

    assert run_acts("--json", path) == 1

    assert named(said()) == [("text 2", "failed", "not-wanted")]


def test_one_object_says_everything(tmp_path, said):
    """Costs have their units in their names."""
    path = write(tmp_path / "a.ndjson", *[feature()] * 20)

    assert run("--handler", f"{HANDLERS}:echo", "--json", "--outputs", 2, path) == 0

    data = said()
    assert (data["handler"], data["files"]) == (f"{HANDLERS}:echo", [str(path)])
    assert (data["records"], data["done"], data["failed"], data["retry"]) == (20, 20, {}, {})
    assert data["payload_bytes"] == 20 * len(feature())
    (cost,) = data["classes"]
    assert (cost["class"], cost["least_units"]) == (0, 1)
    assert (cost["records"], cost["vertices"]) == (20, 20)
    assert cost["seconds_per_record"] == pytest.approx(cost["seconds"] / 20)
    assert cost["seconds_per_vertex"] == pytest.approx(cost["seconds"] / 20)
    assert cost["working_bytes_per_record"] > 0
    assert data["outputs"]["count"] == 20
    first = data["outputs"]["first"]
    assert [(item["place"], item["value"]) for item in first] == [
        ("line 1", feature().decode()),
        ("line 2", feature().decode()),
    ]
    assert first[1]["headers"] == [["place", "try/0/1/-1"]]


def test_a_record_that_kills_its_process_is_found(tmp_path, said):
    """Its neighbours are done; it is named with what ended the process."""
    path = write(tmp_path / "a.ndjson", *[feature()] * 4, feature("kill"), feature(), feature())

    assert run_acts("--json", path) == 1

    data = said()
    assert named(data) == [("line 5", "failed", "killed-process")]
    assert data["named"][0]["text"] == "signal 9 (SIGKILL)"
    assert data["done"] == 6


def test_a_record_that_hangs_is_found(tmp_path, said):
    """It is alone for longer than the limit, with every signal blocked, and is given up."""
    path = write(tmp_path / "a.ndjson", feature(), feature("hang"), feature())

    assert run_acts("--json", "--timeout", 2, path) == 1

    data = said()
    assert named(data) == [("line 2", "failed", "timed-out")]
    assert data["named"][0]["text"] == "alone in a process for longer than 2 s"
    assert data["done"] == 2


def test_memory_that_runs_out_is_told_of_the_record_that_needs_it(tmp_path, said):
    """A MemoryError takes the whole batch with it; alone only one record has it again."""
    path = write(tmp_path / "a.ndjson", feature(), feature("memory"), feature())

    assert run_acts("--json", path) == 1

    data = said()
    assert named(data) == [("line 2", "retry", "suspect-memory")]
    assert data["done"] == 2


def test_several_processes_share_the_work(tmp_path, said):
    """Every record once, whatever dies on the way."""
    lines = [feature("kill" if n == 700 else "") for n in range(1_500)]
    path = write(tmp_path / "a.ndjson", *lines)

    assert run_acts("--json", "--processes", 2, path) == 1

    data = said()
    assert (data["records"], data["done"]) == (1_500, 1_499)
    assert named(data) == [("line 701", "failed", "killed-process")]


def test_the_limit_counts_records(tmp_path, said):
    """What follows is not tried."""
    path = write(tmp_path / "a.ndjson", feature(), feature(), feature("fail"))

    assert run_acts("--json", "--limit", 2, path) == 0

    assert said()["records"] == 2


@pytest.mark.parametrize("handler", ["validate", "join"])
def test_the_handlers_that_come_with_the_worker(tmp_path, said, monkeypatch, handler):
    """They read their settings from the environment, as in the worker."""
    layer = tmp_path / "layer.geojson"
    box = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]}
    square = {"type": "Feature", "geometry": box, "properties": {"name": "west"}}
    layer.write_bytes(orjson.dumps({"type": "FeatureCollection", "features": [square]}))
    monkeypatch.setenv("VERTEX_BUDGET_JOIN_LAYER", str(layer))
    monkeypatch.setenv("VERTEX_BUDGET_JOIN_PROPERTY", "name")
    monkeypatch.setenv("VERTEX_BUDGET_OUTPUT_TOPIC", "out")

    assert run("--handler", f"consumer.handlers:{handler}", "--json", "--outputs", 1, layer) == 0

    (output,) = said()["outputs"]["first"]
    expected = {
        "validate": {"valid": True, "area": 81.0, "bounds": [0.0, 0.0, 9.0, 9.0]},
        "join": {"matches": ["west"]},
    }
    assert orjson.loads(output["value"]) == expected[handler]


def test_a_class_is_opened_and_closed(tmp_path, monkeypatch):
    """open, handle and close run in the process, as in the worker."""
    log = tmp_path / "log"
    monkeypatch.setenv("GATE", str(log))
    path = write(tmp_path / "a.ndjson", feature(), feature())

    assert run("--handler", f"{HANDLERS}:WithLife", path) == 0

    assert log.read_text().split("\n") == ["open", "handle 2", "close", ""]


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        ("no_such_module:handle", "there is no module 'no_such_module'"),
        (f"{HANDLERS}:acst", "did you mean acts?"),
        (f"{HANDLERS}:DoesNotOpen", "no database at db:5432"),
    ],
)
def test_a_handler_that_cannot_be_opened_is_one_message(tmp_path, capsys, handler, words):
    """Whose fault it is and what to check, on stderr; nothing on stdout."""
    path = write(tmp_path / "a.ndjson", feature())

    assert run("--handler", handler, path) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err


def test_a_process_that_ends_while_it_opens_is_told(tmp_path, monkeypatch, capsys):
    """A crash is told with how it ended; one that no longer opens ends the trial."""
    (tmp_path / "crash.py").write_text(
        "import os\n\n\nclass H:\n    open = staticmethod(lambda: os._exit(7))\n"
        "    def handle(self, batch): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.ndjson", feature())
    assert run("--handler", "crash:H", path) == 1
    assert "ended while opening it: exit code 7" in capsys.readouterr().err

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GATE", str(tmp_path / "opened"))
    lines = [*[feature()] * 10, feature("kill")]
    assert run("--handler", f"{HANDLERS}:OpensOnce", write(path, *lines)) == 1
    out, err = capsys.readouterr()
    assert "10 done" in out
    assert "FileExistsError" in err


def test_a_handler_that_does_not_get_open_is_given_up(tmp_path, monkeypatch):
    """The trial does not wait for it for ever, and no process is left."""
    (tmp_path / "slow.py").write_text(
        "import time\n\n\nclass H:\n    open = staticmethod(lambda: time.sleep(600))\n"
        "    def handle(self, batch): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    tally = Tally()
    cutter = Cutter(read_files([write(tmp_path / "a", feature())]), tally.seconds_per_record)
    runner = Runner("slow:H", cutter, tally, timeout_seconds=30.0, open_seconds=0.2)

    with pytest.raises(HandlerError, match=r"handler slow:H: not open after 0.2 s"):
        runner.run(1, os.environ)


def test_a_bad_file_is_told_after_what_came_before_it(tmp_path, said, capsys):
    """What was read is tried and reported; then comes what is wrong, and where."""
    good = write(tmp_path / "a.ndjson", feature(), feature())
    torn = tmp_path / "b.geojson"
    torn.write_bytes(b'{"type":"FeatureCollection","features":[' + feature() + b",")

    assert run_acts("--json", good, torn) == 1

    out, err = capsys.readouterr()
    assert orjson.loads(out)["done"] == 3
    assert f"{torn}: it ends inside its array of features, after 1" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"id,lat\n1,2\n", "a.csv: line 1 is not JSON"), (b"", "there are no records in ")],
)
def test_a_file_without_records_is_told(tmp_path, capsys, content, words):
    """Another format, or nothing: nothing is counted as if it were well."""
    path = tmp_path / "a.csv"
    path.write_bytes(content)

    assert run_acts(path) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--handler", "a:b", "/no/such/file"], "'/no/such/file' does not exist"),
        (["--handler", "a:b", "."], "is a directory"),
        (["--handler", "a:b"], "Missing argument"),
        (["--handler", "a.b", "-"], "not of the form module:name"),
        (["-"], "Missing option '--handler'"),
        (["--handler", "a:b", "--timeout", "0", "-"], "--timeout"),
        (["--handler", "a:b", "--processes", "0", "-"], "--processes"),
    ],
)
def test_asked_wrongly_is_two(capsys, arguments, words):
    """Usage errors are told before anything is started."""
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err


def test_the_examples_of_the_help_are_right(tmp_path, monkeypatch, capsys):
    """What the help tells people to type is understood."""
    write(tmp_path / "pings.ndjson", feature())
    monkeypatch.chdir(tmp_path)
    assert run("--help") == 0
    examples = re.findall(r"vertex-budget try (--handler [^|\n]+)", capsys.readouterr().out)
    assert len(examples) == 4
    for example in examples:
        assert cli.cli.commands["try"].make_context("try", shlex.split(example)).params["handler"]


def command(tmp_path: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "consumer", "try", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)} | more


def test_standard_input_is_read(tmp_path):
    """A pipe of any length, of any of the forms; credentials do not reach the handler."""
    (tmp_path / "mine.py").write_text(
        "import os\n\n\ndef handle(batch):\n"
        "    if 'KAFKA_SASL_PASSWORD' in os.environ:\n        batch.fail(0, 'leak')\n"
    )
    big = feature(text="x" * 100_000)
    collection = b'{"type":"FeatureCollection","features":[%b]}' % b",".join([big] * 30)
    for piped in (b"\n".join([feature()] * 2_000), collection, b"\x1e" + feature()):
        done = subprocess.run(
            command(tmp_path, "--handler", "mine:handle", "--json", "-"),
            input=piped,
            cwd=tmp_path,
            env=environment(KAFKA_SASL_PASSWORD="hunter2"),
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        data = orjson.loads(done.stdout)
        assert data["done"] == piped.count(b'"Feature"')
        assert data["files"] == ["standard input"]


def test_a_terminal_has_a_bar_and_ctrl_c_tells_what_there_is(tmp_path):
    """The bar is on stderr; an interrupted trial reports, leaves no process, and exits 130."""
    gate = tmp_path / "gate"
    lines = [*[feature(act="go")] * 10, *[feature(act="wait")] * 10]
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\n\n\ndef handle(batch):\n"
        "    if batch.properties(0)['act'] == 'wait':\n"
        "        pathlib.Path(os.environ['GATE']).write_text(str(os.getpid()))\n"
        "        time.sleep(600)\n"
    )
    parent, child = pty.openpty()
    path = write(tmp_path / "a.ndjson", *lines)
    with subprocess.Popen(
        command(tmp_path, "--handler", "mine:handle", path),
        cwd=tmp_path,
        env=environment(GATE=str(gate), TERM="xterm", COLUMNS="100"),
        stdout=subprocess.PIPE,
        stderr=child,
    ) as process:
        os.close(child)
        pid = int(
            wait_until(lambda: gate.exists() and gate.read_text(), DEADLINE_SECONDS, "the second")
        )
        shown = b""
        while b"10 records" not in shown:
            shown += os.read(parent, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 130
        assert process.stdout is not None
        assert b"10 records of 1 file" in process.stdout.read()
    os.close(parent)
    wait_until(lambda: not is_running(pid), DEADLINE_SECONDS, "end of the handler process")
