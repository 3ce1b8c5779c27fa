"""Pieces of PromQL over the catalogue of metrics."""

from __future__ import annotations

from paceline.metrics import Metric

WINDOW = "$__rate_interval"
RANGE = "$__range"
ALL_JOBS = 'job=~"$job"'
IN_JOB = 'job="$job"'
OF_RANKS = 'job="$job",rank=~"$rank"'
OF_NODES = 'job="$job",node=~"$node"'


def series(metric: Metric, *matchers: str, suffix: str = "") -> str:
    """Return the selector of a metric; ``suffix`` is ``_bucket`` and the like."""
    chosen = f"{{{','.join(matchers)}}}" if matchers else ""
    return f"{metric.name}{suffix}{chosen}"


def rate(metric: Metric, *matchers: str, suffix: str = "") -> str:
    """Return the growth of a counter in a second."""
    return f"rate({series(metric, *matchers, suffix=suffix)}[{WINDOW}])"


def grown(metric: Metric, *matchers: str, window: str = RANGE, suffix: str = "") -> str:
    """Return the growth of a counter over the time shown, or a window."""
    return f"increase({series(metric, *matchers, suffix=suffix)}[{window}])"


def total(expr: str, *labels: str) -> str:
    """Return the sum, by ``labels``."""
    return f"sum{_by(labels)} ({expr})"


def largest(expr: str, *labels: str) -> str:
    """Return the maximum, by ``labels``: one series where two collectors tell of one job."""
    return f"max{_by(labels)} ({expr})"


def top(count: int, expr: str) -> str:
    """Return the ``count`` largest series."""
    return f"topk({count}, {expr})"


def median(expr: str, *labels: str) -> str:
    """Return the median, by ``labels``."""
    return f"quantile{_by(labels)} (0.5, {expr})"


def quantile(share: float, metric: Metric, *matchers: str, by: tuple[str, ...] = ()) -> str:
    """Return a quantile of a histogram."""
    buckets = total(rate(metric, *matchers, suffix="_bucket"), "le", *by)
    return f"histogram_quantile({share}, {buckets})"


def or_zero(expr: str) -> str:
    """Return ``expr``, or 0 where it has no series."""
    return f"{expr} or vector(0)"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
