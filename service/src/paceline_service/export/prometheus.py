"""``/metrics``: rows of the catalogue as metric families (docs/metrics.md).

A custom collector reads the present state at every scrape, so that nothing has to be kept in
step. Names are those of ``paceline.metrics``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from paceline import metrics
from paceline.dataclass import dataclass
from paceline.metrics import Metric
from paceline_service.export.exposition import expose
from paceline_service.export.rows import HistogramRow, Labels, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Everything that one scrape shows."""

    jobs: Rows = field(default_factory=Rows)
    values: Mapping[Metric, float] = field(default_factory=dict)
    """Metrics without labels."""
    labelled: Mapping[Metric, Mapping[Labels, float]] = field(default_factory=dict)
    histograms: Mapping[Metric, HistogramRow] = field(default_factory=dict)
    """Histograms without labels."""


class PacelineCollector(Collector):
    """Makes metric families of a sample taken at the scrape."""

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample

    def describe(self) -> Iterable[Family]:
        """Return nothing: names come with the first scrape."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield every family of ``paceline.metrics``, in its order."""
        sample = self._sample()
        for metric in metrics.ALL:
            if metric.kind == "histogram":
                yield _histogram(metric, sample)
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=list(metric.labels))
            if metric in sample.values:
                family.add_metric([], sample.values[metric])
            for rows in (sample.labelled.get(metric), sample.jobs.values.get(metric)):
                for labels, value in (rows or {}).items():
                    family.add_metric(labels, value)
            yield family


def render(sample: Callable[[], Sample], form: str) -> bytes:
    """Return the text of one scrape in a format of ``exposition``."""
    return expose(PacelineCollector(sample).collect(), form)


def _histogram(metric: Metric, sample: Sample) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=list(metric.labels))
    rows = dict(sample.jobs.histograms.get(metric) or {})
    if metric in sample.histograms:
        rows[()] = sample.histograms[metric]
    for labels, row in rows.items():
        names = [*map(repr, row.bounds), "+Inf"]
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        for number, (bound, count) in enumerate(zip(names, row.cumulative, strict=True)):
            one = row.examples.get(number)
            if one is None:
                buckets.append((bound, float(count)))
            else:
                example = Exemplar(dict(one.labels), one.value, one.time_s)
                buckets.append((bound, float(count), example))
        family.add_metric(labels, buckets=buckets, sum_value=row.total)
    return family
