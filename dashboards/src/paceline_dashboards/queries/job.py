"""Queries of the dashboard *Job*."""

from __future__ import annotations

from paceline import metrics as m
from paceline.metrics import Metric
from paceline_dashboards.promql import (
    IN_JOB,
    OF_RANKS,
    largest,
    or_zero,
    quantile,
    rate,
    series,
    top,
    total,
)
from paceline_dashboards.queries.findings import FLAGGED
from paceline_dashboards.queries.steps import STEPS, mean_step

SLOWDOWN = largest(series(m.JOB_SLOWDOWN_RATIO, IN_JOB))
IDLE = largest(series(m.JOB_IDLE_RATIO, IN_JOB))
GAMMA = largest(series(m.JOB_GAMMA_RATIO, IN_JOB))
RECOVERABLE = largest(series(m.JOB_RECOVERABLE_RATIO, IN_JOB))
EXPECTED_STEP = largest(series(m.JOB_EXPECTED_STEP_SECONDS, IN_JOB))
OBSERVED_STEP = largest(series(m.JOB_OBSERVED_STEP_SECONDS, IN_JOB))
STEP_GAP = largest(series(m.JOB_STEP_GAP_SECONDS, IN_JOB), "part")
WASTED_HOURS = f"{total(series(m.JOB_WASTED_GPU_SECONDS, IN_JOB))} / 3600"
WASTED_NOW = total(rate(m.JOB_WASTED_GPU_SECONDS, IN_JOB))
LAST_STEP = largest(series(m.JOB_LAST_STEP, IN_JOB))

_WASTED_BY_RANK = total(series(m.RANK_WASTED_GPU_SECONDS, IN_JOB), "rank")
FLAGGED_WASTED = f"({FLAGGED}) * on (rank) group_left () {_WASTED_BY_RANK}"
FLAGGED_LATENESS = (
    f"({FLAGGED}) * on (rank) group_left () "
    f"{largest(series(m.RANK_LATENESS_RATIO, IN_JOB), 'rank')}"
)
NODE_RECOVERABLE = top(12, largest(series(m.NODE_RECOVERABLE_RATIO, IN_JOB), "node"))

MEAN_SELF = mean_step(m.RANK_SELF_SECONDS)
MEAN_WAIT = mean_step(m.RANK_WAIT_SECONDS)
MEAN_TRANSFER = mean_step(m.RANK_EXPOSED_COMM_SECONDS)


def padded(expr: str, label: str) -> str:
    """Return ``expr`` by ``row``: numbers with blanks before them, which sort as numbers do."""
    text = f'label_replace({expr}, "row", "$1", "{label}", "(.*)")'
    for length in (4, 3, 2, 1):
        text = (
            f'label_replace({text}, "row", "{" " * (5 - length)}$1", "{label}", "(.{{{length}}})")'
        )
    return f"sum by (row) ({text})"


LITTLE = 0.02
"""Seconds of a second: of less no share is told."""


def _share(part: Metric, whole: tuple[Metric, ...], selector: str, by: str) -> str:
    parts = " + ".join(total(rate(one, selector), by) for one in whole)
    # Before its first whole steps a share would be one of next to nothing, and look like much.
    return f"{total(rate(part, selector), by)} / ({parts} > {LITTLE})"


IDLE_BY_RANK = padded(
    _share(
        m.RANK_WAIT_SECONDS,
        (m.RANK_SELF_SECONDS, m.RANK_WAIT_SECONDS, m.RANK_EXPOSED_COMM_SECONDS),
        OF_RANKS,
        "rank",
    ),
    "rank",
)
IDLE_BY_NODE = _share(
    m.NODE_WAIT_SECONDS, (m.NODE_SELF_SECONDS, m.NODE_WAIT_SECONDS), IN_JOB, "node"
)
CAUSED_WAIT = top(16, total(rate(m.RANK_CAUSED_WAIT_SECONDS, OF_RANKS), "rank"))

STEP_MEAN = f"{total(rate(m.STEP_SECONDS, IN_JOB, suffix='_sum'))} / {STEPS}"
STEP_P99 = quantile(0.99, m.STEP_SECONDS, IN_JOB)
_RANKS = total(series(m.JOB_RANKS, IN_JOB))


def _split(counter: Metric) -> str:
    return f"{total(rate(counter, IN_JOB))} / scalar({STEPS}) / scalar({_RANKS})"


SPLIT_SELF = _split(m.JOB_SELF_SECONDS)
SPLIT_TRANSFER = _split(m.JOB_EXPOSED_COMM_SECONDS)
SPLIT_WAIT = _split(m.JOB_WAIT_SECONDS)

BLAME_BY_RANK = top(10, total(rate(m.RANK_WASTED_GPU_SECONDS, OF_RANKS), "rank")) + " > 0"
BLAME_BY_NODE = top(10, total(rate(m.NODE_WASTED_GPU_SECONDS, IN_JOB), "node")) + " > 0"
BLAME_BY_CAUSE = total(rate(m.JOB_FINDING_SECONDS, IN_JOB), "kind", "cause")
IN_FLIGHT = top(10, largest(series(m.INFLIGHT_AGE_SECONDS, OF_RANKS), "rank"))

RANKS_SEEN = total(series(m.JOB_RANKS, IN_JOB), "state")
WORLD_SIZE = largest(series(m.JOB_WORLD_SIZE, IN_JOB))
RANK_SERIES = largest(series(m.JOB_RANK_SERIES, IN_JOB))
SILENT_RANKS = largest(series(m.JOB_SILENT_RANKS, IN_JOB))
STRIDE = or_zero(largest(series(m.RELIEF_STRIDE, IN_JOB)))
ANALYSIS_LAG = largest(series(m.ANALYSIS_LAG_SECONDS))
