"""Queries of what ranks do in a step: each rank, and the median of all."""

from __future__ import annotations

from paceline import metrics as m
from paceline.metrics import Metric
from paceline_dashboards.promql import IN_JOB, OF_RANKS, grown, median, rate, total

STEPS = total(rate(m.STEP_SECONDS, IN_JOB, suffix="_count"))
STEPS_SHOWN = total(grown(m.STEP_SECONDS, IN_JOB, suffix="_count"))


def each_step(counter: Metric) -> str:
    """Return, by rank, what a counter of seconds grows in a step."""
    return f"{total(rate(counter, OF_RANKS), 'rank')} / scalar({STEPS})"


def median_each_step(counter: Metric) -> str:
    """Return the median over all ranks of what a counter of seconds grows in a step."""
    return f"{median(total(rate(counter, IN_JOB), 'rank'))} / scalar({STEPS})"


def mean_step(counter: Metric) -> str:
    """Return, by rank, what a counter of seconds has grown in a step of the time shown."""
    return f"{total(grown(counter, OF_RANKS), 'rank')} / scalar({STEPS_SHOWN})"


SELF, STANDS, TRANSFERS = (
    each_step(counter)
    for counter in (m.RANK_SELF_SECONDS, m.RANK_WAIT_SECONDS, m.RANK_EXPOSED_COMM_SECONDS)
)
SELF_MEDIAN, STANDS_MEDIAN = (
    median_each_step(counter) for counter in (m.RANK_SELF_SECONDS, m.RANK_WAIT_SECONDS)
)
