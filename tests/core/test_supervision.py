"""The life of a handler process: started, killed, dead, started again."""

from __future__ import annotations

from consumer.core.commands import KillProcess, StartProcess
from consumer.core.ledger.ledger import InsideChunk, ProcessState
from consumer.core.reasons import KillReason
from consumer.core.supervision import Supervision
from sizing.load import RECORDS, zero_load


def chunk(chunk_id: int, records: int = 10, started_at: float = 0.0) -> InsideChunk:
    load = zero_load()
    load[RECORDS] = records
    return InsideChunk(chunk_id, [], load, 0.05, 1e6, started_at, started_at, heavy=False)


def two() -> tuple[Supervision, list[ProcessState]]:
    """Two open processes that may be inside a chunk for ten seconds."""
    processes = [ProcessState(0), ProcessState(1)]
    supervision = Supervision(processes, handler_timeout_seconds=10.0)
    assert supervision.starts_due(0.0) == [StartProcess(0), StartProcess(1)]
    for number in (0, 1):
        supervision.ready(number, 40_000_000 + number)
    return supervision, processes


def test_every_process_is_started_once_at_the_beginning() -> None:
    """And not again while it opens its handler."""
    supervision, processes = two()
    assert supervision.starts_due(1.0) == []
    assert [process.baseline_bytes for process in processes] == [40_000_000, 40_000_001]
    assert all(process.ready for process in processes)


def test_a_finished_chunk_leaves_its_process_and_the_next_one_begins() -> None:
    """The second chunk is timed from then on; a number that is not expected is no result."""
    supervision, processes = two()
    first, second = chunk(1), chunk(2, started_at=float("inf"))
    processes[0].chunks += [first, second]
    assert supervision.finished(0, 2, 50_000_000, now=3.0) is None
    assert supervision.finished(0, 1, 50_000_000, now=3.0) is first
    assert processes[0].chunks == [second]
    assert second.started_at == 3.0
    assert processes[0].resident_bytes == 50_000_000
    assert supervision.finished(1, 9, 0, now=3.0) is None


def test_a_death_says_what_was_inside_and_the_process_comes_back_at_once() -> None:
    """30 records of two chunks, to be tried again."""
    supervision, processes = two()
    processes[1].chunks += [chunk(1, 10), chunk(2, 20)]
    processes[1].resident_bytes = 900_000_000
    death = supervision.died(1, "signal 11 (SIGSEGV)", now=5.0)
    assert [c.chunk_id for c in death.chunks] == [1, 2]
    assert death.killed_for is None
    assert death.words.level == "warning"
    assert death.words.text == (
        "handler process 1 died (signal 11 (SIGSEGV)) holding 30 records; they are tried again"
    )
    assert processes[1].chunks == []
    assert not processes[1].ready
    assert processes[1].resident_bytes == processes[1].baseline_bytes
    assert supervision.starts_due(5.0) == [StartProcess(1)]


def test_a_crash_loop_is_slowed_down_and_a_result_ends_it() -> None:
    """Deaths with nothing inside: at once, then after 0.5 s, 1 s, 2 s, at most 30 s."""
    supervision, processes = two()
    delays = []
    for _ in range(9):
        death = supervision.died(0, "exit code 1", now=100.0)
        assert death.words.text == "handler process 0 died (exit code 1)"
        start_at = processes[0].start_at
        assert start_at is not None
        delays.append(start_at - 100.0)
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert supervision.starts_due(129.9) == []
    assert supervision.starts_due(130.0) == [StartProcess(0)]
    supervision.ready(0, 40_000_000)
    processes[0].chunks.append(chunk(1))
    assert supervision.finished(0, 1, 0, now=131.0) is not None
    supervision.died(0, "exit code 1", now=132.0)
    assert processes[0].start_at == 132.0


def test_records_inside_make_a_death_no_crash_loop() -> None:
    """They are bisected meanwhile, which pauses would only prolong."""
    supervision, processes = two()
    for now in (10.0, 11.0, 12.0):
        processes[0].chunks.append(chunk(1))
        supervision.died(0, "signal 9 (SIGKILL)", now=now)
        assert processes[0].start_at == now


def test_a_hung_process_is_killed_once() -> None:
    """Ten seconds inside one chunk are allowed; the second chunk has not begun."""
    supervision, processes = two()
    processes[0].chunks += [chunk(1, started_at=20.0), chunk(2, started_at=float("inf"))]
    assert supervision.kill_hung(30.0) == []
    assert supervision.kill_hung(30.5) == [KillProcess(0, "a chunk has been inside it for 10.5 s")]
    assert supervision.kill_hung(31.0) == []
    death = supervision.died(0, "signal 9 (SIGKILL)", now=31.5)
    assert death.killed_for is KillReason.TIMED_OUT
    assert "died (timed-out) holding 20 records" in death.words.text
    supervision.ready(0, 40_000_000)
    processes[0].chunks.append(chunk(3, started_at=32.0))
    assert len(supervision.kill_hung(43.0)) == 1


def test_a_stop_whose_time_is_over_kills_what_is_busy() -> None:
    """The idle one ends with its socket; one that is being killed already is not killed twice."""
    supervision, processes = two()
    processes[1].chunks.append(chunk(1))
    assert supervision.kill_busy() == [KillProcess(1, KillReason.STOP.meaning)]
    assert supervision.kill_busy() == []
    assert supervision.died(1, "signal 9 (SIGKILL)", now=9.0).killed_for is KillReason.STOP
