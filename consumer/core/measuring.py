"""Measuring: the sample of traffic, the rates in force and when to publish a sizing.

Owns the contiguous window of each partition, warm-up, the re-measuring schedule and what each
chunk teaches. The arithmetic is in ``sizing``; here is when and on which records.

Rules: every record is handled once, for real; nothing is run for the measurement's sake. The
warm-up window is enough with records and handler seconds enough, or when ten times the seconds
have passed. Afterwards a sizing is published every interval, and at once when the mix drifts, a
class never seen appears or a prediction fails.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumer.core.call_cost import CallCost
from consumer.core.config import FlowConfig
from consumer.core.events import ChunkOutcome
from consumer.core.ledger import InsideChunk, Ledger
from consumer.core.window import Window
from consumer.core.work import Run
from sizing.bounds import Bounds, Situation, bounds_of_mix
from sizing.classes import CLASS_COUNT, CLASS_EDGES_UNITS
from sizing.load import (
    CLASS_RECORDS,
    CLASS_UNITS,
    PAYLOAD_BYTES,
    RECORDS,
    VERTICES,
    Load,
)
from sizing.model import (
    LEAST_BYTES_PER_VERTEX_OF_TEXT,
    PRIOR_PARENT_SECONDS_PER_MESSAGE,
    CostModel,
    coefficients,
    implausible_bytes_factor,
)
from sizing.rates import (
    LEAST_OBSERVATIONS,
    PRIOR_BYTES_PER_VERTEX,
    PRIOR_SECONDS_PER_MESSAGE,
    Quantity,
    Rates,
)
from sizing.report import ClassFigure, Sample, SampleWindow, SizingReport

#: A warm-up that lacks records or seconds ends after this many times its seconds.
WARMUP_PATIENCE = 10.0
#: The recent mix covers at least this long and this many records.
RECENT_SECONDS = 1.0
RECENT_RECORDS = 500
#: A bound of the recent mix this far from the published one is a drift.
DRIFT_RATIO = 0.2
#: ... beyond so many standard errors of the two means.
DRIFT_ERRORS = 2.0
#: At-once sizings are published no more often than this.
LEAST_BETWEEN_SECONDS = 1.0
#: Readings of the parent's cost that are remembered.
PARENT_READINGS = 5
#: Most work of a chunk, of the shorter of poll interval and shutdown grace.
MOST_CHUNK_RATIO = 0.05
#: Chunks of known classes are learnt from when they hold this share of a chunk's seconds.
POOL_RATIO = 0.3
#: The model in force follows its rates when one of them is this far off.
MODEL_STEP_RATIO = 0.03
#: A chunk's working bytes are measured until its main class is known, then every so many chunks.
SAMPLE_EVERY_CHUNKS = 8
#: Chunks per class in which Python's allocation peak is traced as well.
TRACED_CHUNKS = 2
#: A chunk traced or sampled must carry this much for its bytes to mean anything.
LEAST_SAMPLED_PAYLOAD_BYTES = 4096
#: ... and no more than this to be traced: the tables of a trace are larger than what they count,
#: and the resident peak of a large chunk is exact enough.
MOST_TRACED_PAYLOAD_BYTES = 256 * 1024
#: A class below this share of the predicted work is not news when it appears.
NEW_CLASS_SHARE = 0.05


@dataclass(slots=True)
class Limits:
    """The outside of the bounds, as the core knows it now."""

    drain_deadline_seconds: float
    deadline_source: str
    memory_available_bytes: int


class Measuring:
    """Samples, rates and sizings."""

    def __init__(self, ledger: Ledger, config: FlowConfig) -> None:
        self._ledger = ledger
        self._config = config
        self.seconds_rates = Rates(Quantity.SECONDS)
        self.bytes_rates = Rates(Quantity.BYTES)
        self.call_cost = CallCost(
            config.chunk_seconds,
            MOST_CHUNK_RATIO * min(config.max_poll_interval_seconds, config.shutdown_grace_seconds),
        )
        #: small chunks that are learnt from together
        self._pooled_units = np.zeros(CLASS_COUNT, dtype=np.int64)
        self._pooled_seconds = 0.0
        self._parent_seconds = PRIOR_PARENT_SECONDS_PER_MESSAGE
        self._parent_readings: deque[float] = deque(maxlen=PARENT_READINGS)
        self._window = Window()
        self._recent = (Window(), Window())
        self._published_window = Window()
        self._chunks_since_sample: Counter[int] = Counter()
        self._traced: Counter[int] = Counter()
        self._model_dirty = False
        # Above 1: the bytes of the last sizing were implausible, and are raised by it.
        self._bytes_factor = 1.0
        self._urgent = ""
        self._handler_seconds = 0.0
        self._cpu_seconds = 0.0
        self._finished_messages = 0
        self._exact_vertices = 0
        self._counted_vertices = 0
        self._last_seen_classes = np.zeros(CLASS_COUNT, dtype=bool)
        self._checked_at = 0.0
        #: the window of the last sizing
        self._sized_window = Window()
        self.first_record_at: float | None = None
        self.report: SizingReport | None = None
        self.published_at = 0.0
        self.sizings: Counter[str] = Counter()

    @property
    def sized(self) -> bool:
        """Whether a sizing was published."""
        return self.report is not None

    @property
    def ramp_holds(self) -> bool:
        """Whether the ramp holds a rate of the recent mix up."""
        present = (self._recent[0].load + self._recent[1].load)[CLASS_RECORDS] > 0
        held = self.seconds_rates.held_up() | self.bytes_rates.held_up()
        return bool((present & held).any())

    @property
    def _exact_ratio(self) -> float:
        return self._exact_vertices / self._counted_vertices if self._counted_vertices else 1.0

    # -- what arrives ------------------------------------------------------------------------

    def admitted(self, run: Run, now: float, now_wall: float) -> None:
        """Add a run that was just admitted to the sample."""
        if self.first_record_at is None:
            self.first_record_at = now
        newer = self._recent[1]
        if not newer.messages:
            newer.started_at = now
        newer.add(run, self._ledger.model, now_wall)
        if now - newer.started_at >= RECENT_SECONDS and newer.messages >= RECENT_RECORDS:
            self._window.add_window(self._recent[0])
            self._recent = (newer, Window())

    def _recent_window(self) -> Window:
        recent = Window()
        recent.add_window(self._recent[0])
        recent.add_window(self._recent[1])
        return recent

    def _whole_window(self) -> Window:
        whole = Window()
        for part in (self._window, *self._recent):
            whole.add_window(part)
        return whole

    def wants_sample(self, load: Load) -> tuple[bool, bool]:
        """Return whether to measure a chunk's working bytes, and to trace allocations as well."""
        units = load[CLASS_UNITS] * self.bytes_rates.estimate
        main = int(np.argmax(units))
        if int(load[PAYLOAD_BYTES]) < LEAST_SAMPLED_PAYLOAD_BYTES:
            return False, False
        self._chunks_since_sample[main] += 1
        few = self.bytes_rates.observations(main) < 2 * SAMPLE_EVERY_CHUNKS
        if not few and self._chunks_since_sample[main] < SAMPLE_EVERY_CHUNKS:
            return False, False
        if few and self._chunks_since_sample[main] < 2:
            return False, False
        self._chunks_since_sample[main] = 0
        trace = (
            self._traced[main] < TRACED_CHUNKS
            and self.seconds_rates.observations(main) >= 2
            and int(load[PAYLOAD_BYTES]) <= MOST_TRACED_PAYLOAD_BYTES
        )
        if trace:
            self._traced[main] += 1
        return True, trace

    def finished(self, chunk: InsideChunk, outcome: ChunkOutcome) -> None:
        """Learn from a finished chunk."""
        class_units = chunk.load[CLASS_UNITS]
        records = int(chunk.load[RECORDS])
        self._finished_messages += records
        self._exact_vertices += outcome.exact_vertices
        self._counted_vertices += int(chunk.load[VERTICES])
        if outcome.seconds is not None and outcome.seconds > 0:
            self._handler_seconds += outcome.seconds
            self._cpu_seconds += outcome.cpu_seconds
            self._learn_seconds(chunk, outcome.seconds)
        if outcome.working_bytes is not None and outcome.working_bytes > 0:
            self._learn_bytes(class_units, outcome.working_bytes)
        elif outcome.growth_bytes > 1.2 * chunk.predicted_bytes + (1 << 20):
            # The growth of an unsampled chunk is a lower bound: it can only raise a rate.
            self._learn_bytes(class_units, outcome.growth_bytes)

    def _learn_seconds(self, chunk: InsideChunk, seconds: float) -> None:
        class_units = chunk.load[CLASS_UNITS]
        by_class = class_units * self.seconds_rates.estimate
        predicted = float(by_class.sum())
        known = self.seconds_rates.observations(int(np.argmax(by_class))) >= LEAST_OBSERVATIONS
        if known and not chunk.heavy:
            self.call_cost.observe(seconds, predicted)
            self._ledger.chunk_seconds = self.call_cost.chunk_seconds
            if self.call_cost.hides(predicted):
                return
            seconds = self.call_cost.net(seconds, predicted)
        # The clock of a small chunk is mostly noise: they are looked at together.
        self._pooled_units = self._pooled_units + class_units
        self._pooled_seconds += seconds
        if known and self._pooled_seconds < POOL_RATIO * self._ledger.chunk_seconds:
            return
        if self.seconds_rates.observe(self._pooled_units, self._pooled_seconds):
            self._urgent = "prediction-failed"
        self._pooled_units = np.zeros_like(class_units)
        self._pooled_seconds = 0.0
        self._model_dirty = True

    def _learn_bytes(self, class_units: Load, working_bytes: int) -> None:
        if self.bytes_rates.observe(class_units, float(working_bytes)):
            self._urgent = "prediction-failed"
        self._model_dirty = True

    def parent_measured(self, messages: int, seconds: float) -> None:
        """Learn the parent's own cost of a record: the least of the last few readings.

        Every turn of its loop costs something as well, which a trickle of records makes look
        like a cost of each; what counts at the limit is the cost in full fetches.
        """
        if messages <= 0 or seconds < 0:
            return
        self._parent_readings.append(min(max(seconds / messages, 1e-7), 1e-2))
        self._parent_seconds = min(self._parent_readings)
        self._model_dirty = True

    # -- the model ---------------------------------------------------------------------------

    def refresh_model(self) -> None:
        """Put new rates in force when they differ enough to matter."""
        if not self._model_dirty:
            return
        self._model_dirty = False
        model = self._ledger.model
        working_bytes = self.bytes_rates.in_force * self._bytes_factor
        moved = max(
            _largest_step(model.seconds_per_unit, self.seconds_rates.in_force),
            _largest_step(model.working_bytes_per_unit, working_bytes),
            abs(self._parent_seconds / model.parent_seconds_per_message - 1.0) - 0.2,
        )
        if moved > MODEL_STEP_RATIO:
            self._ledger.use_model(
                CostModel(
                    self.seconds_rates.in_force.copy(),
                    working_bytes,
                    self._parent_seconds,
                )
            )

    # -- sizings -----------------------------------------------------------------------------

    def warmup_over(self, now: float) -> bool:
        """Whether the warm-up window is enough."""
        if self.first_record_at is None or not self._finished_messages:
            return False
        config = self._config
        if now - self.first_record_at >= WARMUP_PATIENCE * config.warmup_seconds:
            return True
        return (
            self._finished_messages >= config.warmup_messages
            and self._handler_seconds >= config.warmup_seconds
        )

    def due(self, limits: Limits, now: float, *, biased: bool) -> str:
        """Return why a sizing is due now; empty when none is.

        ``biased``: a partition is paused for its own reason, so what arrives is not the mix.
        """
        if not self.sized:
            return "warm-up" if self.warmup_over(now) else ""
        if now - self.published_at < LEAST_BETWEEN_SECONDS:
            return ""
        if self._urgent:
            return self._urgent
        if now - self._checked_at >= LEAST_BETWEEN_SECONDS / 2:
            self._checked_at = now
            recent = self._recent_window()
            if recent.messages and not biased:
                if self._new_class(recent):
                    return "new-class"
                if recent.messages >= min(RECENT_RECORDS, 50) and self._drifted(recent, limits):
                    return "mix-drift"
        if now - self.published_at >= self._config.remeasure_interval_seconds:
            return "interval" if self._whole_window().messages else ""
        return ""

    def _new_class(self, recent: Window) -> bool:
        model = self._ledger.model
        seconds = model.seconds_per_unit * recent.load[CLASS_UNITS]
        working = model.working_bytes_per_unit * recent.load[CLASS_UNITS]
        share = np.maximum(
            seconds / max(float(seconds.sum()), 1e-12), working / max(float(working.sum()), 1e-12)
        )
        return bool(((share >= NEW_CLASS_SHARE) & ~self._last_seen_classes).any())

    def _drifted(self, recent: Window, limits: Limits) -> bool:
        report = self.report
        if report is None:
            return False
        bounds = self.bounds(recent, limits)
        model = self._ledger.model
        error = np.hypot(recent.relative_error(model), self._sized_window.relative_error(model))
        return any(
            abs(new / max(old, 1) - 1.0) > DRIFT_RATIO + DRIFT_ERRORS * error
            for new, old in (
                (bounds.memory_vertices, report.memory_bound_vertices),
                (bounds.deadline_vertices, report.deadline_bound_vertices),
            )
        )

    def bounds(self, window: Window, limits: Limits) -> Bounds:
        """Return both bounds for a window's mix."""
        model = self._ledger.model
        heaviest = [
            (
                units * float(model.working_bytes_per_unit[c]),
                units * float(model.seconds_per_unit[c]),
            )
            for c, units in window.heaviest_units.items()
        ]
        return bounds_of_mix(
            window.load,
            model,
            Situation(
                processes=len(self._ledger.processes),
                memory_available_bytes=limits.memory_available_bytes,
                drain_deadline_seconds=limits.drain_deadline_seconds,
                chunk_seconds=self._ledger.chunk_seconds,
                chunk_bytes=self._config.chunk_bytes,
                keeps_bytes=tuple(p.keeps_bytes for p in self._ledger.processes),
            ),
            largest_chain_ratio=window.largest_chain_ratio(model),
            heaviest_working_bytes=max((b for b, _ in heaviest), default=0.0),
            heaviest_seconds=max((s for _, s in heaviest), default=0.0),
        )

    def publish(self, reason: str, limits: Limits, now: float, now_wall: float) -> SizingReport:
        """Compute a sizing, put it in force and begin a new window."""
        config = self._config
        urgent = reason not in {"warm-up", "interval"}
        window = self._recent_window() if urgent else self._whole_window()
        if not window.messages:
            window = self._whole_window()
        if not window.messages:
            # Nothing was admitted since the last sizing: its own window stands.
            window = self._published_window
        if self.report is None:
            self.seconds_rates.end_exemption()
            self.bytes_rates.end_exemption()
        measured = CostModel(self.seconds_rates.in_force, self.bytes_rates.in_force)
        self._bytes_factor = implausible_bytes_factor(
            measured, window.load, exact_ratio=self._exact_ratio
        )
        self._model_dirty = True
        self.refresh_model()
        model = self._ledger.model
        bounds = self.bounds(window, limits)
        fit = coefficients(
            model,
            window.load,
            self.seconds_rates.established(),
            (PRIOR_SECONDS_PER_MESSAGE, PRIOR_BYTES_PER_VERTEX),
        )
        messages = window.messages
        vertices = max(1, int(window.load[VERTICES]))
        seconds = model.seconds(window.load)
        bytes_in_all = model.held_bytes(window.load) + model.working_bytes(window.load)
        budget_vertices = bounds.budget_vertices
        budget_messages = bounds.budget_messages
        measured_bytes = measured.held_bytes(window.load) + measured.working_bytes(window.load)
        exact_vertices = max(1.0, vertices * self._exact_ratio)
        notes = self._notes(fit.separable, measured_bytes / exact_vertices, messages)
        if config.cap_vertices is not None and budget_vertices > config.cap_vertices:
            notes.append(f"the cap of {config.cap_vertices:,} vertices holds the budget down")
            budget_messages = max(1, budget_messages * config.cap_vertices // budget_vertices)
            budget_vertices = config.cap_vertices
        report = SizingReport(
            reason=reason,
            at=now_wall,
            vertex_budget=budget_vertices,
            message_budget=budget_messages,
            memory_bound_vertices=bounds.memory_vertices,
            deadline_bound_vertices=bounds.deadline_vertices,
            memory_bound_messages=bounds.memory_messages,
            deadline_bound_messages=bounds.deadline_messages,
            binding=bounds.binding,
            bytes_per_vertex=bytes_in_all / vertices,
            bytes_per_message=fit.bytes_per_message,
            seconds_per_vertex=fit.seconds_per_vertex,
            seconds_per_message=fit.seconds_per_message,
            vertices_per_second=bounds.effective_processes * vertices / max(seconds, 1e-12),
            parent_seconds_per_message=model.parent_seconds_per_message,
            memory_available_bytes=limits.memory_available_bytes,
            drain_deadline_seconds=limits.drain_deadline_seconds,
            deadline_source=limits.deadline_source,
            processes=len(self._ledger.processes),
            effective_processes=bounds.effective_processes,
            largest_chain_ratio=window.largest_chain_ratio(model),
            all_decoded_bound_vertices=bounds.all_decoded_vertices,
            sample=self._sample(window),
            notes=tuple(notes),
        )
        self.report = report
        self._published_window = window
        self.published_at = now
        self.sizings[reason] += 1
        self._urgent = ""
        self._sized_window = window
        self._last_seen_classes = (window.load[CLASS_RECORDS] > 0) | (
            self._last_seen_classes & self.seconds_rates.established()
        )
        if urgent or messages >= config.warmup_messages:
            self._window = Window(started_at=now)
            self._recent = (Window(), self._recent[1]) if urgent else (Window(), Window())
            self._handler_seconds = self._cpu_seconds = 0.0
            self._exact_vertices = self._counted_vertices = 0
        return report

    def _notes(self, separable: bool, bytes_per_vertex: float, messages: int) -> list[str]:
        notes = []
        if not separable:
            notes.append(
                "the sample is too uniform to tell the cost of a message from that of a vertex;"
                " the cost of a message stays at its prior"
            )
        if messages < self._config.warmup_messages:
            notes.append(
                f"thin sample: {messages:,} messages of {self._config.warmup_messages:,} wanted"
            )
        if self._bytes_factor > 1.0:
            least = LEAST_BYTES_PER_VERTEX_OF_TEXT
            notes.append(
                f"the measured {bytes_per_vertex:.1f} bytes per vertex are refused: under"
                f" {least:.0f} the text and its geometry cannot both be in them; {least:.0f} are"
                " charged; check how working bytes are measured"
            )
        if self.ramp_holds:
            notes.append("a rate that fell is still held up (ramp)")
        return notes

    def _sample(self, window: Window) -> Sample:
        load = window.load
        classes = tuple(
            ClassFigure(
                from_units=int(CLASS_EDGES_UNITS[c]),
                messages=int(load[CLASS_RECORDS][c]),
                units=int(load[CLASS_UNITS][c]),
                seconds_per_unit=float(self._ledger.model.seconds_per_unit[c]),
                seconds_spread_ratio=self.seconds_rates.spread_ratio(c),
                working_bytes_per_unit=float(self._ledger.model.working_bytes_per_unit[c]),
                observations=self.seconds_rates.observations(c),
            )
            for c in np.flatnonzero(load[CLASS_RECORDS]).tolist()
        )
        windows = tuple(
            SampleWindow(topic, number, first, last)
            for (topic, number), (first, last) in sorted(window.offsets.items())
        )
        return Sample(
            messages=window.messages,
            vertices=int(load[VERTICES]),
            payload_bytes=int(load[PAYLOAD_BYTES]),
            exact_ratio=self._exact_ratio,
            handler_seconds=self._handler_seconds,
            cpu_ratio=self._cpu_seconds / self._handler_seconds if self._handler_seconds else 1.0,
            first_at=window.first_wall,
            last_at=window.last_wall,
            windows=windows,
            classes=classes,
        )


def _largest_step(old: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(new / old - 1.0)))
