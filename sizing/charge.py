"""The charge: what a set of records in flight costs, in the units of every limit.

Owns the figures that a limit may be computed from, their formulas, and the used ratio of the two
bounds that the worker measures. What is in flight has a charge; so have n messages of a sample's mix, and the
largest n whose ratio is at most 1 is the bound (``sizing.bounds``). One function for each bound is
therefore both the door and the number that people see. Pure; knows no ledger and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sizing.load import RECORDS, VERTICES, Load

#: The counts of a load, or of so many messages of a mix.
Counts: TypeAlias = Load | NDArray[np.float64]

#: Most of the available memory that is set aside for work on heavy records; the rest holds
#: records that wait. Below it the processes starve, above it intake does.
WORK_SHARE_RATIO = 0.7


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


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What is in flight, or would be, valued by one cost model."""

    #: counts of everything that is in flight
    held: Counts
    #: of what waits for a process or is inside one: not what waits for a retry or the broker
    working: Counts
    #: raw bytes of everything in flight, fetched, or not acknowledged
    held_bytes: float
    #: working bytes inside the processes
    inside_bytes: float
    #: the part of the available memory that is left to work
    room_bytes: float
    #: handler seconds of what is working, in one process
    seconds: float
    longest_chain_seconds: float
    #: processes that the memory lets work at once
    effective_processes: float
    parent_seconds_per_message: float
    chunk_seconds: float

    @property
    def messages(self) -> float:
        """Messages that wait for a process or are inside one."""
        return float(self.working[RECORDS])

    @property
    def vertices(self) -> float:
        """Counted vertices of everything in flight."""
        return float(self.held[VERTICES])

    @property
    def drain_bound_seconds(self) -> float:
        """Most seconds that it can take to finish, given the predicted costs."""
        return drain_bound_seconds(
            self.messages,
            self.seconds,
            self.longest_chain_seconds,
            parent_seconds_per_message=self.parent_seconds_per_message,
            effective=self.effective_processes,
            chunk_seconds=self.chunk_seconds,
        )

    @property
    def predicted_drain_seconds(self) -> float:
        """Seconds that it is expected to take."""
        return predicted_drain_seconds(
            self.messages,
            self.seconds,
            self.longest_chain_seconds,
            parent_seconds_per_message=self.parent_seconds_per_message,
            effective=self.effective_processes,
        )


def memory_used_ratio(charge: Charge, available_bytes: float) -> float:
    """Return how full the part of the memory is that records may wait in; infinite without one.

    Notes
    -----
    Units: bytes / bytes. Formula: held / (available - room for work).

    Examples
    --------
    >>> nothing = np.zeros(35, dtype=np.int64)
    >>> waiting = Charge(nothing, nothing, 300.0, 100.0, 400.0, 0.0, 0.0, 2.0, 3e-6, 0.06)
    >>> memory_used_ratio(waiting, 1000.0), memory_used_ratio(waiting, 400.0)
    (0.5, inf)
    """
    if charge.held_bytes <= 0:
        return 0.0
    room_to_wait = available_bytes - charge.room_bytes
    return charge.held_bytes / room_to_wait if room_to_wait > 0 else np.inf


def deadline_used_ratio(charge: Charge, deadline_seconds: float) -> float:
    """Return how much of the drain deadline finishing can take; infinite without a deadline.

    Notes
    -----
    Units: seconds / seconds. Formula: drain bound / deadline.

    Examples
    --------
    >>> load = np.zeros(35, dtype=np.int64)
    >>> load[RECORDS] = 1000
    >>> inside = Charge(load, load, 0.0, 0.0, 0.0, 8.0, 2.0, 4.0, 0.001, 0.05)
    >>> deadline_used_ratio(inside, 9.2), deadline_used_ratio(inside, 0.0)
    (0.5, inf)
    """
    seconds = charge.drain_bound_seconds
    if seconds <= 0:
        return 0.0
    return seconds / deadline_seconds if deadline_seconds > 0 else np.inf
