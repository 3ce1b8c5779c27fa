"""The Prometheus queries of the dashboards, built from the agent's catalogue of metrics."""

from __future__ import annotations

from paceline import metrics

IN_JOB = 'job="$job"'
OF_RANKS = 'job="$job",rank=~"$rank"'
WINDOW = "$__rate_interval"

JOBS = f"label_values({metrics.JOB_RANKS.name}, job)"
RANKS = f"label_values({metrics.RANK_WAIT_SECONDS.name}{{{IN_JOB}}}, rank)"


def _share_by_rank(counter: str) -> str:
    """Return seconds per second, per rank, of a counter of seconds: a share of the time."""
    return f"sum by (rank) (rate({counter}{{{OF_RANKS}}}[{WINDOW}]))"


SLOWDOWN = f"max({metrics.JOB_SLOWDOWN_RATIO.name}{{{IN_JOB}}})"
IDLE = f"max({metrics.JOB_IDLE_RATIO.name}{{{IN_JOB}}})"
GAMMA = f"max({metrics.JOB_GAMMA_RATIO.name}{{{IN_JOB}}})"

FLAGGED = f"max by (rank, kind, cause) ({metrics.RANK_FLAGGED.name}{{{IN_JOB}}}) > 0"
FLAGGED_COUNT = f"count(max by (rank) ({metrics.RANK_FLAGGED.name}{{{IN_JOB}}}) > 0) or vector(0)"
WASTED = f"sum({metrics.RANK_WASTED_GPU_SECONDS.name}{{{IN_JOB}}})"
WASTED_BY_RANK = f"sum by (rank) ({metrics.RANK_WASTED_GPU_SECONDS.name}{{{IN_JOB}}})"
FLAGGED_WASTED = f"({FLAGGED}) * on (rank) group_left () {WASTED_BY_RANK}"
FLAGGED_LATENESS = (
    f"({FLAGGED}) * on (rank) group_left () "
    f"max by (rank) ({metrics.RANK_LATENESS_RATIO.name}{{{IN_JOB}}})"
)

WAIT_SHARE = _share_by_rank(metrics.RANK_WAIT_SECONDS.name)
SELF_SHARE = _share_by_rank(metrics.RANK_SELF_SECONDS.name)
CAUSED_WAIT_SHARE = _share_by_rank(metrics.RANK_CAUSED_WAIT_SECONDS.name)

STEP_P50, STEP_P99 = (
    f"histogram_quantile({quantile}, "
    f"sum by (le) (rate({metrics.STEP_SECONDS.name}_bucket{{{IN_JOB}}}[{WINDOW}])))"
    for quantile in (0.5, 0.99)
)

RANKS_SEEN = f"sum by (state) ({metrics.JOB_RANKS.name}{{{IN_JOB}}})"
ANALYSIS_LAG = f"max({metrics.ANALYSIS_LAG_SECONDS.name})"
DROPPED = f"sum by (stage, reason) (increase({metrics.DROPPED.name}[{WINDOW}]))"
