"""What the worker shows of itself: one frozen picture, read by metrics, HTTP and the log.

Owns the fields; the core fills them (``picture``) and the driver adds what only it knows
(lag, pool peak). Readers on other threads see a whole picture or the one before, never a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer.core.ledger.columns import Partition
from consumer.core.limits import Limits
from sizing.report import SizingReport

OUTCOMES = ("done", "dead-lettered", "skipped", "failed")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The worker at one moment."""

    #: monotonic seconds of the core's last step
    at: float
    state: str
    #: the cause of the state in words
    state_cause: str
    #: seconds spent in each state so far
    state_seconds: Mapping[str, float]
    #: the table of limits, for their words
    limits: Limits
    #: limit -> itself in words; empty for one that is no amount
    limits_shown: Mapping[str, str]
    #: name of a limit, or "none"
    limited_by: str
    #: the last sizing; None until there is one
    sizing: SizingReport | None
    #: budgets in force, also before the first sizing and under a fixed budget or cap
    budget_vertices: int
    budget_messages: int
    #: bound -> vertices, messages of the mix, at the last sizing; one that is not set is absent
    bound_vertices: Mapping[str, int]
    bound_messages: Mapping[str, int]
    #: name of the smallest bound; empty before the first sizing
    binding: str
    in_flight_messages: int
    in_flight_vertices: int
    in_flight_bytes: int
    #: raw bytes with what each record costs beside its payload, fetched or not acknowledged too
    held_bytes: float
    #: bound -> used / limit, of every bound that is set
    used_ratio: Mapping[str, float]
    charged_vertices: Mapping[str, float]
    memory_available_bytes: int
    drain_deadline_seconds: float
    deadline_source: str
    drain_bound_seconds: float
    predicted_drain_seconds: float
    assigned: tuple[Partition, ...]
    paused: tuple[Partition, ...]
    pauses_total: int
    resumes_total: int
    paused_seconds_total: float
    messages_total: Mapping[str, int]
    vertices_total: int
    dead_letters_total: Mapping[str, int]
    sizings_total: Mapping[str, int]
    #: wall clock of the last sizing, seconds since 1970; 0 before
    last_sizing_at: float
    #: next offset to read, by partition: the contiguous end of what is done
    committed_end: Mapping[Partition, int]
    processes_ready: int
    #: processes wanted
    processes: int
    mode: str
    #: the fullest that a bound's limit has been when records were let in; one that was alone, and
    #: rates that rose later, do not count
    most_admitted_ratio: float = 0.0
    #: the group has accepted this member
    joined: bool = False
    #: added by the driver: partition -> records between the committed end and the log's end
    lag_messages: Mapping[Partition, int] = field(default_factory=dict)
    #: added by the driver: estimated seconds to work off the lag
    lag_seconds: float = 0.0
    #: added by the driver: peak of everything / limit in the last measuring period
    pool_peak_ratio: float = 0.0
