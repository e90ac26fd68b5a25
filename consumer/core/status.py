"""Status: the worker's state with its cause in words, and what limits it now.

Owns the table of states, the seconds spent in each, and the log line of a change. Is told facts
and nothing else of the worker. A stall is not backpressure: backpressure finishes work.

Rules: the states are asked in the order of the table, and the first that gives a cause is the
state. The last one always does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from consumer.core.commands import Command, Say
from consumer.core.ledger.ledger import ProcessState
from consumer.core.limits import NONE, Kind, Limit
from sizing.load import RECORDS, VERTICES

#: Nothing to do for this long is idle.
IDLE_AFTER_SECONDS = 1.0
#: Nothing finished for longer than the heaviest predicted record, this many times, and this.
STALL_FACTOR = 4.0
STALL_MARGIN_SECONDS = 5.0
#: The state is looked at this often.
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Facts:
    """What the state depends on."""

    now: float
    #: records in flight, and those of them that wait for a process or for a retry
    held: int
    waiting: int
    retrying: int
    #: nothing is in flight, and nothing fetched waits for room
    empty: bool
    processes: tuple[ProcessState, ...]
    #: when a record was fetched last; None before the first
    fetched_at: float | None
    #: when something was finished last
    finished_at: float
    stopping: bool
    waits_for_instance_id: bool
    #: there is a budget: a sizing, or a fixed one
    measured: bool
    #: what keeps the next record out, or did until the way down is gone
    refused_by: Limit | None


@dataclass(frozen=True, slots=True)
class State:
    """One row of the table."""

    name: str
    #: the question that the facts are asked, for the diagram
    when: str
    #: for the documentation
    meaning: str
    #: why, in words; empty when this is not the state
    cause: Callable[[Facts], str]


def _draining(facts: Facts) -> str:
    return f"finishing {facts.held:,} records before leaving" if facts.stopping else ""


def _waiting_for_instance_id(facts: Facts) -> str:
    held = "the broker still holds this member's old instance"
    return held if facts.waits_for_instance_id else ""


def _idle(facts: Facts) -> str:
    if not facts.empty:
        return ""
    if facts.fetched_at is None:
        return "no record has arrived"
    quiet_seconds = facts.now - max(facts.fetched_at, facts.finished_at)
    return (
        f"nothing to do since {quiet_seconds:.0f} s" if quiet_seconds >= IDLE_AFTER_SECONDS else ""
    )


def _stalled(facts: Facts) -> str:
    working = [process for process in facts.processes if process.chunks]
    if not working:
        ready = any(process.ready for process in facts.processes)
        since = max(facts.finished_at, facts.now if facts.fetched_at is None else facts.fetched_at)
        if facts.waiting and not ready and facts.now - since > STALL_MARGIN_SECONDS:
            return f"no handler process is ready and {facts.waiting:,} records wait"
        return ""
    since = max(facts.finished_at, *(process.chunks[0].started_at for process in working))
    longest = max(process.chunks[0].predicted_seconds for process in working)
    if facts.now - since <= STALL_FACTOR * longest + STALL_MARGIN_SECONDS:
        return ""
    return f"nothing has finished for {facts.now - since:.0f} s: {_inside(facts.processes)}"


def _waiting_on_retries(facts: Facts) -> str:
    if not facts.held or facts.retrying < facts.held:
        return ""
    return f"all {facts.held:,} records in flight wait for a retry"


def _warming_up(facts: Facts) -> str:
    return "" if facts.measured else f"measuring live traffic, {facts.held:,} records in flight"


def _backpressured(facts: Facts) -> str:
    if facts.refused_by is None:
        return ""
    if facts.refused_by.kind is Kind.HOLD:
        return facts.refused_by.when_full
    return f"{facts.refused_by.when_full}; {_inside(facts.processes)}"


def _running(facts: Facts) -> str:
    return f"{facts.held:,} records in flight"


def _inside(processes: tuple[ProcessState, ...]) -> str:
    """Say what the processes work on."""
    working = [process for process in processes if process.chunks]
    heavy = [process.chunks[0] for process in working if process.chunks[0].heavy]
    if heavy:
        most = max(int(chunk.load[VERTICES]) for chunk in heavy)
        return (
            f"{len(heavy)} of {len(processes)} processes are inside one record of up to"
            f" {most:,} vertices"
        )
    records = sum(int(chunk.load[RECORDS]) for process in working for chunk in process.chunks)
    return f"{len(working)} of {len(processes)} processes work on {records:,} records"


STATES: tuple[State, ...] = (
    State(
        "draining",
        "a stop was asked for",
        "finishing before it leaves",
        _draining,
    ),
    State(
        "waiting-for-instance-id",
        "the broker refuses the static member's id",
        "the broker still holds this static member's old instance",
        _waiting_for_instance_id,
    ),
    State(
        "idle",
        f"nothing is held, for {IDLE_AFTER_SECONDS:g} s",
        "nothing to do",
        _idle,
    ),
    State(
        "stalled",
        f"nothing finished for {STALL_FACTOR:g} times the heaviest prediction"
        f" and {STALL_MARGIN_SECONDS:g} s",
        "holding work, and nothing finished for far longer than predicted; the cause says what the"
        " processes are inside of",
        _stalled,
    ),
    State(
        "waiting-on-retries",
        "all that is in flight waits for a retry",
        "everything in flight waits for another attempt",
        _waiting_on_retries,
    ),
    State(
        "warming-up",
        "there is no size yet",
        "measuring live traffic, handling it for real",
        _warming_up,
    ),
    State(
        "backpressured",
        "a limit keeps the next record out",
        "full, and finishing work: this is what it is for",
        _backpressured,
    ),
    State(
        "running",
        "none of these",
        "there is room",
        _running,
    ),
)
STATE_NAMES = tuple(state.name for state in STATES)


def find_state(facts: Facts) -> tuple[str, str]:
    """Return the state and its cause in words."""
    causes = ((state.name, state.cause(facts)) for state in STATES)
    return next((name, cause) for name, cause in causes if cause)


class Status:
    """The state over time."""

    def __init__(self) -> None:
        self.state = "idle"
        self.cause = "no record has arrived"
        #: name of a limit, or "none"
        self.limited_by = NONE
        #: seconds spent in each state so far
        self.seconds: dict[str, float] = dict.fromkeys(STATE_NAMES, 0.0)
        self.now: float | None = None
        self._looked_at = float("-inf")
        self._said = ""

    def pass_time(self, now: float) -> None:
        """Account the time since the last step."""
        if self.now is not None:
            self.seconds[self.state] += max(0.0, now - self.now)
        self.now = now

    def is_due(self, now: float) -> bool:
        """Whether it is time to look at the state again (20 times a second)."""
        return now - self._looked_at >= LOOK_SECONDS

    def look(self, facts: Facts, limited_by: str) -> list[Command]:
        """Find the state anew; return one log line when it has changed."""
        self._looked_at = facts.now
        self.state, self.cause = find_state(facts)
        self.limited_by = limited_by
        if self._said == self.state:
            return []
        self._said = self.state
        return [Say("info", f"{self.state}: {self.cause}", {"state": self.state})]


def states_table_markdown() -> str:
    """Return the table of states as Markdown, for the documentation."""
    lines = ["| `state` | what it means |", "| --- | --- |"]
    lines += [f"| `{state.name}` | {state.meaning} |" for state in STATES]
    return "\n".join(lines) + "\n"


def states_diagram_markdown() -> str:
    """Return the order in which the states are asked as a diagram, for the documentation."""
    lines = ["```mermaid", "flowchart TD"]
    for number, state in enumerate(STATES[:-1]):
        lines.append(f'    q{number}{{{{"{state.when}?"}}}} -- yes --> s{number}["{state.name}"]')
        after = (
            f"q{number + 1}" if number + 2 < len(STATES) else f's{number + 1}["{STATES[-1].name}"]'
        )
        lines.append(f"    q{number} -- no --> {after}")
    return "\n".join([*lines, "```"]) + "\n"
