"""Learning: what finished chunks teach about the cost of records, and the cost model in force.

Owns the rates of seconds and of working bytes, the cost of a call, the parent's own cost, and which
chunks are measured for bytes. The arithmetic of a rate is ``sizing.rates``; here is what each chunk
is taken for. Says when a prediction has failed; publishes nothing.

Rules: every record is handled once, for real; nothing is run for the measurement's sake. A chunk
that was traced gives bytes and no seconds. Chunks too small for the clock are looked at together.
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
from numpy.typing import NDArray

from consumer.core.config import FlowConfig
from consumer.core.events import ChunkOutcome
from consumer.core.ledger.ledger import InsideChunk, Ledger
from consumer.core.measuring.call_cost import CallCost
from sizing.classes import CLASS_COUNT
from sizing.load import CLASS_UNITS, PAYLOAD_BYTES, RECORDS, VERTICES, Load
from sizing.model import PRIOR_PARENT_SECONDS_PER_MESSAGE, CostModel
from sizing.rates import LEAST_OBSERVATIONS, Quantity, Rates

#: Readings of the parent's cost that are remembered.
PARENT_READINGS = 5
#: Most work of a chunk, of the shorter of poll interval and shutdown grace.
MOST_CHUNK_RATIO = 0.05
#: Chunks of known classes are learnt from when they hold this share of a chunk's seconds.
POOL_RATIO = 0.3
#: The model in force follows its rates when one of them is this far off.
MODEL_STEP_RATIO = 0.03
#: The parent's cost is a reading of one thread's clock: it moves the model only beyond this.
PARENT_NOISE_RATIO = 0.2
#: A chunk's working bytes are measured until its main class is known, then every so many chunks.
SAMPLE_EVERY_CHUNKS = 8
#: Chunks per class in which Python's allocation peak is traced as well.
TRACED_CHUNKS = 2
#: A chunk traced or sampled must carry this much for its bytes to mean anything.
LEAST_SAMPLED_PAYLOAD_BYTES = 4096
#: ... and no more than this to be traced: the tables of a trace are larger than what they count,
#: and the resident peak of a large chunk is exact enough.
MOST_TRACED_PAYLOAD_BYTES = 256 * 1024
#: Growth of a chunk that was not sampled is believed where it exceeds the prediction by this much.
GROWTH_RATIO = 1.2
GROWTH_MARGIN_BYTES = 1 << 20


class Learning:
    """Rates of one worker, and the model that they give."""

    def __init__(self, ledger: Ledger, config: FlowConfig) -> None:
        self._ledger = ledger
        self.seconds_rates = Rates(Quantity.SECONDS)
        self.bytes_rates = Rates(Quantity.BYTES)
        self._call_cost = CallCost(
            config.chunk_seconds,
            MOST_CHUNK_RATIO * min(config.max_poll_interval_seconds, config.shutdown_grace_seconds),
        )
        #: small chunks that are learnt from together
        self._pooled_units = np.zeros(CLASS_COUNT, dtype=np.int64)
        self._pooled_seconds = 0.0
        self._parent_seconds = PRIOR_PARENT_SECONDS_PER_MESSAGE
        self._parent_readings: deque[float] = deque(maxlen=PARENT_READINGS)
        self._chunks_since_sample: Counter[int] = Counter()
        self._traced: Counter[int] = Counter()
        self._dirty = False
        #: above 1: the bytes of the last sizing were implausible, and are raised by it
        self.bytes_factor = 1.0
        #: a prediction has failed since the last sizing
        self.failed = False
        self.finished_messages = 0
        #: of the sample so far
        self.handler_seconds = 0.0
        self.cpu_seconds = 0.0
        self._exact_vertices = 0
        self._counted_vertices = 0

    @property
    def exact_ratio(self) -> float:
        """Exact vertices of what was decoded in the sample so far, over counted ones."""
        return self._exact_vertices / self._counted_vertices if self._counted_vertices else 1.0

    @property
    def cpu_ratio(self) -> float:
        """Processor seconds over wall seconds of the handler in the sample so far."""
        return self.cpu_seconds / self.handler_seconds if self.handler_seconds else 1.0

    def held_up(self) -> NDArray[np.bool_]:
        """Return the classes of which the ramp holds a rate up."""
        return self.seconds_rates.held_up() | self.bytes_rates.held_up()

    def end_exemption(self) -> None:
        """Let the ramp apply from now on: the first sizing is published."""
        self.seconds_rates.end_exemption()
        self.bytes_rates.end_exemption()

    def begin_sample(self) -> None:
        """Begin to count a new sample."""
        self.handler_seconds = self.cpu_seconds = 0.0
        self._exact_vertices = self._counted_vertices = 0

    # -- chunks ------------------------------------------------------------------------------

    def wants_sample(self, load: Load) -> tuple[bool, bool]:
        """Return whether to measure a chunk's working bytes, and to trace allocations as well."""
        main = int(np.argmax(load[CLASS_UNITS] * self.bytes_rates.estimate))
        payload_bytes = int(load[PAYLOAD_BYTES])
        if payload_bytes < LEAST_SAMPLED_PAYLOAD_BYTES:
            return False, False
        self._chunks_since_sample[main] += 1
        few = self.bytes_rates.observations(main) < 2 * SAMPLE_EVERY_CHUNKS
        if self._chunks_since_sample[main] < (2 if few else SAMPLE_EVERY_CHUNKS):
            return False, False
        self._chunks_since_sample[main] = 0
        trace = (
            self._traced[main] < TRACED_CHUNKS
            and self.seconds_rates.observations(main) >= 2
            and payload_bytes <= MOST_TRACED_PAYLOAD_BYTES
        )
        self._traced[main] += trace
        return True, trace

    def finished(self, chunk: InsideChunk, outcome: ChunkOutcome) -> None:
        """Learn from a finished chunk."""
        class_units = chunk.load[CLASS_UNITS]
        self.finished_messages += int(chunk.load[RECORDS])
        self._exact_vertices += outcome.exact_vertices
        self._counted_vertices += int(chunk.load[VERTICES])
        if outcome.seconds is not None and outcome.seconds > 0:
            self.handler_seconds += outcome.seconds
            self.cpu_seconds += outcome.cpu_seconds
            self._learn_seconds(chunk, outcome.seconds)
        if outcome.working_bytes is not None and outcome.working_bytes > 0:
            self._learn_bytes(class_units, outcome.working_bytes)
        elif outcome.growth_bytes > GROWTH_RATIO * chunk.predicted_bytes + GROWTH_MARGIN_BYTES:
            # The growth of an unsampled chunk is a lower bound: it can only raise a rate.
            self._learn_bytes(class_units, outcome.growth_bytes)

    def _learn_seconds(self, chunk: InsideChunk, seconds: float) -> None:
        class_units = chunk.load[CLASS_UNITS]
        by_class = class_units * self.seconds_rates.estimate
        predicted = float(by_class.sum())
        known = self.seconds_rates.observations(int(np.argmax(by_class))) >= LEAST_OBSERVATIONS
        if known and not chunk.heavy:
            self._call_cost.observe(seconds, predicted)
            self._ledger.use_chunk_seconds(self._call_cost.chunk_seconds)
            if self._call_cost.hides(predicted):
                return
            seconds = self._call_cost.net(seconds, predicted)
        # The clock of a small chunk is mostly noise: they are looked at together.
        self._pooled_units = self._pooled_units + class_units
        self._pooled_seconds += seconds
        if known and self._pooled_seconds < POOL_RATIO * self._ledger.chunk_seconds:
            return
        self.failed |= self.seconds_rates.observe(self._pooled_units, self._pooled_seconds)
        self._pooled_units = np.zeros_like(class_units)
        self._pooled_seconds = 0.0
        self._dirty = True

    def _learn_bytes(self, class_units: Load, working_bytes: int) -> None:
        self.failed |= self.bytes_rates.observe(class_units, float(working_bytes))
        self._dirty = True

    def parent_measured(self, messages: int, seconds: float) -> None:
        """Learn the parent's own cost of a record: the least of the last few readings.

        Every turn of its loop costs something as well, which a trickle of records makes look
        like a cost of each; what counts at the limit is the cost in full fetches.
        """
        if messages <= 0 or seconds < 0:
            return
        self._parent_readings.append(min(max(seconds / messages, 1e-7), 1e-2))
        self._parent_seconds = min(self._parent_readings)
        self._dirty = True

    # -- the model ---------------------------------------------------------------------------

    def measured_model(self) -> CostModel:
        """Return the model of the rates as they are, plausible or not."""
        return CostModel(
            self.seconds_rates.in_force.copy(),
            self.bytes_rates.in_force.copy(),
            self._parent_seconds,
        )

    def raise_bytes(self, factor: float) -> None:
        """Raise working bytes by a factor from now on (1: they are plausible)."""
        self.bytes_factor = factor
        self._dirty = True
        self.refresh_model()

    def refresh_model(self) -> None:
        """Put new rates in force when they differ enough to matter."""
        if not self._dirty:
            return
        self._dirty = False
        model = self._ledger.model
        working_bytes = self.bytes_rates.in_force * self.bytes_factor
        moved = max(
            _largest_step(model.seconds_per_unit, self.seconds_rates.in_force),
            _largest_step(model.working_bytes_per_unit, working_bytes),
            abs(self._parent_seconds / model.parent_seconds_per_message - 1.0) - PARENT_NOISE_RATIO,
        )
        if moved > MODEL_STEP_RATIO:
            self._ledger.use_model(
                CostModel(self.seconds_rates.in_force.copy(), working_bytes, self._parent_seconds)
            )


def _largest_step(old: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(new / old - 1.0)))
