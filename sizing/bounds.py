"""The two bounds: what container memory lets in, and what can drain in time.

Owns the two inequalities and their translation into vertices and messages of a mix.
Pure arithmetic on numbers; knows no ledger, no Kafka and no clock. The smaller bound wins, and
both are always reported, because a bound that binds by memory is fixed by a bigger container and
one that binds by the deadline by a faster handler or a longer deadline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES, Load
from sizing.model import CostModel

#: Most of the available memory that is set aside for work on heavy records; the rest holds
#: records that wait. Below it the processes starve, above it intake does.
WORK_SHARE_RATIO = 0.7


def memory_available_bytes(
    limit_bytes: int, baseline_bytes: int, prefetch_bytes: int, headroom_ratio: float
) -> int:
    """Return the memory that in-flight work may use.

    Parameters
    ----------
    limit_bytes : int
        Container limit.
    baseline_bytes : int
        Parent and handler processes at rest (proportional set size), slots included.
    prefetch_bytes : int
        What the Kafka client may prefetch.
    headroom_ratio : float
        Share of the limit that may be planned for, in (0, 1].

    Notes
    -----
    Units: bytes. Formula: limit * headroom - baseline - prefetch, at least 0.
    Source: DESIGN, "The arithmetic"; the headroom of article 003.

    Examples
    --------
    >>> memory_available_bytes(512 << 20, 150 << 20, 16 << 20, 0.8) >> 20
    243
    """
    return max(0, int(limit_bytes * headroom_ratio) - baseline_bytes - prefetch_bytes)


def drain_deadline(
    max_poll_interval_seconds: float, shutdown_grace_seconds: float, headroom_ratio: float
) -> tuple[float, str]:
    """Return the time in which everything in flight must be finished, and what sets it.

    Notes
    -----
    Units: seconds. Formula: headroom * min(poll interval, shutdown grace).
    Source: article 000 (headroom 0.5 of the poll interval); a stop has only the grace.

    Examples
    --------
    >>> drain_deadline(300.0, 30.0, 0.5)
    (15.0, 'shutdown-grace')
    """
    if max_poll_interval_seconds <= shutdown_grace_seconds:
        return headroom_ratio * max_poll_interval_seconds, "max.poll.interval"
    return headroom_ratio * shutdown_grace_seconds, "shutdown-grace"


def room_for_work_bytes(
    inside_bytes: float, heaviest_waiting_bytes: float, processes: int, available_bytes: float
) -> float:
    """Return the part of the available memory that waiting records must leave free.

    The larger of what is inside plus the heaviest that waits (so that it can follow), and of
    every process working on such a record, at most 0.7 of everything.

    Notes
    -----
    Units: bytes. Source: simulated; without it waiting raw bytes crowd out the work.

    Examples
    --------
    >>> room_for_work_bytes(10.0, 30.0, 2, 1000.0), room_for_work_bytes(10.0, 600.0, 2, 1000.0)
    (60.0, 700.0)
    """
    return max(
        inside_bytes + heaviest_waiting_bytes,
        min(processes * heaviest_waiting_bytes, WORK_SHARE_RATIO * available_bytes),
    )


def effective_processes(room_bytes: float, mean_working_bytes: float, processes: int) -> float:
    """Return how many processes the memory lets work at once (P_eff), in [1, processes].

    Examples
    --------
    >>> effective_processes(100.0, 40.0, 4), effective_processes(0.0, 40.0, 4)
    (2.5, 1.0)
    """
    if mean_working_bytes <= 0:
        return float(processes)
    return min(float(processes), max(1.0, room_bytes / mean_working_bytes))


def drain_bound_seconds(
    messages: float,
    seconds: float,
    longest_chain_seconds: float,
    *,
    parent_seconds_per_message: float,
    effective: float,
    chunk_seconds: float,
) -> float:
    """Return an upper bound of the time to finish everything in flight.

    Notes
    -----
    Units: seconds. Formula: n * parent + sum / P_eff + (1 - 1 / P_eff) * longest chain + two
    chunks. Source: Graham (1966), bound of list scheduling, with the parent's serial cost added;
    it holds for the predicted costs, not for one record's outlier.

    Examples
    --------
    >>> drain_bound_seconds(1000, 8.0, 2.0, parent_seconds_per_message=0.001, effective=4.0,
    ...                     chunk_seconds=0.05)
    4.6
    """
    if messages <= 0:
        return 0.0
    return (
        messages * parent_seconds_per_message
        + seconds / effective
        + (1.0 - 1.0 / effective) * longest_chain_seconds
        + 2.0 * chunk_seconds
    )


def predicted_drain_seconds(
    messages: float,
    seconds: float,
    longest_chain_seconds: float,
    *,
    parent_seconds_per_message: float,
    effective: float,
) -> float:
    """Return the expected time to finish everything in flight: its slowest part alone.

    Examples
    --------
    >>> predicted_drain_seconds(10, 8.0, 3.0, parent_seconds_per_message=1e-6, effective=4.0)
    3.0
    """
    return max(messages * parent_seconds_per_message, seconds / effective, longest_chain_seconds)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the bounds are computed for."""

    #: handler processes, >= 1
    processes: int
    memory_available_bytes: int
    drain_deadline_seconds: float
    #: predicted seconds of work of one chunk of light records
    chunk_seconds: float
    #: raw bytes that one chunk may carry
    chunk_bytes: int
    #: what each process keeps resident over its baseline, by measurement
    keeps_bytes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Both bounds in vertices and messages of one mix."""

    memory_vertices: int
    deadline_vertices: int
    memory_messages: int
    deadline_messages: int
    effective_processes: float
    #: the article's stricter figure: everything in flight decoded at once
    all_decoded_vertices: int

    @property
    def binding(self) -> str:
        """The smaller bound: ``"memory"`` or ``"deadline"``; the deadline when they are equal."""
        # Vertices tell apart what rounds to one message; messages, records without vertices.
        memory = self.memory_vertices, self.memory_messages
        return "memory" if memory < (self.deadline_vertices, self.deadline_messages) else "deadline"

    @property
    def budget_vertices(self) -> int:
        """VERTEX_BUDGET: the smaller bound."""
        return min(self.memory_vertices, self.deadline_vertices)

    @property
    def budget_messages(self) -> int:
        """MESSAGE_BUDGET: the same limit in messages of the mix."""
        return min(self.memory_messages, self.deadline_messages)


def chunk_working_bytes(
    mix: Load, heaviest_working_bytes: float, model: CostModel, situation: Situation
) -> float:
    """Return the working bytes of one typical chunk of a mix.

    A chunk ends at its seconds, its raw bytes or a quarter of a process's share of the work
    memory, whichever comes first, and never below one record.
    """
    messages = float(mix[RECORDS])
    if messages <= 0:
        return 0.0
    per_message = model.working_bytes(mix) / messages
    by_seconds = situation.chunk_seconds / max(model.seconds(mix) / messages, 1e-12)
    by_bytes = situation.chunk_bytes / max(float(mix[PAYLOAD_BYTES]) / messages, 1.0)
    share = WORK_SHARE_RATIO * situation.memory_available_bytes / situation.processes / 4.0
    light = min(min(by_seconds, by_bytes) * per_message, share)
    return min(max(light, per_message), max(heaviest_working_bytes, light))


def bounds_of_mix(
    mix: Load,
    model: CostModel,
    situation: Situation,
    *,
    largest_chain_ratio: float,
    heaviest_working_bytes: float,
    heaviest_seconds: float,
) -> Bounds:
    """Translate both inequalities into vertices and messages of a mix.

    Parameters
    ----------
    mix : Load
        The sample's counts, at least one record.
    model : CostModel
        Rates in force.
    situation : Situation
        Processes, memory, deadline.
    largest_chain_ratio : float
        Share of the sample's seconds in its largest chain, in [0, 1].
    heaviest_working_bytes, heaviest_seconds : float
        Of the sample's heaviest record.

    Returns
    -------
    Bounds
        Rounded down; each at least one message of the mix, since one record always runs, alone.

    Notes
    -----
    Memory: held bytes of n messages <= available - room, with as many processes busy as fit.
    Deadline: n (parent + s / P_eff) + (1 - 1 / P_eff) max(n q s, heaviest) + two chunks
    <= deadline, for s seconds a message and the largest chain's share q.
    Units: vertices, messages. Source: DESIGN, "The arithmetic"; article 000 for the definition.
    """
    messages = float(mix[RECORDS])
    vertices_per_message = float(mix[VERTICES]) / messages
    seconds_per_message = model.seconds(mix) / messages
    held_per_message = model.held_bytes(mix) / messages
    working_per_message = model.working_bytes(mix) / messages
    available = float(situation.memory_available_bytes)

    chunk = chunk_working_bytes(mix, heaviest_working_bytes, model, situation)
    keeps = situation.keeps_bytes or (0.0,) * situation.processes
    inside = sum(max(kept, chunk) for kept in keeps)
    heaviest = max(heaviest_working_bytes, chunk)
    room = room_for_work_bytes(inside, heaviest, situation.processes, available)
    # Chunks that do not fit are not dispatched, but one always is.
    room = min(room, max(WORK_SHARE_RATIO * available, sum(keeps) + chunk))
    effective = effective_processes(room, model.mean_working_bytes(mix), situation.processes)
    by_memory = max(1.0, (available - room) / held_per_message)

    per_message = model.parent_seconds_per_message + seconds_per_message / effective
    chained = 1.0 - 1.0 / effective
    time_left = situation.drain_deadline_seconds - 2.0 * situation.chunk_seconds
    # The longest chain is its share of everything, or the heaviest record alone if that is more.
    by_share = time_left / (per_message + chained * largest_chain_ratio * seconds_per_message)
    by_heaviest = (time_left - chained * heaviest_seconds) / per_message
    by_deadline = max(1.0, min(by_share, by_heaviest))

    all_decoded = available / max(held_per_message + working_per_message, 1.0)
    return Bounds(
        memory_vertices=int(by_memory * vertices_per_message),
        deadline_vertices=int(by_deadline * vertices_per_message),
        memory_messages=int(by_memory),
        deadline_messages=int(by_deadline),
        effective_processes=effective,
        all_decoded_vertices=int(all_decoded * vertices_per_message),
    )


def article_memory_bound_vertices(available_bytes: float, bytes_per_vertex: float) -> int:
    """Return the article's memory bound: everything in flight decoded at once.

    Notes
    -----
    Units: bytes / (bytes / vertex) = vertices. Source: article 000, ``recommend``.

    Examples
    --------
    >>> article_memory_bound_vertices(2 * 1024**3, 140.0)
    15339168
    """
    return int(available_bytes / bytes_per_vertex)


def article_deadline_bound_vertices(
    vertices_per_second: float, max_poll_interval_seconds: float, headroom_ratio: float
) -> int:
    """Return the article's deadline bound for one process.

    Notes
    -----
    Units: vertices / second * seconds = vertices. Source: article 000, ``recommend``.

    Examples
    --------
    >>> article_deadline_bound_vertices(140_000.0, 30.0, 0.5)
    2100000
    """
    return int(vertices_per_second * max_poll_interval_seconds * headroom_ratio)


def largest_share(rows: NDArray[np.int64], model: CostModel) -> float:
    """Return the largest row's share of the seconds of all rows; 1 for no rows.

    Examples
    --------
    >>> from sizing.load import LOAD_WIDTH, CLASS_UNITS
    >>> rows = np.zeros((2, LOAD_WIDTH), dtype=np.int64)
    >>> rows[0, CLASS_UNITS.start], rows[1, CLASS_UNITS.start] = 3, 1
    >>> largest_share(rows, CostModel(np.ones(16), np.ones(16)))
    0.75
    """
    if len(rows) == 0:
        return 1.0
    seconds = model.seconds_of_rows(rows)
    total = float(seconds.sum())
    return float(seconds.max()) / total if total > 0 else 1.0
