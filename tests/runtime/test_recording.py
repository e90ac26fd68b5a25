"""The file of a recording: bounded, whole up to where it ends, and honest about why it ends."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from consumer.core import events as ev
from consumer.core.config import FlowConfig
from consumer.core.ledger.columns import Columns, FetchedRun
from consumer.runtime.recording import (
    MOST_WAITING_BYTES,
    Header,
    Recorder,
    Recording,
    RecordingError,
)

ROOT = Path(__file__).resolve().parents[2]
HEADER = Header("1.2.3", FlowConfig(processes=2, max_attempts=7), 1e9, 100.0)
RANDOM = np.random.default_rng(1)


@pytest.fixture
def said():
    """What the log was told."""
    return []


@pytest.fixture
def make(tmp_path, said):
    """Make a recorder of ``incident.gz``."""

    def recorder(**options):
        def say(level, text):
            said.append((level, text))

        return Recorder(tmp_path / "incident.gz", HEADER, say, **options)

    return recorder


def ticks(count, first=0):
    """Return some events, each at its number."""
    return [ev.Tick(float(number)) for number in range(first, first + count)]


def fetched(count):
    """Return an event that cannot be compressed to much less than four bytes a record."""
    offsets = np.arange(count)
    columns = Columns([b""] * count, [b"k"] * count, offsets, offsets, offsets, offsets)
    return ev.Fetched(1.0, (FetchedRun(("t", 0), columns, RANDOM.integers(0, 1 << 32, count)),))


def recorded(recorder, events):
    """Record events to the end, and return the path."""
    for event in events:
        recorder(event)
    recorder.close()
    return recorder._path


def read(path):
    """Return the events of a recording, and how it ends."""
    recording = Recording(path)
    return list(recording), recording.ended


def test_what_is_recorded_is_read(make, said):
    """The header, every event in order, and that the worker has stopped."""
    path = recorded(make(), ticks(1000))
    assert Recording(path).header == HEADER
    assert read(path) == (ticks(1000), "the worker stopped")
    assert said == []


def test_a_recording_is_lines_of_json(make):
    """Any tool reads it, and what was decompressed is a recording as well."""
    path = recorded(make(), ticks(2))
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert orjson.loads(lines[0])["config"]["max_attempts"] == 7
    assert lines[1:] == [
        b'{"event":"Tick","now":0.0}',
        b'{"event":"Tick","now":1.0}',
        b'{"end":"the worker stopped"}',
    ]
    plain = path.with_name("plain.ndjson")
    plain.write_bytes(b"\n".join(lines) + b"\n")
    assert read(plain) == (ticks(2), "the worker stopped")


def test_a_bound_ends_it_with_a_line_that_says_so(make, said):
    """No byte over the bound; the log says so once; what comes later is not recorded."""
    recorder = make(most_bytes=200_000)
    path = recorded(recorder, [fetched(2_000) for _ in range(40)])
    recorder(ev.Tick(5.0))
    assert 100_000 < path.stat().st_size <= 200_000
    ((level, text),) = said
    assert level == "warning"
    assert text == f"the recording {path} ends here: it has reached its bound of 200,000 bytes"
    events, ended = read(path)
    assert 0 < len(events) < 40
    assert all(isinstance(event, ev.Fetched) for event in events)
    assert ended == "it has reached its bound of 200,000 bytes"


def test_what_the_disk_does_not_take_in_time_ends_it(make, said):
    """More events than are written meanwhile: it ends, and memory is not filled with them."""
    recorder = make()
    event = fetched(5_000)
    for _ in range(20_000):
        recorder(event)
        if said:
            break
    recorder.close()
    ((level, text),) = said
    assert level == "warning"
    assert f"{MOST_WAITING_BYTES:,} bytes wait" in text
    assert "the disk is too slow" in read(recorder._path)[1]


def test_an_event_that_cannot_be_written_ends_it(make, said):
    """Half of a surrogate pair has no UTF-8: one warning, no exception, the rest is there."""
    events = [*ticks(3), ev.ProcessDied(3.0, 0, "\ud800"), ev.Tick(4.0)]
    path = recorded(make(), events)
    assert len(said) == 1
    events, ended = read(path)
    assert events == ticks(3)
    assert ended.startswith("ProcessDied cannot be written")


def test_a_disk_that_is_full_ends_it_with_one_warning(tmp_path):
    """The operating system refuses to let the file grow: the recorder says so, and takes events."""
    code = f"""
import resource
from tests.runtime.test_recording import HEADER, Path, Recorder, fetched
path = Path({str(tmp_path)!r}) / "incident.gz"
recorder = Recorder(path, HEADER, print)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
for _ in range(20):
    recorder(fetched(5_000))
recorder.close()
recorder(fetched(5_000))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"warning the recording {tmp_path}/incident.gz ends here: File too large\n"
    )
    assert read(tmp_path / "incident.gz")[1].startswith("cut off")


@pytest.mark.parametrize(
    ("name", "words"), [("missing/incident.gz", "No such file"), (".", "File exists")]
)
def test_a_path_that_cannot_be_written_is_an_error_at_the_start(tmp_path, name, words):
    """It says which path, what is wrong and what to check."""
    with pytest.raises(RecordingError) as caught:
        Recorder(tmp_path / name, HEADER, print)
    assert str(tmp_path / name) in str(caught.value)
    assert words in str(caught.value)
    assert "check that VERTEX_BUDGET_RECORD" in str(caught.value)


def test_the_recording_before_is_kept(make, tmp_path):
    """A worker that was started again does not write over what the one before has written."""
    recorded(make(), ticks(1))
    recorded(make(), ticks(2))
    path = recorded(make(), ticks(3))
    assert len(read(path)[0]) == 3
    assert len(read(tmp_path / "incident.gz.previous")[0]) == 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("compressed", [True, False])
def test_a_file_that_is_cut_is_read_up_to_there(make, compressed):
    """Of a killed worker's file the whole lines are read, and it says that it was cut off."""
    whole = recorded(make(), ticks(5_000))
    content = whole.read_bytes() if compressed else gzip.decompress(whole.read_bytes())
    cut = whole.with_name("cut")
    cut.write_bytes(content[: len(content) // 2 + 3])
    events, ended = read(cut)
    assert 1_000 < len(events) < 4_000
    assert events == ticks(len(events))
    assert ended == "cut off: the worker was killed, or still runs"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a recording"),
        (b"# Vertex Budget\n", "not a recording"),
        (b'{"key": "a", "value": 1}\n', "its first line is none of ours"),
        (b"[1, 2]\n", "not a recording"),
        (b'{"recording": 99}\n', "format 99; this version reads 1"),
        (b'{"recording": 1, "config": 3}\n', "line 1 is none that this version writes"),
        (b"\x1f\x8bnot really compressed", "damaged|Unknown|not a recording"),
    ],
)
def test_a_foreign_file_is_named(tmp_path, content, words):
    """What is no recording, or one of another format, is an error with the path in it."""
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=words) as caught:
        Recording(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    """The path and what the operating system says."""
    with pytest.raises(RecordingError, match=r"nowhere\.gz: No such file"):
        Recording(tmp_path / "nowhere.gz")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{torn", "line 3 is damaged"),
        (b'{"event":"Exploded","now":1.0}', "line 3 is none that this version writes"),
        (b'{"event":"Tick"}', "line 3 is none that this version writes"),
    ],
)
def test_a_damaged_line_is_named_by_its_number(make, line, words):
    """What comes before it is read; the error says which line it is."""
    whole = recorded(make(), ticks(3))
    lines = gzip.decompress(whole.read_bytes()).splitlines()
    path = whole.with_name("damaged")
    path.write_bytes(b"\n".join([*lines[:2], line, *lines[3:]]) + b"\n")
    events = iter(Recording(path))
    assert next(events) == ev.Tick(0.0)
    with pytest.raises(RecordingError, match=words):
        next(events)
