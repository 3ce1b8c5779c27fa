"""A job as /metrics is given it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paceline_service.export.job_series import JobSample
from paceline_service.export.rows import Example, histogram_row


def job(ranks: int = 4, **changes: Any) -> JobSample:
    """Return a job with two ranks a node; rank r costs r seconds, and rank 3 is named."""
    rows = [
        {"rank": rank, "self_ns": 10**9, "wait_ns": rank, "exposed_comm_ns": 2 * 10**8,
         "caused_wait_ns": 5 * 10**8, "blamed_wait_ns": rank * 10**9, "last_arriver": rank,
         "node": f"node-{rank // 2}", "last_seen_wall_ns": 1, "telemetry": None, "pending_s": 0.0}
        for rank in range(ranks)
    ]  # fmt: skip
    finding = {
        "ranks": [3], "nodes": ["node-1"], "links": [[3, 0]], "kind": "straggler",
        "cause": "compute", "wasted_gpu_s": 3.5,
    }  # fmt: skip
    report = {"slowdown": 1.25, "idle_ratio": 0.1, "gamma": None, "verdict": "straggler",
              "findings": [finding]}  # fmt: skip
    example = Example(labels={"step": "7", "rank": "3"}, value=0.5, time_s=1.5)
    values: dict[str, Any] = {
        "job": "train", "state": "running", "world_size": ranks, "report": report, "ranks": rows,
        "ranks_seen": ranks, "last_step": 9, "open_findings": (finding,),
        "steps": histogram_row((0.1, 1.0), (4, 5, 1), 3.5, {1: example}),
        "drained_nodes": {"node-1": 0.2}, "recoverable_ratio": 0.25,
    }  # fmt: skip
    return JobSample(**(values | changes))


def with_cost(sample: JobSample, rank: int, seconds: float) -> JobSample:
    """Return the same job where one rank has another cost."""
    rows = [
        {**row, "blamed_wait_ns": int(seconds * 1e9)} if row["rank"] == rank else row
        for row in sample.ranks
    ]
    return replace(sample, ranks=rows)
