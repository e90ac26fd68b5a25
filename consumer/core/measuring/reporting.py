"""One sizing: from a window of traffic and a cost model to the report.

Owns how the report is put together: bounds, budget, what people can read off, what the sample
could not tell. The arithmetic is ``sizing``'s; when a sizing is published is ``measuring``'s.
"""

from __future__ import annotations

import numpy as np

from consumer.core.config import FlowConfig
from consumer.core.ledger.ledger import Ledger
from consumer.core.limits import Limits, Standing
from consumer.core.measuring.learning import Learning
from consumer.core.measuring.window import Window
from consumer.core.reasons import SizingReason
from sizing.bounds import Bounds, Situation, bounds_of_mix
from sizing.classes import CLASS_EDGES_UNITS
from sizing.load import CLASS_RECORDS, CLASS_UNITS, PAYLOAD_BYTES, VERTICES
from sizing.model import LEAST_BYTES_PER_VERTEX_OF_TEXT, CostModel, coefficients
from sizing.rates import PRIOR_BYTES_PER_VERTEX, PRIOR_SECONDS_PER_MESSAGE
from sizing.report import BoundFigure, ClassFigure, Sample, SampleWindow, SizingReport


def find_bounds(window: Window, ledger: Ledger, limits: Limits, standing: Standing) -> Bounds:
    """Return every bound for a window's mix, by the model in force."""
    config, model = standing.config, ledger.model
    return bounds_of_mix(
        window.load,
        model,
        Situation(
            processes=len(ledger.processes),
            memory_available_bytes=standing.memory_available_bytes,
            drain_deadline_seconds=standing.drain_deadline_seconds,
            chunk_seconds=ledger.chunk_seconds,
            chunk_bytes=config.chunk_bytes,
            keeps_bytes=tuple(p.keeps_bytes for p in ledger.processes),
        ),
        largest_chain_ratio=window.largest_chain_ratio(model),
        heaviest_working_bytes=_heaviest(window, model.working_bytes_per_unit),
        heaviest_seconds=_heaviest(window, model.seconds_per_unit),
        used=limits.bound_functions(standing),
    )


def _heaviest(window: Window, per_unit: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the largest cost of one record of a window."""
    costs = (units * float(per_unit[c]) for c, units in window.heaviest_units.items())
    return max(costs, default=0.0)


def size(
    window: Window,
    *,
    reason: SizingReason,
    learning: Learning,
    measured: CostModel,
    ledger: Ledger,
    limits: Limits,
    standing: Standing,
    now_wall: float,
) -> SizingReport:
    """Compute a sizing.

    Parameters
    ----------
    window : Window
        The sample, at least one record.
    reason : SizingReason
        Why now.
    learning : Learning
        What was learnt of its records.
    measured : CostModel
        Rates as they were measured, before implausible ones were raised.
    ledger : Ledger
        Processes, and the model in force.
    limits, standing : Limits, Standing
        The table, and the outside.
    now_wall : float
        Wall clock, seconds since 1970.
    """
    model, config, load = ledger.model, standing.config, window.load
    bounds = find_bounds(window, ledger, limits, standing)
    fit = coefficients(
        model,
        load,
        learning.seconds_rates.established(),
        (PRIOR_SECONDS_PER_MESSAGE, PRIOR_BYTES_PER_VERTEX),
    )
    vertices = max(1, int(load[VERTICES]))
    seconds = max(model.seconds(load), 1e-12)
    vertex_budget, message_budget, cap_notes = _capped(bounds, config)
    notes = _sample_notes(window, learning, measured, config, separable=fit.separable)
    return SizingReport(
        reason=reason.value,
        at=now_wall,
        vertex_budget=vertex_budget,
        message_budget=message_budget,
        bounds=tuple(
            BoundFigure(name, most, bounds.messages[name], limits[name].binds)
            for name, most in bounds.vertices.items()
        ),
        binding=bounds.binding,
        bytes_per_vertex=(model.held_bytes(load) + model.working_bytes(load)) / vertices,
        bytes_per_message=fit.bytes_per_message,
        seconds_per_vertex=fit.seconds_per_vertex,
        seconds_per_message=fit.seconds_per_message,
        vertices_per_second=bounds.effective_processes * vertices / seconds,
        parent_seconds_per_message=model.parent_seconds_per_message,
        memory_available_bytes=standing.memory_available_bytes,
        drain_deadline_seconds=standing.drain_deadline_seconds,
        deadline_source=standing.deadline_source,
        processes=len(ledger.processes),
        effective_processes=bounds.effective_processes,
        largest_chain_ratio=window.largest_chain_ratio(model),
        all_decoded_bound_vertices=bounds.all_decoded_vertices,
        sample=_sample(window, learning, model),
        notes=(*notes, *cap_notes),
    )


def _capped(bounds: Bounds, config: FlowConfig) -> tuple[int, int, list[str]]:
    """Return the budget in vertices and in messages, under the cap if there is one."""
    vertices, messages = bounds.budget_vertices, bounds.budget_messages
    cap = config.cap_vertices
    if cap is None or vertices <= cap:
        return vertices, messages, []
    note = f"the cap of {cap:,} vertices holds the budget down"
    return cap, max(1, messages * cap // vertices), [note]


def _sample_notes(
    window: Window,
    learning: Learning,
    measured: CostModel,
    config: FlowConfig,
    *,
    separable: bool,
) -> list[str]:
    notes = []
    if not separable:
        notes.append(
            "the sample is too uniform to tell the cost of a message from that of a vertex;"
            " the cost of a message stays at its prior"
        )
    if window.messages < config.warmup_messages:
        notes.append(
            f"thin sample: {window.messages:,} messages of {config.warmup_messages:,} wanted"
        )
    if learning.bytes_factor > 1.0:
        exact_vertices = max(1.0, int(window.load[VERTICES]) * learning.exact_ratio)
        measured_bytes = measured.held_bytes(window.load) + measured.working_bytes(window.load)
        least = LEAST_BYTES_PER_VERTEX_OF_TEXT
        notes.append(
            f"the measured {measured_bytes / exact_vertices:.1f} bytes per vertex are refused:"
            f" under {least:.0f} the text and its geometry cannot both be in them; {least:.0f} are"
            " charged; check how working bytes are measured"
        )
    if window.holds_any_of(learning.held_up()):
        notes.append("a rate that fell is still held up (ramp)")
    return notes


def _sample(window: Window, learning: Learning, model: CostModel) -> Sample:
    load, rates = window.load, learning.seconds_rates
    return Sample(
        messages=window.messages,
        vertices=int(load[VERTICES]),
        payload_bytes=int(load[PAYLOAD_BYTES]),
        exact_ratio=learning.exact_ratio,
        handler_seconds=learning.handler_seconds,
        cpu_ratio=learning.cpu_ratio,
        first_at=window.first_wall,
        last_at=window.last_wall,
        windows=tuple(
            SampleWindow(topic, number, first, last)
            for (topic, number), (first, last) in sorted(window.offsets.items())
        ),
        classes=tuple(
            ClassFigure(
                from_units=int(CLASS_EDGES_UNITS[c]),
                messages=int(load[CLASS_RECORDS][c]),
                units=int(load[CLASS_UNITS][c]),
                seconds_per_unit=float(model.seconds_per_unit[c]),
                seconds_spread_ratio=rates.spread_ratio(c),
                working_bytes_per_unit=float(model.working_bytes_per_unit[c]),
                observations=rates.observations(c),
            )
            for c in np.flatnonzero(load[CLASS_RECORDS]).tolist()
        ),
    )
