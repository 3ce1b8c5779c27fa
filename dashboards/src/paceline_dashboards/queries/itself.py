"""Queries of the dashboard *Paceline itself*."""

from __future__ import annotations

from paceline import metrics as m
from paceline.metrics import Metric
from paceline_dashboards.promql import WINDOW, grown, largest, quantile, rate, series, total


def growth(counter: Metric, *labels: str) -> str:
    """Return the growth of a counter in a second, over all collectors."""
    return total(rate(counter), *labels)


def now(gauge: Metric, *labels: str) -> str:
    """Return a gauge, summed over all collectors."""
    return total(series(gauge), *labels)


def worst(gauge: Metric, *labels: str) -> str:
    """Return the largest of a gauge over all collectors."""
    return largest(series(gauge), *labels)


def each(sum_counter: Metric, count_counter: Metric) -> str:
    """Return what one counter grows for each one of another."""
    return f"{growth(sum_counter)} / {growth(count_counter)}"


DROPPED_SHOWN = f"{total(grown(m.DROPPED))} or vector(0)"
DROPPED = total(grown(m.DROPPED, window=WINDOW), "stage", "reason")
COMMIT_P50, COMMIT_P99 = (quantile(q, m.INGEST_COMMIT_DURATION_SECONDS) for q in (0.5, 0.99))
VERDICT_P50, VERDICT_P99 = (quantile(q, m.VERDICT_LAG_SECONDS) for q in (0.5, 0.99))
NOTIFIED = growth(m.NOTIFICATIONS, "channel", "outcome")
