"""The table of states: each state by the facts that lead to it, and which of two comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer.core.commands import Say
from consumer.core.ledger.ledger import InsideChunk, ProcessState
from consumer.core.limits import LIMITS
from consumer.core.status import (
    STATES,
    Facts,
    Status,
    find_state,
    states_diagram_markdown,
    states_table_markdown,
)
from sizing.load import RECORDS, VERTICES, zero_load


def process(number: int, *chunks: InsideChunk, ready: bool = True) -> ProcessState:
    return ProcessState(number, ready=ready, chunks=list(chunks))


def chunk(
    records: int = 500, vertices: int = 500, *, heavy: bool = False, started_at: float = 100.0
) -> InsideChunk:
    """A chunk that is predicted to take 50 ms."""
    load = zero_load()
    load[RECORDS], load[VERTICES] = records, vertices
    return InsideChunk(1, [], load, 0.05, 1e6, started_at, started_at, heavy)


#: two processes, one of them busy; measured, and with room
BUSY = Facts(
    now=100.0,
    held=2_000,
    waiting=1_500,
    retrying=0,
    empty=False,
    processes=(process(0, chunk()), process(1)),
    fetched_at=99.9,
    finished_at=99.95,
    stopping=False,
    waits_for_instance_id=False,
    measured=True,
    refused_by=None,
)
NOTHING = replace(
    BUSY, held=0, waiting=0, empty=True, processes=(process(0), process(1)), fetched_at=None
)


@pytest.mark.parametrize(
    ("facts", "state", "cause"),
    [
        (BUSY, "running", "2,000 records in flight"),
        (
            replace(BUSY, refused_by=LIMITS["memory"]),
            "backpressured",
            "the memory bound is reached; 1 of 2 processes work on 500 records",
        ),
        (
            replace(
                BUSY,
                refused_by=LIMITS["deadline"],
                processes=(
                    process(0, chunk(1, 184_923, heavy=True)),
                    process(1, chunk(1, 9_000, heavy=True)),
                ),
            ),
            "backpressured",
            "the deadline bound is reached; 2 of 2 processes are inside one record of up to"
            " 184,923 vertices",
        ),
        (
            replace(BUSY, refused_by=LIMITS["delivery"]),
            "backpressured",
            "the broker refuses what has to be produced",
        ),
        (
            replace(BUSY, measured=False),
            "warming-up",
            "measuring live traffic, 2,000 records in flight",
        ),
        (
            replace(BUSY, held=30, waiting=0, retrying=30),
            "waiting-on-retries",
            "all 30 records in flight wait for a retry",
        ),
        (NOTHING, "idle", "no record has arrived"),
        (replace(NOTHING, fetched_at=90.0, finished_at=93.0), "idle", "nothing to do since 7 s"),
        (
            replace(BUSY, waits_for_instance_id=True),
            "waiting-for-instance-id",
            "the broker still holds this member's old instance",
        ),
        (replace(BUSY, stopping=True), "draining", "finishing 2,000 records before leaving"),
    ],
)
def test_each_state_has_its_facts_and_its_words(facts: Facts, state: str, cause: str) -> None:
    """What leads to a state, and what it says."""
    assert find_state(facts) == (state, cause)


@pytest.mark.parametrize(("finished_at", "stalled"), [(94.81, False), (94.79, True)])
def test_a_stall_is_silence_beyond_what_was_predicted(finished_at: float, stalled: bool) -> None:
    """Four times the 50 ms of the chunk and five seconds: 5.2 s without a result."""
    facts = replace(
        BUSY, finished_at=finished_at, processes=(process(0, chunk(started_at=50.0)), process(1))
    )
    state, cause = find_state(facts)
    assert (state == "stalled") is stalled
    if stalled:
        assert cause == "nothing has finished for 5 s: 1 of 2 processes work on 500 records"


def test_a_chunk_that_has_just_begun_is_no_stall() -> None:
    """Nothing finished for a minute because there was nothing: the silence begins with the chunk."""
    assert find_state(replace(BUSY, finished_at=40.0))[0] == "running"


def test_records_without_any_process_are_a_stall_after_a_while() -> None:
    """A start takes some seconds; after five without one that is open the records wait in vain."""
    absent = (process(0, ready=False), process(1, ready=False))
    waiting = replace(BUSY, processes=absent, fetched_at=94.9, finished_at=0.0)
    assert find_state(waiting) == (
        "stalled",
        "no handler process is ready and 1,500 records wait",
    )
    assert find_state(replace(waiting, fetched_at=95.1))[0] == "running"
    assert find_state(replace(waiting, fetched_at=None))[0] == "running"
    assert find_state(replace(waiting, waiting=0))[0] == "running"


def test_a_quiet_moment_is_not_idle() -> None:
    """Nothing held for less than a second: the next record may be on its way."""
    assert find_state(replace(NOTHING, fetched_at=99.5, finished_at=99.6))[0] == "running"


def test_a_stall_is_told_before_backpressure_and_a_stop_before_all() -> None:
    """Full and silent is stalled; a stop is what people see whatever else is so."""
    silent = (process(0, chunk(started_at=50.0)),)
    full = replace(BUSY, refused_by=LIMITS["memory"], processes=silent, finished_at=50.0)
    assert find_state(full)[0] == "stalled"
    assert find_state(replace(full, stopping=True, waits_for_instance_id=True))[0] == "draining"


def test_the_seconds_of_each_state_add_up() -> None:
    """Time is the state's that it passed in; the log line comes once for each change."""
    status = Status()
    status.pass_time(100.0)
    assert status.look(replace(BUSY, now=100.0), "none") == [
        Say("info", "running: 2,000 records in flight", {"state": "running"})
    ]
    status.pass_time(103.0)
    assert status.look(replace(BUSY, now=103.0, held=7), "none") == []
    assert status.cause == "7 records in flight"
    (said,) = status.look(replace(BUSY, now=103.0, stopping=True), "draining")
    assert isinstance(said, Say)
    assert said.fields == {"state": "draining"}
    status.pass_time(104.5)
    assert status.seconds["running"] == 3.0
    assert status.seconds["draining"] == 1.5
    assert sum(status.seconds.values()) == 4.5
    assert status.limited_by == "draining"


def test_the_state_is_looked_at_twenty_times_a_second() -> None:
    """More often costs more than it tells."""
    status = Status()
    assert status.is_due(100.0)
    status.look(BUSY, "none")
    assert not status.is_due(100.049)
    assert status.is_due(100.051)


def test_the_documentation_is_made_of_the_table() -> None:
    """The table names every state, and the diagram asks for each in the table's order."""
    table, diagram = states_table_markdown(), states_diagram_markdown()
    assert [f"| `{state.name}` | {state.meaning} |" for state in STATES] == table.splitlines()[2:]
    places = [diagram.index(f'["{state.name}"]') for state in STATES]
    assert places == sorted(places)
    for state in STATES[:-1]:
        assert f"{state.when}?" in diagram
    assert diagram.count("-- yes -->") == diagram.count("-- no -->") == len(STATES) - 1
