"""Metrics: the table, and what is scraped."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from consumer.core.limits import LIMITS, NONE
from consumer.core.snapshot import OUTCOMES
from consumer.core.status import STATE_NAMES
from consumer.telemetry.metrics import MetricsRegistry, SnapshotCollector
from consumer.telemetry.metrics_table import METRICS, Kind, metrics_table_markdown
from consumer.version import worker_version
from tests.snapshots import SNAPSHOT, snapshot

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def scraped(shown=SNAPSHOT, accept: str = "") -> dict[str, float]:
    """Return every sample of one scrape as ``name{label="value"}`` without the prefix."""
    content_type, body = MetricsRegistry(lambda: shown).expose(accept)
    parse = parse_openmetrics if "openmetrics" in content_type else parse_text
    found = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = sample.name.removeprefix("vertex_budget_") + (f"{{{labels}}}" if labels else "")
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def test_the_table_follows_the_conventions_of_prometheus():
    """Counters alone end in ``_total``, names are small words, every help is a sentence."""
    for row in METRICS:
        assert (row.kind is Kind.COUNTER) == row.name.endswith("_total"), row.name
        assert row.help.endswith("."), row.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name)


def test_every_row_is_scraped_and_nothing_else_has_the_prefix():
    """The collector and the table agree: all names with their labels, and no other."""
    families = SnapshotCollector(lambda: SNAPSHOT).collect()
    found = {sample.name: tuple(sample.labels) for family in families for sample in family.samples}
    assert found == {row.full_name: row.labels for row in METRICS}


def test_values_are_those_of_the_snapshot():
    """Each number arrives under its own name; the snapshot has a different one in each field."""
    found = scraped()
    expected = {
        "vertices": 2_000_000,
        "messages": 4000,
        'bound_vertices{bound="memory"}': 9_000_000,
        'bound_vertices{bound="deadline"}': 2_100_000,
        'bound_messages{bound="memory"}': 18_000,
        'bound_messages{bound="deadline"}': 4200,
        "in_flight_vertices": 1_950_000,
        "in_flight_messages": 3900,
        "in_flight_bytes": 48_000_000,
        'charged_vertices{bound="memory"}': 2_250_000,
        'charged_vertices{bound="deadline"}': 1_837_500,
        'used_ratio{bound="memory"}': 0.25,
        'used_ratio{bound="deadline"}': 0.875,
        "bytes_per_vertex": 140.5,
        "bytes_per_message": 3100,
        "seconds_per_vertex": 1.25e-6,
        "seconds_per_message": 2e-5,
        "vertices_per_second": 800_000,
        "memory_available_bytes": 1_500_000_000,
        "drain_deadline_seconds": 15,
        "drain_bound_seconds": 13.125,
        "predicted_drain_seconds": 11.5,
        'partitions{condition="assigned"}': 2,
        'partitions{condition="paused"}': 1,
        "pauses_total": 6,
        "resumes_total": 5,
        "paused_seconds_total": 42.25,
        'messages_total{outcome="done"}': 120_000,
        "vertices_total": 61_000_000,
        'dead_letters_total{reason="malformed-json"}': 2,
        'sizings_total{reason="warm-up"}': 1,
        'sizings_total{reason="interval"}': 3,
        "last_sizing_timestamp_seconds": 1_700_000_100,
        "sample_messages": 2000,
        "sample_vertices": 1_000_000,
        "lag_seconds": 1.5,
        "handler_processes": 3,
        "pool_peak_ratio": 0.62,
        f'build_info{{version="{worker_version()}"}}': 1,
    }
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "label", "values", "chosen"),
    [
        ("binding", "bound", ("memory", "deadline"), "deadline"),
        ("limited_by", "cause", (NONE, *LIMITS.names), "deadline"),
        ("state", "state", STATE_NAMES, "backpressured"),
        ("deadline_source", "source", ("max.poll.interval", "shutdown-grace"), "shutdown-grace"),
    ],
)
def test_a_choice_lists_every_value_and_marks_one(name, label, values, chosen):
    """A query for a state finds a 0 where it is not so, not a gap."""
    found = scraped()
    shown = {value: found[f'{name}{{{label}="{value}"}}'] for value in values}
    assert shown == {value: float(value == chosen) for value in values}


def test_counters_of_fixed_labels_start_at_zero():
    """The first increase of a counter is seen only if a 0 was scraped before it."""
    found = scraped()
    assert {o: found[f'messages_total{{outcome="{o}"}}'] for o in OUTCOMES}["skipped"] == 0
    assert {s: found[f'state_seconds_total{{state="{s}"}}'] for s in STATE_NAMES}["draining"] == 0


def test_lag_is_told_of_assigned_partitions_alone():
    """A partition that went has another owner; its last lag must not stay behind."""
    lags = {name: value for name, value in scraped().items() if name.startswith("lag_messages")}
    assert lags == {
        'lag_messages{partition="0",topic="parcels"}': 300,
        'lag_messages{partition="1",topic="parcels"}': 41,
    }
    gone = scraped(snapshot(assigned=(), paused=()))
    assert not [name for name in gone if name.startswith("lag_messages")]


def test_what_needs_a_sizing_is_absent_before_the_first():
    """A zero would read as a measurement; the families are still described."""
    unsized = snapshot(sizing=None, last_sizing_at=0.0)
    found = scraped(unsized)
    assert "bytes_per_vertex" not in found
    assert "sample_messages" not in found
    assert found["last_sizing_timestamp_seconds"] == 0
    _, body = MetricsRegistry(lambda: unsized).expose("")
    assert b"# TYPE vertex_budget_bytes_per_vertex gauge" in body


@pytest.mark.parametrize("accept", ["", "text/plain", "*/*", "nonsense;;=,"])
def test_the_plain_format_is_the_answer_unless_another_is_asked_for(accept):
    """Prometheus' text format, with the kind of each metric."""
    content_type, body = MetricsRegistry(lambda: SNAPSHOT).expose(accept)
    assert content_type.startswith("text/plain; version=0.0.4")
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", body.decode(), re.MULTILINE))
    assert {row.full_name: row.kind.value for row in METRICS}.items() <= kinds.items()


def test_openmetrics_has_the_same_samples():
    """A strict parser reads it, though ``messages`` and ``messages_total`` would share a family."""
    content_type, body = MetricsRegistry(lambda: SNAPSHOT).expose(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    process_values = re.compile(r"process_")
    plain, strict = scraped(), scraped(accept=OPENMETRICS)
    for names in (plain, strict):
        for name in [name for name in names if process_values.match(name)]:
            del names[name]
    assert strict == plain


def test_the_openmetrics_family_names_would_clash_otherwise():
    """Why some counters are of unknown type there: the client library's own output is refused."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: SNAPSHOT))
    body = openmetrics.exposition.generate_latest(registry).decode()
    with pytest.raises(ValueError, match="Clashing name"):
        list(parse_openmetrics(body))


def test_a_scrape_reads_one_snapshot():
    """All values of a scrape belong to one moment, and none is read before the first scrape."""
    reads = []

    def read():
        reads.append(1)
        return SNAPSHOT

    registry = MetricsRegistry(read)
    assert reads == []
    registry.expose("")
    assert len(reads) == 1


def test_the_process_itself_is_measured_in_the_same_registry():
    """Memory and processor seconds of the parent, under the usual names."""
    found = scraped()
    assert found["process_resident_memory_bytes"] > 1_000_000


def test_the_table_as_markdown_has_a_line_for_each_row():
    """What the documentation shows is made from the table."""
    lines = metrics_table_markdown().splitlines()
    assert len(lines) == 2 + len(METRICS)
    assert lines[4] == (
        "| `vertex_budget_bound_vertices` | gauge | `bound` |"
        " Most vertices of the sample's mix that each bound lets in. |"
    )
