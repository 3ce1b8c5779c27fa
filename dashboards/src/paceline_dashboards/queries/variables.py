"""Queries of the dashboards' variables."""

from __future__ import annotations

from paceline import metrics as m
from paceline_dashboards.promql import IN_JOB, OF_NODES, series

JOBS = f"label_values({m.JOB_RANKS.name}, job)"
NODES = f"label_values({series(m.RANK_INFO, IN_JOB)}, node)"
RANKS = f"label_values({series(m.RANK_WAIT_SECONDS, IN_JOB)}, rank)"
RANKS_OF_NODES = f"label_values({series(m.RANK_INFO, OF_NODES)}, rank)"
GROUPS = f"label_values({series(m.COLLECTIVE_BUSBW, IN_JOB)}, group)"
