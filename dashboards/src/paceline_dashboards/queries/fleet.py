"""Queries of the dashboard *Fleet*: all jobs together."""

from __future__ import annotations

from paceline import metrics as m
from paceline_dashboards.promql import (
    ALL_JOBS,
    RANGE,
    grown,
    largest,
    or_zero,
    rate,
    series,
    top,
    total,
)

_RUNS = largest(series(m.JOB_RANKS, ALL_JOBS, 'state="running"'), "job")
RUNNING = or_zero(f"count({_RUNS})")
RANKS = or_zero(f"sum({largest(series(m.JOB_WORLD_SIZE, ALL_JOBS), 'job')} and on (job) {_RUNS})")
TROUBLED = or_zero(f"count({largest(series(m.JOB_FINDING, ALL_JOBS), 'job')} and on (job) {_RUNS})")
WASTED_NOW = or_zero(total(rate(m.JOB_WASTED_GPU_SECONDS, ALL_JOBS)))
WASTED_HOURS = or_zero(f"{total(grown(m.JOB_WASTED_GPU_SECONDS, ALL_JOBS))} / 3600")
_PARTS = (m.JOB_SELF_SECONDS, m.JOB_WAIT_SECONDS, m.JOB_EXPOSED_COMM_SECONDS)
STANDING = (
    f"{total(rate(m.JOB_WAIT_SECONDS, ALL_JOBS))} / "
    f"({' + '.join(total(rate(part, ALL_JOBS)) for part in _PARTS)})"
)
SILENT = or_zero(f"sum({largest(series(m.JOB_SILENT_RANKS, ALL_JOBS), 'job')})")

JOB_VERDICT = largest(series(m.JOB_VERDICT, ALL_JOBS), "job", "verdict")
JOB_SLOWDOWN = largest(series(m.JOB_SLOWDOWN_RATIO, ALL_JOBS), "job")
JOB_RECOVERABLE = largest(series(m.JOB_RECOVERABLE_RATIO, ALL_JOBS), "job")
JOB_IDLE = largest(series(m.JOB_IDLE_RATIO, ALL_JOBS), "job")
JOB_GAMMA = largest(series(m.JOB_GAMMA_RATIO, ALL_JOBS), "job")
JOB_WASTED_HOURS = f"{total(grown(m.JOB_WASTED_GPU_SECONDS, ALL_JOBS), 'job')} / 3600"
JOB_SIZE = largest(series(m.JOB_WORLD_SIZE, ALL_JOBS), "job")
JOB_STEP = largest(series(m.JOB_LAST_STEP, ALL_JOBS), "job")

WASTED_BY_JOB = top(10, total(rate(m.JOB_WASTED_GPU_SECONDS, ALL_JOBS), "job"))
WASTED_BY_CAUSE = total(rate(m.JOB_FINDING_SECONDS, ALL_JOBS), "kind", "cause")

WORST_NODES = top(15, f"{total(grown(m.NODE_WASTED_GPU_SECONDS, ALL_JOBS), 'node')} / 3600")
DRAINING = top(15, largest(series(m.NODE_RECOVERABLE_RATIO, ALL_JOBS), "job", "node"))
FLAGGED_NODES = largest(series(m.NODE_FLAGGED, ALL_JOBS), "job", "node", "kind", "cause")
OFFENCES = top(20, largest(series(m.NODE_OFFENCES), "node"))
OFFENDERS_HOURS = f"sum by (node) (increase({series(m.NODE_WASTED_GPU_SECONDS)}[{RANGE}])) / 3600"
