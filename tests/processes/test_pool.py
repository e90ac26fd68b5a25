"""Handler processes as the driver sees them: real children, real deaths."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from consumer.core.events import ChunkFinished, ProcessReady, RecordFault
from consumer.errors import HandlerOpenError, ProcessError
from consumer.processes.pool import ProcessPool
from tests.processes.chunks import (
    DEADLINE_SECONDS,
    HANDLERS,
    chunk,
    collect,
    columns,
    died,
    feature,
    is_running,
    run,
    running_pool,
)
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def faults(found: tuple[RecordFault, ...]) -> list[tuple[int, str]]:
    """Return index and reason of each fault."""
    return sorted((fault.index, fault.reason) for fault in found)


def test_a_chunk_is_handled_and_measured():
    """Records that the outcome does not name are done; seconds and bytes come with it."""
    with running_pool("nothing") as pool:
        outcome = run(pool, chunk(1, [feature()] * 100))

    assert outcome.seconds is not None
    assert outcome.seconds > 0
    assert outcome.working_bytes is None
    assert outcome.resident_bytes > 1_000_000
    assert outcome.exact_vertices == 100
    assert (outcome.failed, outcome.retry, outcome.skipped, outcome.outputs) == ((), (), (), ())


def test_a_ready_process_tells_its_baseline():
    """The baseline holds the interpreter, the handler and both slots."""
    pool = ProcessPool(f"{HANDLERS}:nothing", 1, environment=os.environ, slot_bytes=8 << 20)
    try:
        pool.start(0)
        (ready,) = collect(pool, ProcessReady)
        assert ready.baseline_bytes > 2 * (8 << 20)
    finally:
        pool.close(DEADLINE_SECONDS)


def test_indices_count_across_the_parts_of_a_chunk():
    """Faults, tombstones and outputs are named by their place in the whole chunk."""
    with running_pool("acts") as pool:
        outcome = run(
            pool,
            chunk(1, [feature(), b"{"], [None, feature("fail"), feature()], [feature("retry")]),
        )

    assert faults(outcome.failed) == [(1, "malformed-json"), (3, "not-wanted")]
    assert faults(outcome.retry) == [(5, "retry-requested")]
    assert outcome.skipped == (2,)


def test_records_carry_everything_that_kafka_knows():
    """Key, value, headers, topic, partition, offset and timestamp arrive as they were sent."""
    first = columns([feature(), feature()], None, 10)
    second = columns(
        [feature(a=1), None, b"?", feature(b=2)], [b"k", None, b"m", b""], 70, {3: [("h", None)]}
    )
    with running_pool("echo") as pool:
        outputs = run(pool, chunk(1, first, second)).outputs

    assert [item.index for item in outputs] == [0, 1, 2, 5]
    assert [item.key for item in outputs] == [None, None, b"k", b""]
    assert outputs[3].value == second.values[3]
    assert outputs[0].headers == [("place", b"t/0/10/1010")]
    assert outputs[3].headers == [("place", b"t/1/73/1073"), ("h", None)]


def test_one_raising_record_among_500_fails_alone():
    """An exception that names no record is narrowed down to the one that causes it."""
    values = [feature()] * 500
    values[321] = feature("raise")
    with running_pool("acts") as pool:
        outcome = run(pool, chunk(1, values))

    assert faults(outcome.failed) == [(321, "handler-error")]
    assert outcome.failed[0].error_class == "ValueError"
    assert "cannot handle offset 321" in outcome.failed[0].error_text
    assert outcome.retry == ()


@pytest.mark.parametrize(
    ("do", "where", "reason"),
    [
        ("system-exit", "failed", "handler-error"),
        ("fail-in-words", "failed", "handler-refused"),
        ("connection", "retry", "retry-requested"),
        ("memory", "retry", "suspect-memory"),
        ("geos-memory", "retry", "suspect-memory"),
    ],
)
def test_what_a_handler_may_do(do, where, reason):
    """Each way to refuse a record has its reason, and the process lives on."""
    with running_pool("acts") as pool:
        outcome = run(pool, chunk(1, [feature(do)]))
        again = run(pool, chunk(2, [feature()]))

    assert faults(getattr(outcome, where)) == [(0, reason)]
    assert (again.failed, again.retry) == ((), ())


def test_retry_takes_the_whole_batch():
    """A handler that raises Retry is not asked again for parts of the batch."""
    with running_pool("acts") as pool:
        outcome = run(pool, chunk(1, [feature(), feature("retry-all"), feature(), None]))

    assert faults(outcome.retry) == [(n, "retry-requested") for n in range(3)]
    assert {fault.error_text for fault in outcome.retry} == {"database is away"}
    assert outcome.failed == ()


def test_a_killed_process_is_reported_and_replaced():
    """A death in the middle of a chunk is an event, and the same number can start again."""
    with running_pool("acts") as pool:
        pool.submit(0, chunk(1, [feature(), feature("kill"), feature()]))
        assert died(pool).cause == "signal 9 (SIGKILL)"
        assert pool.pids == ()

        pool.start(0)
        collect(pool, ProcessReady)
        assert run(pool, chunk(2, [feature()])).failed == ()


def test_an_exit_without_a_word_is_a_death():
    """A handler that ends its process is found out."""
    with running_pool("acts") as pool:
        pool.submit(0, chunk(1, [feature("exit")]))

        assert died(pool).cause == "exit code 9"


def test_a_hung_process_can_be_killed_from_outside(tmp_path):
    """No cooperation is needed: the handler blocks every signal that can be blocked."""
    with running_pool("acts") as pool:
        pool.submit(0, chunk(1, [feature("hang")]))
        assert pool.poll(0.05) == []
        pool.kill(0)

        assert died(pool).cause == "signal 9 (SIGKILL)"


def test_other_processes_do_not_notice_a_death():
    """A chunk in another process is finished as if nothing had happened."""
    with running_pool("acts", 2) as pool:
        pool.submit(0, chunk(1, [feature("kill")]))
        assert died(pool).process == 0

        assert run(pool, chunk(2, [feature()] * 10), process=1).exact_vertices == 10


def test_what_was_finished_before_a_death_counts(tmp_path):
    """A result that was sent is reported before the death that came after it."""
    with running_pool("acts") as pool:
        pool.submit(0, chunk(1, [feature("fail")]))
        pool.submit(0, chunk(2, [feature("kill")]))
        wait_until(lambda: not is_running(pool.pids[0]), DEADLINE_SECONDS, "death")
        events = pool.poll(1.0)

    assert [type(event).__name__ for event in events] == ["ChunkFinished", "ProcessDied"]
    assert isinstance(events[0], ChunkFinished)
    assert events[0].chunk_id == 1


@pytest.mark.parametrize("do", ["rubbish", "hang-up"])
def test_a_process_that_cannot_be_talked_to_is_ended(do):
    """A child that sends rubbish, or closes its end, is killed, and its death reported."""
    with running_pool("acts") as pool:
        pool.submit(0, chunk(1, [feature(do)]))

        assert died(pool).cause == "signal 9 (SIGKILL)"


def test_no_memory_for_a_large_chunk_is_a_death():
    """When memory for a large record cannot be had, its process ends, and the pool goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with running_pool("acts", 2) as pool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
        try:
            pool.submit(0, chunk(1, [feature(text="x" * (4 << 20))]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert died(pool).process == 0
        assert run(pool, chunk(2, [feature()]), process=1).exact_vertices == 1


def test_a_module_beside_the_worker_is_found_but_hides_nothing(tmp_path, monkeypatch):
    """A handler may lie in the working directory, even beside a package named like ours."""
    (tmp_path / "mine.py").write_text("def handle(batch):\n    batch.fail(0, 'mine')\n")
    (tmp_path / "consumer").mkdir()
    (tmp_path / "consumer" / "__init__.py").write_text("raise RuntimeError('hidden')\n")
    monkeypatch.chdir(tmp_path)
    with running_pool("mine:handle") as pool:
        assert faults(run(pool, chunk(1, [feature()])).failed) == [(0, "mine")]


def test_what_a_handler_has_started_dies_with_it(tmp_path):
    """A killed process leaves no program behind that would hold the container's memory."""
    gate = tmp_path / "gate"
    with running_pool("starts_a_program", environment={"GATE": str(gate)}) as pool:
        pool.submit(0, chunk(1, [feature()]))
        pid_file = gate.with_suffix(".pid")
        pid = int(
            wait_until(
                lambda: pid_file.exists() and pid_file.read_text(), DEADLINE_SECONDS, "program"
            )
        )
        pool.kill(0)
        died(pool)

        wait_until(lambda: not is_running(pid), DEADLINE_SECONDS, "end of the program")


def test_two_chunks_at_once_come_back_in_order(tmp_path):
    """The second waits inside; a third is refused until one has come back."""
    gate = tmp_path / "gate"
    with running_pool("waits_for_gate", environment={"GATE": str(gate)}) as pool:
        pool.submit(0, chunk(1, [feature()]))
        pool.submit(0, chunk(2, [feature()]))
        with pytest.raises(ProcessError, match="both slots"):
            pool.submit(0, chunk(3, [feature()]))
        gate.touch()

        assert [event.chunk_id for event in collect(pool, ChunkFinished, 2)] == [1, 2]
        assert run(pool, chunk(3, [feature()])).failed == ()


def test_a_record_larger_than_a_slot():
    """A record of 20 MB travels in memory of its own, whatever the slots hold."""
    value = feature(text="x" * 20_000_000)
    with running_pool("echo") as pool:
        outcome = run(pool, chunk(1, [value, feature()]))
        after = run(pool, chunk(2, [feature()]))

    assert [item.value for item in outcome.outputs] == [value, feature()]
    assert len(after.outputs) == 1


def test_a_result_larger_than_a_slot():
    """Outputs of any size come back."""
    with running_pool("large_result") as pool:
        outcome = run(pool, chunk(1, [feature()] * 50))

    assert sum(len(item.value or b"") for item in outcome.outputs) == 5_000_000


def test_no_descriptor_is_left_behind():
    """Chunks and results with memory of their own, deaths and restarts all close theirs."""
    with running_pool("acts") as pool:
        run(pool, chunk(1, [feature()]))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(3):
            run(pool, chunk(10 * number, [feature(text="x" * 2_000_000)]))
            pool.submit(0, chunk(10 * number + 1, [feature("kill")]))
            died(pool)
            pool.start(0)
            collect(pool, ProcessReady)

        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_class_is_opened_and_closed(tmp_path):
    """Closing the pool lets the handler finish what is inside, and then close."""
    log = tmp_path / "log"
    with running_pool("WithLife", environment={"GATE": str(log)}) as pool:
        pool.submit(0, chunk(1, [feature()] * 3))

    assert log.read_text().split("\n") == ["open", "handle 3", "close", ""]


def test_an_object_is_a_handler_too(tmp_path):
    """An instance with handle is used as it is."""
    log = tmp_path / "log"
    with running_pool("instance", environment={"GATE": str(log)}) as pool:
        run(pool, chunk(1, [feature()]))

    assert log.read_text().startswith("open\nhandle 1\n")


def test_async_handlers_keep_their_event_loop(tmp_path):
    """open, every handle and close run in one event loop."""
    gate = tmp_path / "closed"
    with running_pool("Asynchronous", environment={"GATE": str(gate)}) as pool:
        for number in range(2):
            outcome = run(pool, chunk(number, [feature()] * 3))
            assert [item.value for item in outcome.outputs] == [b"async"] * 3
            assert outcome.failed == ()

    assert gate.exists()


def test_close_kills_what_does_not_end():
    """After the deadline nothing is left, whatever the handler does."""
    with running_pool("acts") as pool:
        pids = pool.pids
        pool.submit(0, chunk(1, [feature("hang")]))
        pool.close(0.1)

        assert not is_running(pids[0])
        assert pool.pids == ()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_module:handle", "there is no module 'no_such_module'"),
        (f"{HANDLERS}:acst", "has no 'acst'; did you mean acts?"),
        (f"{HANDLERS}:not_a_handler", "neither a function nor an object"),
        (f"{HANDLERS}:NoHandle", "without a method handle"),
        (f"{HANDLERS}:DoesNotOpen", "no database at db:5432"),
    ],
)
def test_a_handler_that_cannot_be_opened(spec, words):
    """The first process says in one line what is wrong, before anything else happens."""
    pool = ProcessPool(spec, 1, environment=os.environ)
    try:
        pool.start(0)
        with pytest.raises(HandlerOpenError) as caught:
            collect(pool, ProcessReady)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        pool.close(DEADLINE_SECONDS)


def test_a_handler_that_no_longer_opens_is_a_death(tmp_path):
    """Once a handler has opened, a later failure is the cause of a death, not of giving up."""
    with running_pool("OpensOnce", environment={"GATE": str(tmp_path / "opened")}) as pool:
        pool.submit(0, chunk(1, [feature("kill")]))
        died(pool)
        pool.start(0)

        assert "FileExistsError" in died(pool).cause


def test_a_process_is_started_once():
    """Starting a running process is our own mistake, and says so."""
    with running_pool("nothing") as pool, pytest.raises(ProcessError, match="runs already"):
        pool.start(0)


def test_signals_for_everyone_do_not_end_a_process():
    """A terminal's or container's SIGINT and SIGTERM are the parent's business."""
    with running_pool("nothing") as pool:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pool.pids[0], number)

        assert run(pool, chunk(1, [feature()])).exact_vertices == 1


PARENT = """
import os, sys
from tests.processes.chunks import chunk, collect, feature
from consumer.core.events import ProcessReady
from consumer.processes.pool import ProcessPool
pool = ProcessPool(sys.argv[1], 2, environment=os.environ)
pool.start(0), pool.start(1)
collect(pool, ProcessReady, 2)
pool.submit(0, chunk(1, [feature("hang")]))
print(*pool.pids, flush=True)
sys.stdin.read()
"""


def test_no_process_outlives_its_parent():
    """When the parent is killed, both an idle and a hung child are gone."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, f"{HANDLERS}:acts"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_running(pid) for pid in pids)
        parent.kill()

        wait_until(
            lambda: not any(is_running(pid) for pid in pids), DEADLINE_SECONDS, "children's end"
        )


def test_what_a_handler_prints_goes_to_standard_error(capfd):
    """Standard output belongs to the command, which may print a report there."""
    with running_pool("prints") as pool:
        run(pool, chunk(1, [feature()]))

    captured = capfd.readouterr()
    assert captured.out == ""
    assert "a word from the handler" in captured.err


def test_a_sampled_chunk_gives_its_working_bytes():
    """Decoded coordinates weigh more than 40 bytes a vertex, whatever the allocator has kept."""
    ring = [[i * 1e-5, (i * i % 977) * 1e-3] for i in range(50_000)]
    heavy = orjson.dumps({"type": "LineString", "coordinates": ring})
    with running_pool("keeps_decoded") as pool:
        first = run(pool, chunk(1, [heavy], sample=True))
        again = run(pool, chunk(2, [heavy], sample=True))
        plain = run(pool, chunk(3, [heavy]))

    for outcome in (first, again):
        assert outcome.exact_vertices == 50_000
        assert outcome.working_bytes is not None
        assert 40 <= outcome.working_bytes / 50_000 < 1000
    assert plain.working_bytes is None
    assert plain.growth_bytes <= again.growth_bytes * 1.5


def test_a_sample_does_not_depend_on_what_the_process_has_kept():
    """Many small records give the same figure in a fresh process and in one that has kept memory.

    A parsed point weighs some 1,500 bytes; most of it lives in pages that Python keeps.
    """
    values = [feature(name=f"vehicle {number}", route="14", bearing=1.5) for number in range(3000)]
    with running_pool("nothing") as pool:
        run(pool, chunk(0, values))
        figures = [run(pool, chunk(n, values, sample=True)).working_bytes or 0 for n in range(1, 4)]

    assert min(figures) / 3000 > 500
    assert max(figures) <= 1.05 * min(figures)


def test_a_traced_chunk_gives_no_seconds():
    """Tracing slows what it measures: it gives bytes alone, those of the handler included."""
    with running_pool("allocates") as pool:
        outcome = run(pool, chunk(1, [feature()], sample=True, trace=True))

    assert outcome.seconds is None
    assert outcome.working_bytes is not None
    assert outcome.working_bytes >= 64 << 20


def test_memory_that_is_free_is_given_back():
    """After a heavy chunk the process is about as small as before it."""
    with running_pool("allocates") as pool:
        before = run(pool, chunk(1, [feature()])).resident_bytes
        outcome = run(pool, chunk(2, [feature()]))

    assert outcome.growth_bytes > 48 << 20
    assert outcome.resident_bytes < before + (48 << 20)
