"""The bounds: what container memory lets in, and what can drain in time.

Owns what the two limits are, and the translation of any limit into vertices and messages of a
mix. Pure arithmetic on numbers; knows no ledger, no Kafka and no clock. The smallest bound wins,
and all are always reported, because a bound that binds by memory is fixed by a bigger container
and one that binds by the deadline by a faster handler or a longer deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sizing.charge import (
    WORK_SHARE_RATIO,
    Charge,
    deadline_used_ratio,
    effective_processes,
    memory_used_ratio,
    room_for_work_bytes,
)
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES, Load
from sizing.model import CostModel


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


def chunk_working_bytes(
    mix: Load, heaviest_working_bytes: float, model: CostModel, situation: Situation
) -> float:
    """Return the working bytes of one typical chunk of a mix; 0 for no records.

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


#: What a bound is computed from: the used ratio of a charge, None where the limit is not set.
UsedRatio: TypeAlias = Callable[[Charge], float | None]
#: No limit lets in more than this.
MOST_MESSAGES = 1e15


@dataclass(frozen=True, slots=True)
class Bounds:
    """Every bound in vertices and messages of one mix; one that is not set is absent."""

    #: bound -> counted vertices, rounded down
    vertices: Mapping[str, int]
    #: bound -> messages, rounded down
    messages: Mapping[str, int]
    effective_processes: float
    #: the article's stricter figure: everything in flight decoded at once
    all_decoded_vertices: int

    @property
    def binding(self) -> str:
        """The smallest bound; of equal ones the last."""
        # Vertices tell apart what rounds to one message; messages, records without vertices.
        return min(
            reversed(list(self.vertices)), key=lambda b: (self.vertices[b], self.messages[b])
        )

    @property
    def budget_vertices(self) -> int:
        """VERTEX_BUDGET: the smallest bound."""
        return min(self.vertices.values())

    @property
    def budget_messages(self) -> int:
        """MESSAGE_BUDGET: the same limit in messages of the mix."""
        return min(self.messages.values())


def bounds_of_mix(
    mix: Load,
    model: CostModel,
    situation: Situation,
    *,
    largest_chain_ratio: float,
    heaviest_working_bytes: float,
    heaviest_seconds: float,
    used: Mapping[str, UsedRatio] | None = None,
) -> Bounds:
    """Translate limits into vertices and messages of a mix.

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
    used : mapping, optional
        Bound -> used ratio of a charge, which never falls as messages are added. By default the
        memory's and the deadline's, of ``situation``.

    Returns
    -------
    Bounds
        Each at least one message of the mix, since one record always runs, alone.

    Notes
    -----
    A bound is the largest n for which the used ratio of n messages of the mix is at most 1, with
    as many processes busy as the memory lets work, and the longest chain its share of everything,
    or the heaviest record alone if that is more.
    Units: vertices, messages. Source: DESIGN, "The arithmetic"; article 000 for the definition.
    """
    charge_of = _charge_of_mix(
        mix,
        model,
        situation,
        largest_chain_ratio=largest_chain_ratio,
        heaviest_working_bytes=heaviest_working_bytes,
        heaviest_seconds=heaviest_seconds,
    )
    ratios = used or {
        "memory": lambda charge: memory_used_ratio(charge, situation.memory_available_bytes),
        "deadline": lambda charge: deadline_used_ratio(charge, situation.drain_deadline_seconds),
    }
    one = charge_of(1.0)
    most = {
        name: _largest(lambda n, ratio=ratio: ratio(charge_of(n)))  # type: ignore[misc]
        for name, ratio in ratios.items()
        if ratio(one) is not None
    }
    vertices_per_message = float(mix[VERTICES]) / float(mix[RECORDS])
    working_per_message = model.working_bytes(mix) / float(mix[RECORDS])
    all_decoded = situation.memory_available_bytes / max(one.held_bytes + working_per_message, 1.0)
    return Bounds(
        vertices={name: int(n * vertices_per_message) for name, n in most.items()},
        messages={name: int(n) for name, n in most.items()},
        effective_processes=one.effective_processes,
        all_decoded_vertices=int(all_decoded * vertices_per_message),
    )


def _charge_of_mix(
    mix: Load,
    model: CostModel,
    situation: Situation,
    *,
    largest_chain_ratio: float,
    heaviest_working_bytes: float,
    heaviest_seconds: float,
) -> Callable[[float], Charge]:
    """Return the charge of n messages of a mix, as a function of n."""
    available = float(situation.memory_available_bytes)
    chunk = chunk_working_bytes(mix, heaviest_working_bytes, model, situation)
    keeps = situation.keeps_bytes or (0.0,) * situation.processes
    inside = sum(max(kept, chunk) for kept in keeps)
    heaviest = max(heaviest_working_bytes, chunk)
    room = room_for_work_bytes(inside, heaviest, situation.processes, available)
    # Chunks that do not fit are not dispatched, but one always is.
    room = min(room, max(WORK_SHARE_RATIO * available, sum(keeps) + chunk))
    effective = effective_processes(room, model.mean_working_bytes(mix), situation.processes)
    message = mix / float(mix[RECORDS])
    seconds = model.seconds(mix) / float(mix[RECORDS])
    held_bytes = model.held_bytes(mix) / float(mix[RECORDS])

    def charge_of(messages: float) -> Charge:
        load = message * messages
        return Charge(
            held=load,
            working=load,
            held_bytes=held_bytes * messages,
            inside_bytes=inside,
            room_bytes=room,
            seconds=seconds * messages,
            longest_chain_seconds=max(largest_chain_ratio * seconds * messages, heaviest_seconds),
            effective_processes=effective,
            parent_seconds_per_message=model.parent_seconds_per_message,
            chunk_seconds=situation.chunk_seconds,
        )

    return charge_of


def _largest(ratio_of: Callable[[float], float]) -> float:
    """Return the largest n >= 1 whose ratio is at most 1, or 1 where there is none."""
    low, high = 1.0, 2.0
    while ratio_of(high) <= 1.0:
        if high >= MOST_MESSAGES:
            return MOST_MESSAGES
        low, high = high, 2.0 * high
    while high - low > max(1e-6, 1e-15 * low):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ratio_of(middle) <= 1.0 else (low, middle)
    # A bound that is a whole number must not lose one to rounding.
    whole = float(np.ceil(low))
    return whole if ratio_of(whole) <= 1.0 + 1e-12 else low
