"""What finished chunks teach, and which of them are measured for bytes."""

from __future__ import annotations

import numpy as np
import pytest

from consumer.core.config import FlowConfig
from consumer.core.events import ChunkOutcome
from consumer.core.ledger.ledger import InsideChunk, Ledger
from consumer.core.measuring.learning import Learning
from sizing.load import Load
from sizing.model import PRIOR_PARENT_SECONDS_PER_MESSAGE
from tests.sizing.mixes import load_of

#: 1,000 pings of three units each, 64 kB; 100 parcels of 1,500 vertices, 100 kB
PINGS = load_of([1] * 1_000, [192] * 1_000)
PARCELS = load_of([1_500] * 100, [1_000] * 100)


class Course:
    """Chunks, one after another."""

    def __init__(self) -> None:
        self.ledger = Ledger(2, 0.06)
        self.learning = Learning(self.ledger, FlowConfig(2))

    def finish(
        self,
        load: Load = PINGS,
        seconds: float | None = 0.06,
        *,
        working_bytes: int | None = None,
        growth_bytes: int = 0,
        predicted_bytes: float = 1e6,
        heavy: bool = False,
    ) -> None:
        chunk = InsideChunk(1, [], load, 0.06, predicted_bytes, 0.0, 0.0, heavy)
        outcome = ChunkOutcome(seconds, 0.03, working_bytes, 0, 900, growth_bytes)
        self.learning.finished(chunk, outcome)

    def per_unit(self, size_class: int = 0) -> float:
        return float(self.learning.seconds_rates.estimate[size_class])


def test_a_sample_counts_seconds_and_vertices_until_the_next_begins() -> None:
    """900 of 1,000 counted vertices are real; of 60 ms the processor had 30."""
    course = Course()
    assert (course.learning.exact_ratio, course.learning.cpu_ratio) == (1.0, 1.0)
    course.finish()
    assert course.learning.exact_ratio == 0.9
    assert course.learning.cpu_ratio == 0.5
    assert course.learning.finished_messages == 1_000
    course.learning.begin_sample()
    assert (course.learning.exact_ratio, course.learning.cpu_ratio) == (1.0, 1.0)
    assert course.learning.finished_messages == 1_000


def test_a_rate_is_what_full_chunks_take() -> None:
    """60 ms for 3,000 units, four times: 20 us a unit."""
    course = Course()
    for _ in range(4):
        course.finish()
    assert course.per_unit() == pytest.approx(20e-6)
    assert not course.learning.failed


def test_a_traced_chunk_gives_no_seconds() -> None:
    """The tracer would be what is measured."""
    course = Course()
    course.finish(seconds=None)
    assert course.learning.handler_seconds == 0.0
    assert course.learning.seconds_rates.observations(0) == 0


def test_small_chunks_are_looked_at_together() -> None:
    """Once the class is known, a chunk of 3 ms waits for others until 18 ms are together."""
    course = Course()
    for _ in range(5):
        course.finish()
    known = course.learning.seconds_rates.observations(0)
    tenth = load_of([1] * 150, [192] * 150)
    # 9 ms each, as predicted: no call shows.
    course.finish(tenth, 0.009)
    assert course.learning.seconds_rates.observations(0) == known
    course.finish(tenth, 0.009)
    assert course.learning.seconds_rates.observations(0) == known + 1


def test_what_a_call_hides_is_not_learnt_from() -> None:
    """A trickle of one record a call, 20 ms each, says nothing of the record; chunks grow."""
    course = Course()
    for _ in range(5):
        course.finish()
    known = course.learning.seconds_rates.observations(0)
    for _ in range(10):
        course.finish(load_of([1], [192]), 0.040)
    assert course.learning.seconds_rates.observations(0) == known
    assert course.per_unit() == pytest.approx(20e-6)
    assert course.ledger.chunk_seconds == pytest.approx(3 * (0.040 - 3 * 20e-6), rel=1e-3)


def test_a_heavy_record_says_nothing_of_calls() -> None:
    """It travels alone, and what it costs is its own."""
    course = Course()
    for _ in range(5):
        course.finish(PARCELS, 1.5, heavy=True)
    assert course.ledger.chunk_seconds == 0.06


def test_peaks_are_learnt_from_samples_and_from_growth_that_exceeds_them() -> None:
    """A chunk that was not sampled proves only that it took at least what it grew by."""
    course = Course()
    rates = course.learning.bytes_rates
    course.finish(working_bytes=3_000_000)
    assert rates.observations(0) == 1
    # 1.2 times the predicted megabyte and one MiB: 2,248,576 are believed from there on.
    course.finish(growth_bytes=2_248_576)
    assert rates.observations(0) == 1
    course.finish(growth_bytes=2_248_577)
    assert rates.observations(0) == 2


def test_a_change_of_cost_is_a_prediction_that_failed() -> None:
    """Ten times slower, three chunks of four."""
    course = Course()
    for _ in range(8):
        course.finish()
    assert not course.learning.failed
    for _ in range(4):
        course.finish(seconds=0.6)
    assert course.learning.failed


def test_the_first_chunks_of_a_class_are_sampled_every_second_time() -> None:
    """And traced twice, once its seconds are known; later every eighth, and no more traces."""
    course = Course()
    learning = course.learning
    assert [learning.wants_sample(PINGS)[0] for _ in range(4)] == [False, True, False, True]
    for _ in range(3):
        course.finish(working_bytes=3_000_000)
    small = load_of([1] * 100, [192] * 100)
    traced = [learning.wants_sample(small) for _ in range(8)]
    assert traced == [(False, False), (True, True)] * 2 + [(False, False), (True, False)] * 2
    for _ in range(16):
        course.finish(working_bytes=3_000_000)
    wanted = [learning.wants_sample(PINGS)[0] for _ in range(16)]
    assert wanted.count(True) == 2
    assert wanted[7]
    assert wanted[15]


def test_a_chunk_of_little_text_is_not_sampled_and_of_much_not_traced() -> None:
    """Under 4 KiB the bytes mean nothing; over 256 KiB the tracer's tables outweigh them."""
    course = Course()
    for _ in range(3):
        course.finish(PARCELS, working_bytes=30_000_000)
    large = load_of([1_500] * 100, [3_000] * 100)
    assert [course.learning.wants_sample(large) for _ in range(2)] == [
        (False, False),
        (True, False),
    ]
    tiny = load_of([1] * 21, [192] * 21)
    assert [course.learning.wants_sample(tiny)[0] for _ in range(4)] == [False] * 4


def test_the_parents_cost_is_the_least_of_the_last_five_readings() -> None:
    """A loop that turns for nothing makes a record look dear; full fetches tell."""
    course = Course()
    model = course.learning.measured_model
    assert model().parent_seconds_per_message == PRIOR_PARENT_SECONDS_PER_MESSAGE
    course.learning.parent_measured(0, 1.0)
    course.learning.parent_measured(10, -1.0)
    assert model().parent_seconds_per_message == PRIOR_PARENT_SECONDS_PER_MESSAGE
    for micros in (9, 4, 8, 8, 8):
        course.learning.parent_measured(1_000, micros * 1e-3)
    assert model().parent_seconds_per_message == pytest.approx(4e-6)
    for _ in range(4):
        course.learning.parent_measured(1_000, 8e-3)
    assert model().parent_seconds_per_message == pytest.approx(8e-6)
    for seconds, expected in ((1e-9, 1e-7), (1e9, 1e-7)):
        course.learning.parent_measured(1_000, seconds)
        assert model().parent_seconds_per_message == pytest.approx(expected)


def test_a_model_changes_only_when_it_matters() -> None:
    """A rate that moved by 2 % values nothing anew; one that moved by 5 % does."""
    course = Course()
    for _ in range(6):
        course.finish()
    course.learning.refresh_model()
    first = course.ledger.model
    course.learning.refresh_model()
    for _ in range(20):
        course.finish(seconds=0.0612)
    course.learning.refresh_model()
    assert course.ledger.model is first
    for _ in range(20):
        course.finish(seconds=0.063)
    course.learning.refresh_model()
    assert course.ledger.model is not first
    assert course.ledger.model.seconds_per_unit[0] == pytest.approx(21e-6)


def test_raised_bytes_are_charged_at_once() -> None:
    """Twice the prior, from this moment on."""
    course = Course()
    course.learning.raise_bytes(2.0)
    assert np.allclose(course.ledger.model.working_bytes_per_unit, 800.0)
