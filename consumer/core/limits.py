"""Limits: everything that may keep the next record out, one row each.

Owns the table that the door, the sizing, the drift test, the state, the log line, ``/budget``, the
metrics, the page, the demonstration and the documentation read. A row is a limit's name (a metric
label), what is used of it, its words and what to do about it. A bound that the sizing reports is a
row of kind ``BOUND`` with one function of a charge: at the door it is asked of what is in flight,
in a sizing of n messages of the mix.

Rules: a limit that is not set has no ratio (None) and is absent everywhere, never 0. Rows are
asked in the order of the table, and the first that is over 1 refuses. What a limit counts never
falls as records are added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from consumer.core.config import FlowConfig, Mode
from sizing.bounds import UsedRatio
from sizing.charge import Charge, deadline_used_ratio, memory_used_ratio

#: Until there is a size: chunks of work in flight for each process, and share of the memory.
INITIAL_CHUNKS = 4
INITIAL_MEMORY_RATIO = 0.1


@dataclass(slots=True)
class Standing:
    """What limits are held against: the outside as the core knows it now."""

    config: FlowConfig
    drain_deadline_seconds: float
    #: "max.poll.interval" or "shutdown-grace"
    deadline_source: str
    memory_available_bytes: int = 0
    #: whether a sizing was published
    sized: bool = False

    @property
    def enforced_deadline_seconds(self) -> float | None:
        """The drain deadline; None where it is only shown (shadow mode, a fixed budget)."""
        enforced = self.config.mode is Mode.ENFORCE and self.config.fixed_vertices is None
        return self.drain_deadline_seconds if enforced else None


def _always(_at: Standing) -> bool:
    return True


def _when_enforced(at: Standing) -> bool:
    return at.enforced_deadline_seconds is not None


class Kind(StrEnum):
    """What sort of limit a row is."""

    #: every sizing says how much of the mix it lets in, and the smallest is the budget
    BOUND = "bound"
    #: a budget in itself, and no part of a sizing: fixed, capped, or small until there is a size
    SET = "set"
    #: not a matter of how much is in flight
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Limit:
    """One row of the table."""

    name: str
    kind: Kind
    #: "memory": what binds, as the subject of a sentence
    subject: str
    #: the cause of the state while it refuses
    when_full: str
    #: for the documentation: what it means that this limits
    meaning: str
    #: what people can do about it
    advice: str
    #: used / limit of a charge; None where the limit is not set
    used_ratio: Callable[[Charge, Standing], float | None] = lambda _charge, _at: None
    #: Whether it refuses records now, or is only shown. By default as the deadline does: not in
    #: shadow mode, and not beside a fixed budget.
    holds: Callable[[Standing], bool] = _when_enforced
    #: of a bound: what is used and what of, as ``/budget`` explains it
    formula: str = ""
    #: the limit itself, in words; asked only where it is set
    shown: Callable[[Standing], str] = lambda _at: ""

    @property
    def binds(self) -> str:
        """Say that this is the binding bound."""
        return f"{self.subject} binds"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What refuses a charge (empty: nothing), and how full each limit is that holds now."""

    cause: str
    #: limit -> used / limit
    ratios: Mapping[str, float]

    @property
    def fits(self) -> bool:
        """Whether nothing refuses."""
        return not self.cause

    def ratio(self, cause: str) -> float:
        """Return how full one limit is; 0 for one that does not hold."""
        return self.ratios.get(cause, 0.0)


class Limits:
    """The rows, in the order in which they are asked."""

    def __init__(self, rows: tuple[Limit, ...]) -> None:
        self._rows = {row.name: row for row in rows}
        assert len(self._rows) == len(rows), "two limits of one name"
        self.bounds = tuple(row for row in rows if row.kind is Kind.BOUND)

    def __iter__(self) -> Iterator[Limit]:
        return iter(self._rows.values())

    def __getitem__(self, name: str) -> Limit:
        return self._rows[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Every limit's name."""
        return tuple(self._rows)

    def judge(self, charge: Charge, at: Standing) -> Verdict:
        """Hold a charge against every limit that holds now."""
        ratios = {}
        cause = ""
        for row in self._rows.values():
            ratio = row.used_ratio(charge, at)
            if ratio is None or not row.holds(at):
                continue
            ratios[row.name] = ratio
            if ratio > 1.0 and not cause:
                cause = row.name
        return Verdict(cause, ratios)

    def bound_ratios(self, charge: Charge, at: Standing) -> dict[str, float]:
        """Return how full each bound is that is set, whether it holds now or not."""
        ratios = {row.name: row.used_ratio(charge, at) for row in self.bounds}
        return {name: ratio for name, ratio in ratios.items() if ratio is not None}

    def bound_functions(self, at: Standing) -> dict[str, UsedRatio]:
        """Return the used ratio of each bound as a function of the charge alone."""

        def of(row: Limit) -> UsedRatio:
            return lambda charge: row.used_ratio(charge, at)

        return {row.name: of(row) for row in self.bounds}


def _initial_ratio(charge: Charge, at: Standing) -> float | None:
    """Let in a few chunks of work for each process (or as many records, if they are heavier)."""
    if at.sized or at.config.fixed_vertices is not None:
        return None
    chunks = INITIAL_CHUNKS * at.config.processes
    held_bytes = max(1.0, INITIAL_MEMORY_RATIO * at.memory_available_bytes)
    return max(
        min(charge.seconds / (chunks * charge.chunk_seconds), charge.messages / chunks),
        charge.held_bytes / held_bytes,
    )


def _ratio_of_set(charge: Charge, vertices: int | None) -> float | None:
    return None if vertices is None else charge.vertices / vertices


LIMITS = Limits(
    (
        Limit(
            name="memory",
            kind=Kind.BOUND,
            subject="memory",
            when_full="the memory bound is reached",
            meaning="what waits and what is being worked on fill the memory that is available",
            advice="give the container more memory, fewer processes, or a handler that holds less",
            used_ratio=lambda charge, at: memory_used_ratio(charge, at.memory_available_bytes),
            holds=_always,
            formula="raw bytes held, fetched and not admitted, or not acknowledged"
            " / (memory_available_bytes - room for work inside the processes)",
            shown=lambda at: f"{at.memory_available_bytes >> 20} MiB are free",
        ),
        Limit(
            name="deadline",
            kind=Kind.BOUND,
            subject="the deadline",
            when_full="the deadline bound is reached",
            meaning="more could not be finished in time",
            advice="make the handler faster, give it more processes and cores, or a longer"
            " VERTEX_BUDGET_SHUTDOWN_GRACE_SECONDS (with the container's own grace) and"
            " max.poll.interval.ms",
            used_ratio=lambda charge, at: deadline_used_ratio(charge, at.drain_deadline_seconds),
            formula="used_seconds / drain_deadline_seconds",
            shown=lambda at: f"done in {at.drain_deadline_seconds:.1f} s",
        ),
        Limit(
            name="fixed",
            kind=Kind.SET,
            subject="the fixed budget",
            when_full="the fixed budget is reached",
            meaning="your own VERTEX_BUDGET",
            advice="raise it or leave it out",
            used_ratio=lambda charge, at: _ratio_of_set(charge, at.config.fixed_vertices),
            holds=_always,
        ),
        Limit(
            name="cap",
            kind=Kind.SET,
            subject="the cap",
            when_full="the cap is reached",
            meaning="your own VERTEX_BUDGET_CAP",
            advice="raise it or leave it out",
            used_ratio=lambda charge, at: _ratio_of_set(charge, at.config.cap_vertices),
            holds=_always,
        ),
        Limit(
            name="initial",
            kind=Kind.SET,
            subject="the small first budget",
            when_full="the small budget before the first sizing is reached",
            meaning="there is no size yet: a small budget holds",
            advice="wait for the first sizing",
            used_ratio=_initial_ratio,
            holds=_always,
        ),
        Limit(
            name="delivery",
            kind=Kind.HOLD,
            subject="the broker",
            when_full="the broker refuses what has to be produced",
            meaning="the broker refuses a dead letter or an output; it is sent again",
            advice="see the warning in the log: the topic, its size limit or the rights to write",
        ),
        Limit(
            name="draining",
            kind=Kind.HOLD,
            subject="the stop",
            when_full="a stop was asked for",
            meaning="a stop was asked for, and nothing more is accepted",
            advice="nothing",
        ),
        Limit(
            name="ordering",
            kind=Kind.HOLD,
            subject="the order of records",
            when_full="one chain holds as much as one chain may",
            meaning="one key, or one partition, has most of the work",
            advice="more keys, or VERTEX_BUDGET_ORDERING=unordered",
        ),
        Limit(
            name="ramp",
            kind=Kind.HOLD,
            subject="the ramp",
            when_full="a rate fell, and is still held up",
            meaning="a rate fell, and is still held up: it is believed step by step",
            advice="wait",
        ),
    )
)
#: Nothing limits.
NONE = "none"
#: What is written as code in the documentation.
_NAMES = re.compile(r"VERTEX_BUDGET\w*(?:=\w+)?|max\.poll\.interval\.ms")


def limits_table_markdown() -> str:
    """Return the table as Markdown, for the documentation."""
    lines = ["| `limited_by` | what it means | what to do |", "| --- | --- | --- |"]
    lines.append(f"| `{NONE}` | everything that arrives is let in | nothing |")
    for row in LIMITS:
        words = _NAMES.sub(r"`\g<0>`", f"{row.meaning} | {row.advice}")
        lines.append(f"| `{row.name}` | {words} |")
    return "\n".join(lines) + "\n"
