"""What a sizing makes of figures that cannot be true."""

from __future__ import annotations

import pytest

from consumer.core.config import FlowConfig
from consumer.core.ledger.ledger import Ledger
from consumer.core.limits import LIMITS, Standing
from consumer.core.measuring.schedule import Measuring
from consumer.core.reasons import SizingReason
from sizing.load import CLASS_UNITS, Load
from sizing.report import SizingReport
from tests.sizing.mixes import load_of

CONFIG = FlowConfig(2)
#: coastlines of 10,000 vertices in 20 bytes of text each: 20.02 bytes are held per vertex
COASTLINES = load_of([10_000] * 50, [200_000] * 50)


def sized(bytes_per_vertex: float, mix: Load = COASTLINES) -> tuple[Measuring, SizingReport]:
    """Publish a sizing of a mix that was measured at so many working bytes a vertex."""
    standing = Standing(CONFIG, 15.0, "shutdown-grace", 500_000_000)
    measuring = Measuring(Ledger(2, 0.06), LIMITS, standing, CONFIG)
    learning = measuring.learning
    units = mix[CLASS_UNITS]
    for _ in range(10):
        learning.seconds_rates.observe(units, 1e-6 * float(units.sum()))
        learning.bytes_rates.observe(units, bytes_per_vertex * float(units.sum()))
    sample(measuring, mix)
    return measuring, measuring.publish(SizingReason.WARM_UP, 10.0, 1_000.0)


def sample(measuring: Measuring, mix: Load) -> None:
    """Have the next sizing be of a mix."""
    older = measuring._sampling._older
    older.load = mix
    older.heaviest_units = {6: 10_000}


def test_implausible_bytes_are_refused_with_the_reason() -> None:
    """Under 40 bytes a vertex, 40 are charged, and the report says what was measured."""
    measuring, report = sized(4.0)
    assert report.bytes_per_vertex == pytest.approx(40.0)
    note = next(note for note in report.notes if "refused" in note)
    # 4 worked in and 20 + 200 / 10,000 held.
    assert "24.0 bytes per vertex" in note
    assert "40 are charged" in note
    model = measuring._ledger.model
    assert model.working_bytes(COASTLINES) + model.held_bytes(COASTLINES) == pytest.approx(
        40.0 * 500_000
    )


def test_a_refusal_lasts_until_a_sizing_is_plausible() -> None:
    """What is learned meanwhile is raised as well; a plausible figure is charged as it is."""
    measuring, report = sized(4.0)
    units = COASTLINES[CLASS_UNITS]
    for _ in range(20):
        measuring.learning.bytes_rates.observe(units, 5.0 * float(units.sum()))
    measuring.learning._dirty = True
    measuring.learning.refresh_model()
    assert measuring._ledger.model.working_bytes(COASTLINES) > 5.0 * 500_000
    for _ in range(20):
        measuring.learning.bytes_rates.observe(units, 90.0 * float(units.sum()))
    sample(measuring, COASTLINES)
    later = measuring.publish(SizingReason.INTERVAL, 80.0, 1_070.0)
    assert not [note for note in later.notes if "refused" in note]
    assert later.bytes_per_vertex == pytest.approx(90.0 + 20.02)
    assert report.bound_vertices["memory"] > later.bound_vertices["memory"]


def test_plausible_bytes_are_charged_as_measured() -> None:
    """64 bytes a vertex beside 20 of text need no comment."""
    _, report = sized(64.0)
    assert report.bytes_per_vertex == pytest.approx(84.02)
    assert not [note for note in report.notes if "refused" in note]


def test_the_sample_counts_units_of_each_class() -> None:
    """50 records of 10,000 units are in the class from 4,096 on."""
    _, report = sized(64.0)
    (figure,) = report.sample.classes
    assert (figure.from_units, figure.messages, figure.units) == (4_096, 50, 500_000)
    assert figure.working_bytes_per_unit == pytest.approx(64.0)
