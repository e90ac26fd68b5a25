"""The table of limits: what refuses, what is shown, and a third bound that is one row."""

from __future__ import annotations

import io
import os
from dataclasses import fields, replace
from typing import Any

import pytest
from rich.console import Console

from consumer.core import commands as cmd
from consumer.core import events as ev
from consumer.core.config import FlowConfig, Mode
from consumer.core.flow import Flow
from consumer.core.limits import LIMITS, Kind, Limit, Limits, Standing, limits_table_markdown
from consumer.demo.account import Account
from consumer.demo.summary import summary
from consumer.demo.view import Scene, drawn
from consumer.demo.watch import Watch
from consumer.telemetry.explanations import explained
from consumer.telemetry.metrics import MetricsRegistry
from consumer.telemetry.page import page
from sizing.charge import Charge
from sizing.load import PAYLOAD_BYTES, RECORDS, VERTICES, Load, zero_load
from tests.core.building import SMALL_WARM_UP, MiB, run_of, sized
from tests.demo.test_view import feed as feed_of_the_demo

feed = feed_of_the_demo
CONFIG = FlowConfig(processes=2)


def load_of(records: int, vertices: int) -> Load:
    load = zero_load()
    load[RECORDS], load[VERTICES] = records, vertices
    return load


def charge(records: int = 100, vertices: int = 2_000, **changes: Any) -> Charge:
    """100 records of 20 vertices: 30 kB held beside 40 kB of room, 2 s of work in 2 processes."""
    load = load_of(records, vertices)
    whole = Charge(
        held=load,
        working=load,
        held_bytes=30_000.0,
        inside_bytes=10_000.0,
        room_bytes=40_000.0,
        seconds=2.0,
        longest_chain_seconds=0.4,
        effective_processes=2.0,
        parent_seconds_per_message=1e-3,
        chunk_seconds=0.05,
    )
    return replace(whole, **changes)


def standing(config: FlowConfig = CONFIG, *, sized: bool = True) -> Standing:
    return Standing(config, 15.0, "shutdown-grace", 100_000, sized)


# -- the rows ----------------------------------------------------------------------------------


def test_both_bounds_hold_once_there_is_a_size() -> None:
    """30 of 60 kB that may wait; 0.1 + 1 + 0.2 + 0.1 = 1.4 s of 15."""
    verdict = LIMITS.judge(charge(), standing())
    assert verdict.fits
    assert dict(verdict.ratios) == {"memory": 0.5, "deadline": pytest.approx(1.4 / 15.0)}


def test_the_first_row_that_is_over_its_limit_refuses() -> None:
    """Memory before the deadline, when both are over."""
    over = charge(held_bytes=60_001.0, seconds=40.0)
    assert LIMITS.judge(over, standing()).cause == "memory"
    late = charge(seconds=40.0)
    assert LIMITS.judge(late, standing()).cause == "deadline"


def test_the_small_first_budget_goes_with_the_first_sizing() -> None:
    """Until then it is eight chunks for two processes, and a tenth of the memory."""
    # 2 s are five times 0.4 s, 100 records 12.5 times eight: the smaller counts. 30 kB of 10.
    before = LIMITS.judge(charge(), standing(sized=False))
    assert before.cause == "initial"
    assert before.ratio("initial") == pytest.approx(5.0)
    light = LIMITS.judge(charge(seconds=0.2), standing(sized=False))
    assert light.ratio("initial") == pytest.approx(3.0)
    assert "initial" not in LIMITS.judge(charge(), standing()).ratios


def test_a_fixed_budget_replaces_the_deadline_and_not_the_memory() -> None:
    """2,000 vertices of 1,000; the deadline is shown and does not hold."""
    fixed = standing(FlowConfig(2, fixed_vertices=1_000), sized=False)
    verdict = LIMITS.judge(charge(seconds=400.0), fixed)
    assert verdict.ratios == {"memory": 0.5, "fixed": 2.0}
    assert verdict.cause == "fixed"
    assert LIMITS.bound_ratios(charge(seconds=400.0), fixed)["deadline"] > 10.0


def test_a_cap_holds_beside_the_bounds() -> None:
    """2,000 vertices of 4,000."""
    verdict = LIMITS.judge(charge(), standing(FlowConfig(2, cap_vertices=4_000)))
    assert verdict.ratio("cap") == 0.5
    assert set(verdict.ratios) == {"memory", "deadline", "cap"}


def test_shadow_mode_holds_memory_alone() -> None:
    """What the deadline would refuse is let in."""
    shadow = standing(FlowConfig(2, mode=Mode.SHADOW))
    assert LIMITS.judge(charge(seconds=400.0), shadow).fits


@pytest.mark.parametrize("row", list(LIMITS), ids=lambda row: row.name)
def test_every_row_has_its_words(row: Limit) -> None:
    """Each says what it means, what to do, and what it is called when it binds or refuses."""
    assert row.meaning
    assert row.advice
    assert row.when_full
    assert row.binds.endswith(" binds")
    assert f"| `{row.name}` | " in limits_table_markdown()


#: settings of the core that set something which is unset by default
OPTIONAL = [
    each.name
    for each in fields(FlowConfig)
    if each.default is None and each.name != "handler_timeout_seconds"
]


def with_set(*names: str) -> FlowConfig:
    thousands: dict[str, Any] = dict.fromkeys(names, 1_000)
    return replace(CONFIG, **thousands)


@pytest.mark.parametrize("row", LIMITS.bounds, ids=lambda row: row.name)
def test_a_bound_that_is_set_has_a_ratio_and_words(row: Limit) -> None:
    """Where everything that can be set is set; more records never count less."""
    at = standing(with_set(*OPTIONAL))
    less, more = charge(), charge(200, 4_000, held_bytes=59_000.0, seconds=4.0)
    less.held[PAYLOAD_BYTES], more.held[PAYLOAD_BYTES] = 30_000, 59_000
    small, large = row.used_ratio(less, at), row.used_ratio(more, at)
    assert small is not None
    assert large is not None
    assert 0.0 < small < large
    assert row.shown(at)
    assert row.subject
    assert row.formula


@pytest.mark.parametrize("name", OPTIONAL)
def test_one_setting_sets_one_limit(name: str) -> None:
    """And no other limit comes or goes with it, but for the deadline beside a fixed budget."""
    at = standing(with_set(name))
    before, after = (set(LIMITS.judge(charge(), where).ratios) for where in (standing(), at))
    assert len(after - before) == 1
    assert before - after <= {"deadline"}


def test_what_is_a_budget_in_itself_is_no_bound() -> None:
    """Three rows; every other amount is a bound, which sizings report."""
    assert [row.name for row in LIMITS if row.kind is Kind.SET] == ["fixed", "cap", "initial"]
    with pytest.raises(AssertionError, match="two limits of one name"):
        Limits((THIRD, THIRD))


def test_few_records_that_are_heavy_are_let_in_before_there_is_a_size() -> None:
    """2 s are five times the 0.4 s, but 16 records are only twice eight: as many may come."""
    heavy = LIMITS.judge(charge(16, 2_000, held_bytes=1_000.0), standing(sized=False))
    assert heavy.ratio("initial") == 2.0
    assert heavy.ratio("cap") == 0.0


# -- a third bound, by one row and one function --------------------------------------------------


def connections_ratio(charge: Charge, at: Standing) -> float | None:
    """A database that takes 40 records at a time; unset where the cap is."""
    return None if at.config.cap_vertices is not None else float(charge.held[RECORDS]) / 40.0


THIRD = Limit(
    name="database",
    kind=Kind.BOUND,
    subject="the database",
    when_full="the database has as many records as it takes",
    meaning="the database takes no more records at once",
    advice="give it more connections",
    used_ratio=connections_ratio,
    formula="records in flight / 40",
    shown=lambda at: f"40 records in {at.config.processes} processes",
)
WITH_A_THIRD = Limits((*LIMITS, THIRD))


def test_a_third_bound_binds_in_the_log_line_and_in_the_budget() -> None:
    """It is the smallest: 40 records of 20 vertices."""
    flow, said = sized(SMALL_WARM_UP, limits=WITH_A_THIRD)
    (published,) = (command for command in said if isinstance(command, cmd.Publish))
    report = published.report
    assert (report.binding, report.vertex_budget, report.message_budget) == ("database", 800, 40)
    line = report.line()
    assert "budget 800 vertices / 40 messages, the database binds (memory " in line
    assert ", database 800)" in line
    assert flow.snapshot().binding == "database"


def test_a_third_bound_refuses_at_the_door_and_says_so() -> None:
    """Of 100 records 40 are let in; the state, its cause and the limit are the third's."""
    flow, _ = sized(SMALL_WARM_UP, limits=WITH_A_THIRD)
    now = 100.0
    flow.step(ev.Fetched(now, (run_of(1_000_000, [20] * 100, payload_bytes=1_000),)))
    for _ in range(3):
        now += 0.1
        flow.step(ev.Tick(now))
    picture = flow.snapshot()
    assert picture.in_flight_messages == 40
    assert picture.used_ratio["database"] == 1.0
    assert picture.state == "backpressured"
    assert picture.state_cause.startswith(THIRD.when_full)
    assert picture.limited_by == "database"


def test_a_third_bound_is_a_label_of_the_metrics() -> None:
    """Bound, charge, ratio, the one that binds, and what limits."""
    flow, _ = sized(SMALL_WARM_UP, limits=WITH_A_THIRD)
    _, text = MetricsRegistry(flow.snapshot).expose("")
    for line in (
        'vertex_budget_bound_vertices{bound="database"} 800.0',
        'vertex_budget_bound_messages{bound="database"} 40.0',
        'vertex_budget_binding{bound="database"} 1.0',
        'vertex_budget_binding{bound="memory"} 0.0',
        'vertex_budget_used_ratio{bound="database"} 0.0',
        'vertex_budget_charged_vertices{bound="database"} 0.0',
        'vertex_budget_limited_by{cause="database"} 0.0',
    ):
        assert f"{line}\n" in text.decode()


def test_a_third_bound_is_in_the_budget_and_on_the_page() -> None:
    """With its words, its number under its name, and what to do about it."""
    flow, _ = sized(SMALL_WARM_UP, limits=WITH_A_THIRD)
    picture = flow.snapshot()
    said = explained(picture)
    assert said["binding"] == "database"
    assert said["figures"]["bound_vertices"]["value"]["database"] == 800
    assert said["sizing"]["database_bound_vertices"] == 800
    assert said["sizing"]["database_bound_messages"] == 40
    (limit,) = (limit for limit in said["limits"] if limit["name"] == "database")
    assert limit == {
        "name": "database",
        "kind": "bound",
        "limit": "40 records in 2 processes",
        "formula": "records in flight / 40",
        "when_binding": "the database binds",
        "meaning": "the database takes no more records at once",
        "what_to_do": "give it more connections",
    }
    assert "the database binds: give it more connections" in page(picture, ())


def test_a_third_bound_is_in_the_demonstration(feed) -> None:
    """The view has a row for it, and the summary names it and what helps."""
    flow, _ = sized(SMALL_WARM_UP, limits=WITH_A_THIRD)
    watch = Watch(1, os.getpid())
    watch._take(explained(flow.snapshot()))
    out = io.StringIO()
    console = Console(file=out, width=100)
    scene = Scene("http://127.0.0.1:1", 512 * MiB, real_kafka=False)
    console.print(drawn(scene, "traffic", watch, feed, 96))
    summary(console, scene, watch, Account(), worker_code=0, interrupted=False)
    text = out.getvalue()
    (row,) = (line for line in text.splitlines() if line.startswith("│ database bound"))
    assert "40 records in 2" in row
    assert "800" in row
    assert "◀ binds" in row
    assert "All the time the database binds. To let more in: give it more connections." in text


def test_a_bound_that_is_not_set_is_absent_and_not_zero() -> None:
    """Here a cap unsets the third: no label, no number and no row of it is left."""
    flow, _ = sized(replace(SMALL_WARM_UP, cap_vertices=10**9), limits=WITH_A_THIRD)
    picture = flow.snapshot()
    report = picture.sizing
    assert report is not None
    assert set(report.bound_vertices) == {"memory", "deadline"}
    assert "database" not in report.line()
    assert "database" not in picture.used_ratio
    _, text = MetricsRegistry(lambda: picture).expose("")
    assert "database" not in text.decode()
    said = explained(picture)
    assert "database_bound_vertices" not in said["sizing"]
    assert "database" not in [limit["name"] for limit in said["limits"]]


def test_before_the_first_sizing_no_bound_has_a_number() -> None:
    """A zero would be a measurement."""
    _, text = MetricsRegistry(Flow(CONFIG).snapshot).expose("")
    assert "vertex_budget_bound_vertices{" not in text.decode()
    assert 'vertex_budget_used_ratio{bound="memory"} 0.0' in text.decode()
