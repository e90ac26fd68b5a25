"""Measuring: when a sizing is published, and on which records.

Owns warm-up and the re-measuring schedule. What chunks teach is ``learning``, which records count
is ``sampling``, and what a sizing says is ``sizing``.

Rules: the warm-up window is enough with records and handler seconds enough, or when ten times the
seconds have passed. Afterwards a sizing is published every interval, and at once when the mix
drifts, a class never seen appears, a prediction fails or the memory moves.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from consumer.core.config import FlowConfig
from consumer.core.events import ChunkOutcome
from consumer.core.ledger.in_flight import Run
from consumer.core.ledger.ledger import InsideChunk, Ledger
from consumer.core.limits import Limits, Standing
from consumer.core.measuring.learning import Learning
from consumer.core.measuring.reporting import find_bounds, size
from consumer.core.measuring.sampling import RECENT_RECORDS, Sampling
from consumer.core.measuring.window import Window
from consumer.core.reasons import SizingReason
from sizing.classes import CLASS_COUNT
from sizing.load import CLASS_RECORDS, CLASS_UNITS
from sizing.model import implausible_bytes_factor
from sizing.report import SizingReport

#: A warm-up that lacks records or seconds ends after this many times its seconds.
WARMUP_PATIENCE = 10.0
#: A bound of the recent mix this far from the published one is a drift.
DRIFT_RATIO = 0.2
#: ... beyond so many standard errors of the two means,
DRIFT_ERRORS = 2.0
#: ... of at least so many records.
DRIFT_RECORDS = min(RECENT_RECORDS, 50)
#: At-once sizings are published no more often than this.
LEAST_BETWEEN_SECONDS = 1.0
#: The mix is looked at this often.
CHECK_SECONDS = LEAST_BETWEEN_SECONDS / 2
#: A class below this share of the predicted work is not news when it appears.
NEW_CLASS_SHARE = 0.05
#: Available memory that moved by this much is a new sizing.
MEMORY_STEP_RATIO = 0.1
#: What comes when it is due, of everything since the last; any other sizing is of the recent mix.
_BY_THE_CLOCK = (SizingReason.WARM_UP, SizingReason.INTERVAL)


class Measuring:
    """Sizings of one worker."""

    def __init__(
        self, ledger: Ledger, limits: Limits, standing: Standing, config: FlowConfig
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._standing = standing
        self._config = config
        self.learning = Learning(ledger, config)
        self._sampling = Sampling()
        #: size classes of the last sample, and of earlier ones while they are known
        self._seen_classes = np.zeros(CLASS_COUNT, dtype=bool)
        self._checked_at = 0.0
        self._first_record_at: float | None = None
        self._published_at = 0.0
        #: the last sizing
        self.report: SizingReport | None = None
        self.sizings: Counter[str] = Counter()

    @property
    def ramp_holds(self) -> bool:
        """Whether the ramp holds a rate of the recent mix up."""
        return self._sampling.recent().holds_any_of(self.learning.held_up())

    def admitted(self, run: Run, now: float, now_wall: float) -> None:
        """Add a run that was just admitted to the sample."""
        if self._first_record_at is None:
            self._first_record_at = now
        self._sampling.admitted(run, self._ledger.model, now, now_wall)

    def finished(self, chunk: InsideChunk, outcome: ChunkOutcome) -> None:
        """Learn from a finished chunk."""
        self.learning.finished(chunk, outcome)

    # -- when --------------------------------------------------------------------------------

    def due(self, now: float, *, biased: bool) -> SizingReason | None:
        """Return why a sizing is due now; None when none is.

        ``biased``: a partition is paused for its own reason, so what arrives is not the mix.
        """
        if self.report is None:
            return SizingReason.WARM_UP if self._warmup_over(now) else None
        if now - self._published_at < LEAST_BETWEEN_SECONDS:
            return None
        return self._due_again(self.report, now, biased=biased) or self._memory_moved(self.report)

    def _warmup_over(self, now: float) -> bool:
        """Whether the warm-up window is enough."""
        learning, config = self.learning, self._config
        if self._first_record_at is None or not learning.finished_messages:
            return False
        if now - self._first_record_at >= WARMUP_PATIENCE * config.warmup_seconds:
            return True
        return (
            learning.finished_messages >= config.warmup_messages
            and learning.handler_seconds >= config.warmup_seconds
        )

    def _due_again(self, report: SizingReport, now: float, *, biased: bool) -> SizingReason | None:
        if self.learning.failed:
            return SizingReason.PREDICTION_FAILED
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            recent = self._sampling.recent()
            if recent.messages and not biased:
                if self._new_class(recent):
                    return SizingReason.NEW_CLASS
                if recent.messages >= DRIFT_RECORDS and self._drifted(recent, report):
                    return SizingReason.MIX_DRIFT
        since = now - self._published_at
        if since >= self._config.remeasure_interval_seconds and self._sampling.whole().messages:
            return SizingReason.INTERVAL
        return None

    def _memory_moved(self, report: SizingReport) -> SizingReason | None:
        available = self._standing.memory_available_bytes
        moved = abs(available / max(1, report.memory_available_bytes) - 1.0)
        return SizingReason.MEMORY_LIMIT if moved > MEMORY_STEP_RATIO else None

    def _new_class(self, recent: Window) -> bool:
        model, units = self._ledger.model, recent.load[CLASS_UNITS]
        seconds = model.seconds_per_unit * units
        working = model.working_bytes_per_unit * units
        share = np.maximum(
            seconds / max(float(seconds.sum()), 1e-12), working / max(float(working.sum()), 1e-12)
        )
        return bool(((share >= NEW_CLASS_SHARE) & ~self._seen_classes).any())

    def _drifted(self, recent: Window, report: SizingReport) -> bool:
        bounds = find_bounds(recent, self._ledger, self._limits, self._standing)
        model = self._ledger.model
        error = np.hypot(recent.relative_error(model), self._sampling.sized.relative_error(model))
        published = report.bound_vertices
        return any(
            abs(vertices / max(published.get(name, vertices), 1) - 1.0)
            > DRIFT_RATIO + DRIFT_ERRORS * error
            for name, vertices in bounds.vertices.items()
        )

    # -- what --------------------------------------------------------------------------------

    def publish(self, reason: SizingReason, now: float, now_wall: float) -> SizingReport:
        """Compute a sizing, put it in force and begin a new window."""
        urgent = reason not in _BY_THE_CLOCK
        window = self._sampling.to_size(only_recent=urgent)
        learning = self.learning
        if self.report is None:
            learning.end_exemption()
        measured = learning.measured_model()
        learning.raise_bytes(
            implausible_bytes_factor(measured, window.load, exact_ratio=learning.exact_ratio)
        )
        report = size(
            window,
            reason=reason,
            learning=learning,
            measured=measured,
            ledger=self._ledger,
            limits=self._limits,
            standing=self._standing,
            now_wall=now_wall,
        )
        self.report = report
        self.sizings[reason.value] += 1
        self._standing.sized = True
        self._published_at = now
        self._sampling.sized = window
        self._seen_classes = (window.load[CLASS_RECORDS] > 0) | (
            self._seen_classes & learning.seconds_rates.established()
        )
        learning.failed = False
        if urgent or window.messages >= self._config.warmup_messages:
            self._sampling.begin(keep_newest=urgent)
            learning.begin_sample()
        return report
