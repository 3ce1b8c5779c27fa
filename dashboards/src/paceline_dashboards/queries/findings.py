"""Who and what findings name, for panels, tables and annotations."""

from __future__ import annotations

from paceline import metrics as m
from paceline_dashboards.promql import IN_JOB, largest, series, top
from paceline_dashboards.words import VERDICTS

FEW = 8
"""A finding that names more ranks than this is marked once, rather than once a rank."""
_WHAT = "job, kind, cause"


def named(jobs: str) -> str:
    """Return a series per rank that is named together with few others."""
    flagged = largest(series(m.RANK_FLAGGED, jobs), "job", "rank", "kind", "cause")
    count = f"count by ({_WHAT}) ({flagged})"
    return f"{flagged} and on ({_WHAT}) ({count} <= {FEW})"


def unnamed(jobs: str) -> str:
    """Return a series per finding that names nobody, or more than few."""
    flagged = largest(series(m.RANK_FLAGGED, jobs), "job", "rank", "kind", "cause")
    count = f"count by ({_WHAT}) ({flagged})"
    finding = largest(series(m.JOB_FINDING, jobs), "job", "kind", "cause")
    return f"{finding} unless on ({_WHAT}) ({count} <= {FEW})"


def verdict(jobs: str) -> str:
    """Return the number of each job's verdict: its place in ``words.VERDICTS``."""
    return " or ".join(
        f"({largest(series(m.JOB_VERDICT, jobs, f'verdict={chr(34)}{name}{chr(34)}'), 'job')}"
        f" * 0 + {code})"
        for code, (name, _) in enumerate(VERDICTS)
    )


def rank_node(jobs: str) -> str:
    """Return 1 with the node of each rank; one node only, even while a rank moves."""
    return f"topk by (job, rank) (1, {series(m.RANK_INFO, jobs)})"


FLAGGED = largest(series(m.RANK_FLAGGED, IN_JOB), "rank", "kind", "cause")
FLAGGED_NODE = f"({FLAGGED}) * on (rank) group_left (node) {rank_node(IN_JOB)}"
SILENCED = largest(series(m.RANK_SILENCED, IN_JOB), "rank", "kind", "cause")
FLAGGED_COUNT = f"count({largest(series(m.RANK_FLAGGED, IN_JOB), 'rank')}) or vector(0)"
GOING_ON = largest(series(m.JOB_FINDING, IN_JOB), "kind", "cause")
NODES_GOING_ON = top(16, largest(series(m.NODE_FLAGGED, IN_JOB), "node", "kind", "cause"))
