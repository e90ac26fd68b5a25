"""``scripts/replay``: what it tells of a recording, and where the core goes wrong."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig
from consumer.core.flow import Flow
from consumer.core.ledger.columns import Columns, FetchedRun
from consumer.runtime.recording import Header, Recorder
from consumer.runtime.replay import Replay
from consumer.version import worker_version

ROOT = Path(__file__).resolve().parents[2]
TOWN = ("town", 0)
MEBIBYTE = 1 << 20
#: monotonic seconds at the start of the recording
START = 1000.0


def fetched(at):
    """Return a fetch of three records of one key."""
    three = np.array([70, 71, 72])
    columns = Columns([b"x"] * 3, [b"k"] * 3, three, three, np.ones_like(three), 0 * three + 40)
    return ev.Fetched(START + at, (FetchedRun(TOWN, columns, 0 * three + 9),))


def outcome(**changes):
    """Return what a process says of a chunk."""
    return ev.ChunkOutcome(0.01, 0.01, None, 50 * MEBIBYTE, 3, **changes)


#: A process dies while it holds three records; the first of them is a bad one.
STORY = [
    ev.MemorySampled(START, 512 * MEBIBYTE, 100 * MEBIBYTE, 16 * MEBIBYTE, 100 * MEBIBYTE),
    ev.ProcessReady(START, 0, 40 * MEBIBYTE),
    ev.Assigned(START, (TOWN,)),
    fetched(0.25),
    ev.ProcessDied(START + 0.5, 0, "signal 9 (SIGKILL)"),
    ev.Tick(START + 0.75),
    ev.ProcessReady(START + 1.0, 0, 40 * MEBIBYTE),
    ev.ChunkFinished(
        START + 1.5, 0, 2, outcome(failed=(ev.RecordFault(0, "handler-error", "ValueError", "?"),))
    ),
    ev.Delivered(START + 1.75, 1),
    ev.ChunkFinished(START + 2.0, 0, 3, outcome()),
    ev.ChunkFinished(START + 2.25, 0, 4, outcome()),
    ev.Tick(START + 3.0),
    ev.Committed(START + 3.25, {TOWN: 70}),
    ev.Tick(START + 5.0),
    ev.Committed(START + 5.25, {TOWN: 73}),
]


@pytest.fixture
def record(tmp_path):
    """Make a recording of some events."""

    def written(events):
        header = Header(worker_version(), FlowConfig(processes=1), 1.7e9, START)
        path = tmp_path / "incident.gz"
        recorder = Recorder(path, header, print)
        for event in events:
            recorder(event)
        recorder.close()
        return path

    return written


def replay(path, *options):
    """Run the command; return its exit code, what it wrote, and its complaints."""
    done = subprocess.run(
        [sys.executable, "scripts/replay", str(path), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def lines(text):
    """Return (seconds, text) of what was told before the summary."""
    found = (re.match(r" *(\d+\.\d{3})  (.*)", line) for line in text.splitlines())
    return [(float(match[1]), match[2]) for match in found if match]


def summary(text):
    """Return the summary by name."""
    rows = text.partition("\n\n")[2].splitlines()
    return dict(re.split(r"  +", row, maxsplit=1) for row in rows)


def test_it_tells_what_happened_and_sums_it_up(record):
    """States, starts, warnings and dead letters with their seconds; then figures of the whole."""
    code, text, complaints = replay(record(STORY))
    assert (code, complaints) == (0, "")
    assert text.startswith("recorded from 2023-11-14 22:30:00 UTC by version ")
    told = lines(text)
    assert (0.0, "resume town[0]") in told
    assert (0.5, "warning: handler process 0 died (signal 9 (SIGKILL)) holding 3 records;"
            " they are tried again") in told  # fmt: skip
    assert (0.75, "start process 0") in told
    assert (1.5, "dead letter town[0]@70: handler-error ValueError (attempt 2)") in told
    assert not [said for _, said in told if said.startswith(("submit", "fetch", "commit"))]
    figures = summary(text)
    assert figures["events"] == "15"
    assert figures["seconds"] == "5.25"
    assert figures["fetched"] == "3"
    assert figures["records"] == "done 2, dead-lettered 1, skipped 0, failed 0"
    assert figures["dead letters"] == "handler-error 1"
    assert figures["committed"] == "town[0] 73"
    assert figures["state"] == "idle"
    assert figures["cause"] == "nothing to do since 3 s"
    assert figures["recording ends"] == "the worker stopped"
    assert not {"differs", "failure"} & figures.keys()


def test_commands_are_shown_when_asked_for(record):
    """Every command, with what it is about."""
    _, text, _ = replay(record(STORY), "--commands")
    told = lines(text)
    assert (5.0, 'fetch {"max_records":1,"wait_seconds":0.1}') in told
    submitted = [said for _, said in told if said.startswith("submit")]
    assert [said.partition(", predicted")[0] for said in submitted] == [
        "submit chunk 1 to process 0: town[0] 70-72 (3)",
        "submit chunk 2 to process 0: town[0] 70-70 (1)",
        "submit chunk 3 to process 0: town[0] 71-71 (1)",
        "submit chunk 4 to process 0: town[0] 72-72 (1)",
    ]
    assert [(at, said) for at, said in told if said.startswith("commit")] == [
        (0.75, "commit town[0] 70"),
        (5.0, "commit town[0] 73"),
    ]


def test_a_part_of_it_is_shown_when_asked_for(record):
    """What comes before --from is replayed and not shown; what comes after --to is not replayed."""
    _, text, _ = replay(record(STORY), "--from", "0.5", "--to", "1.5")
    seconds = [at for at, _ in lines(text)]
    assert min(seconds) == 0.5
    assert max(seconds) == 1.5
    assert summary(text)["events"] == "8"


def test_it_ends_where_a_state_begins(record):
    """The state that is asked for is the last thing told."""
    _, text, _ = replay(record(STORY), "--until-state", "warming-up")
    at, said = lines(text)[-1]
    assert (at, said.partition(":")[0]) == (0.25, "warming-up")
    assert summary(text)["state"] == "warming-up"


def test_json_is_an_object_a_line(record):
    """The same for machines: each command with its fields, the summary last."""
    code, text, _ = replay(record(STORY), "--json")
    assert code == 0
    *told, last = map(orjson.loads, text.splitlines())
    (letter,) = (line for line in told if line["command"] == "Produce")
    assert (letter["seconds"], letter["event"]) == (1.5, 8)
    assert letter["fields"]["source_offset"] == 70
    assert last["summary"]["records"]["done"] == 2
    assert last["summary"]["committed"] == {"town[0]": 73}
    assert last["summary"]["differs"] == ""


def test_a_recording_that_is_cut_off_is_replayed_up_to_there(record):
    """The whole lines count, and the summary says that there is no end."""
    whole = record(STORY)
    cut = whole.with_name("cut")
    cut.write_bytes(gzip.decompress(whole.read_bytes())[:-40])
    code, text, _ = replay(cut)
    assert code == 0
    assert summary(text)["events"] == "14"
    assert summary(text)["recording ends"] == "cut off: the worker was killed, or still runs"


def test_a_core_that_decides_otherwise_is_noticed(record):
    """A chunk comes back that this core has not given out: the summary names the event."""
    events = [*STORY[:7], ev.ChunkFinished(START + 1.5, 0, 9, outcome()), *STORY[8:]]
    code, text, _ = replay(record(events))
    assert code == 0
    assert summary(text)["differs"] == (
        "event 8 at 1.500 s: process 0 finished chunk 9, which this core has not given it"
    )


def test_what_the_core_raises_is_told_with_its_event(record):
    """A process that the core does not have: exit code 1, the event, and where it was raised."""
    code, text, complaints = replay(record([*STORY[:4], ev.ProcessReady(START + 0.5, 7, 1)]))
    assert code == 1
    assert summary(text)["failure"].startswith("event 5, ProcessReady at 0.500 s: IndexError: ")
    assert "Traceback" in complaints
    assert "in _process_ready" in complaints


def test_a_foreign_file_is_named():
    """Not a recording: exit code 1, one line."""
    code, text, complaints = replay("README.md")
    assert (code, text) == (1, "")
    assert complaints == "replay: README.md: not a recording\n"


class Forgetful(Flow):
    """A core that contradicts itself from its sixth event on."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__(config)
        self.seen = 0

    def step(self, event: ev.Event) -> list[cmd.Command]:
        self.seen += 1
        return super().step(event)

    def check_invariants(self) -> None:
        if self.seen >= 6:
            msg = "the ledger differs"
            raise AssertionError(msg)


def test_the_first_contradiction_is_named_however_late_it_was_found(record):
    """Checks are made now and then; the event after which it began is found all the same."""
    path = record(STORY)

    def look(replayed):
        for _ in replayed.steps(float("inf")):
            pass
        return replayed.failure

    expected = "event 6, Tick at 0.750 s: AssertionError: the ledger differs"
    assert look(Replay(path, lambda header: Forgetful(header.config))) == expected
    hurried = Replay(path, lambda header: Forgetful(header.config))
    # As if a check had just taken very long: only the one at the end is made.
    hurried._checking_seconds = 1e9
    assert look(hurried) == expected
    assert hurried.events == len(STORY)
