"""``/metrics``: what the collector knows about itself and about the jobs in memory.

A custom collector reads the present state at every scrape, so that nothing has to be kept in
step. Names are those of ``paceline.metrics``. Ranks have own series up to a cap; beyond it the
costliest ranks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from paceline import metrics
from paceline.metrics import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Json = dict[str, Any]
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSample:
    """One job, its latest attempt in memory."""

    job: str
    state: str
    report: Json
    ranks_seen: int
    last_step: int
    open_findings: tuple[Json, ...]
    step_bounds_s: tuple[float, ...]
    step_buckets: tuple[int, ...]
    """Counts per bucket, one more than bounds."""
    step_sum_s: float
    pending_s: Mapping[int, float] = field(default_factory=dict)
    """By rank that was heard of: age of the oldest collective that it is in, 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramSample:
    """A histogram without labels: counts per bucket, one more than bounds."""

    bounds: tuple[float, ...]
    buckets: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Everything that one scrape shows."""

    jobs: tuple[JobSample, ...] = ()
    values: Mapping[Metric, float] = field(default_factory=dict)
    """Metrics without labels."""
    labelled: Mapping[Metric, Mapping[Labels, float]] = field(default_factory=dict)
    histograms: Mapping[Metric, HistogramSample] = field(default_factory=dict)


class PacelineCollector(Collector):
    """Makes metric families of a sample taken at the scrape."""

    def __init__(self, sample: Callable[[], Sample], rank_series: int) -> None:
        self._sample = sample
        self._rank_series = rank_series

    def describe(self) -> Iterable[Family]:
        """Return nothing: names come with the first scrape."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield every family of ``paceline.metrics``, in its order."""
        sample = self._sample()
        rows = _job_rows(sample.jobs, self._rank_series)
        for metric in metrics.ALL:
            if metric is metrics.STEP_SECONDS:
                yield _step_histogram(sample.jobs)
                continue
            if metric.kind == "histogram":
                yield _histogram(metric, sample.histograms.get(metric))
                continue
            family = _family(metric)
            if metric in sample.values:
                family.add_metric([], sample.values[metric])
            labelled = sample.labelled.get(metric) or rows.get(metric) or {}
            for labels, value in labelled.items():
                family.add_metric(list(labels), value)
            yield family


def render(sample: Callable[[], Sample], rank_series: int) -> bytes:
    """Return the text of one scrape."""
    registry = CollectorRegistry()
    registry.register(PacelineCollector(sample, rank_series))
    return generate_latest(registry)


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=list(metric.labels))


def _step_histogram(jobs: Iterable[JobSample]) -> HistogramMetricFamily:
    metric = metrics.STEP_SECONDS
    family = HistogramMetricFamily(metric.name, metric.help, labels=list(metric.labels))
    for job in jobs:
        if not job.step_buckets:
            continue
        buckets = _cumulative(job.step_bounds_s, job.step_buckets)
        family.add_metric([job.job], buckets=buckets, sum_value=job.step_sum_s)
    return family


def _histogram(metric: Metric, sample: HistogramSample | None) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help)
    if sample is not None:
        buckets = _cumulative(sample.bounds, sample.buckets)
        family.add_metric([], buckets=buckets, sum_value=sample.total)
    return family


def _cumulative(bounds: tuple[float, ...], counts: tuple[int, ...]) -> list[tuple[str, float]]:
    buckets = []
    total = 0
    for bound, count in zip([*map(repr, bounds), "+Inf"], counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _job_rows(jobs: Iterable[JobSample], rank_series: int) -> dict[Metric, dict[Labels, float]]:
    rows: dict[Metric, dict[Labels, float]] = {metric: {} for metric in metrics.ALL}
    for job in jobs:
        rows[metrics.JOB_RANKS][job.job, job.state] = job.ranks_seen
        rows[metrics.JOB_LAST_STEP][(job.job,)] = job.last_step
        for metric, key in _JOB_RATIOS:
            if job.report.get(key) is not None:
                rows[metric][(job.job,)] = float(job.report[key])
        ranks = job.report["ranks"]
        arrivals = sum(row["last_arriver"] for row in ranks)
        for row in _costliest(ranks, rank_series):
            labels = (job.job, str(row["rank"]))
            for metric, key in _RANK_TIMES:
                rows[metric][labels] = row[key] / 1e9
            if arrivals:
                rows[metrics.RANK_LATENESS_RATIO][labels] = row["last_arriver"] / arrivals
        oldest = sorted(job.pending_s.items(), key=lambda item: (-item[1], item[0]))
        for rank, age_s in oldest[:rank_series]:
            rows[metrics.INFLIGHT_AGE_SECONDS][job.job, str(rank)] = age_s
        for finding in job.open_findings:
            for rank in finding["ranks"]:
                flagged = (job.job, str(rank), finding["kind"], finding["cause"])
                rows[metrics.RANK_FLAGGED][flagged] = 1.0
    return rows


def _costliest(ranks: list[Json], count: int) -> list[Json]:
    if len(ranks) <= count:
        return ranks
    return sorted(ranks, key=lambda row: (-row["blamed_wait_ns"], row["rank"]))[:count]


_JOB_RATIOS = (
    (metrics.JOB_SLOWDOWN_RATIO, "slowdown"),
    (metrics.JOB_IDLE_RATIO, "idle_ratio"),
    (metrics.JOB_GAMMA_RATIO, "gamma"),
)
_RANK_TIMES = (
    (metrics.RANK_SELF_SECONDS, "self_ns"),
    (metrics.RANK_WAIT_SECONDS, "wait_ns"),
    (metrics.RANK_CAUSED_WAIT_SECONDS, "caused_wait_ns"),
    (metrics.RANK_WASTED_GPU_SECONDS, "blamed_wait_ns"),
)
