"""Metrics for Prometheus: one collector that reads a snapshot when it is scraped.

Owns the registry and the exposition formats; the names are ``consumer.telemetry.metrics_table``'s. Keeps
nothing: between two scrapes it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from consumer.core.snapshot import Snapshot
from consumer.telemetry.metrics_table import METRICS, Kind, MetricRow, Sample


class SnapshotCollector(Collector):
    """Reads the snapshot once a scrape, so that all values belong to one moment."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Name the families without reading a snapshot, which may not be there yet."""
        return [_family(row, ()) for row in METRICS]

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the table."""
        snapshot = self._snapshot()
        for row in METRICS:
            yield _family(row, row.read(snapshot))


def _family(row: MetricRow, samples: Iterable[Sample]) -> Metric:
    family = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
    metric = family(row.full_name, row.help, labels=row.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return metric


class _DistinctFamilies(Collector):
    """Everything of a registry, fit for OpenMetrics.

    There a counter's family is named without its ``_total``, so ``messages_total`` would share the
    family of the gauge ``messages``. Such a counter is shown as of unknown type: the names and
    values of its samples, which queries use, stay the same.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        families = list(self._registry.collect())
        others = {family.name for family in families if family.type != "counter"}
        for family in families:
            if family.type != "counter" or family.name not in others:
                yield family
                continue
            untyped = Metric(f"{family.name}_total", family.documentation, "unknown")
            untyped.samples = family.samples
            yield untyped


class MetricsRegistry(CollectorRegistry):
    """The worker's own registry: its table and its process, nothing global."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        super().__init__(auto_describe=True)
        self.register(SnapshotCollector(snapshot))
        ProcessCollector(registry=self)

    def expose(self, accept: str) -> tuple[str, bytes]:
        """Return content type and body of one scrape, in the format that ``accept`` asks for."""
        encode, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        return content_type, encode(_DistinctFamilies(self) if openmetrics else self)
