"""Reports for the tests of the text: one truth, varied."""

from __future__ import annotations

from typing import Any


def rank_row(rank: int, *, slow: bool = False) -> dict[str, Any]:
    return {
        "rank": rank,
        "self_ns": 12_000_000_000 if slow else 8_000_000_000,
        "wait_ns": 10_000_000 if slow else 4_000_000_000,
        "exposed_comm_ns": 300_000_000,
        "caused_wait_ns": 8_000_000_000 if slow else 0,
        "blamed_wait_ns": 8_000_000_000 if slow else 30_000_000,
        "last_arriver": 2400 if slow else 3,
    }


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "straggler", "ranks": [2], "nodes": ["node-a"], "cause": "gpu_throttle",
        "phase": "backward", "first_step": 210, "last_step": 499, "slowdown": 1.25,
        "recoverable_ratio": 0.12, "wasted_gpu_s": 91.7, "confidence": 0.99993, "links": [],
        "collective": None, "period_steps": None,
        "evidence": ["rank 2 arrived last in 289 of 290 steps"],
        "action": "scontrol update nodename=node-a state=drain reason='slow in backward since "
        "step 210'",
    } | changes  # fmt: skip


def report(*, ranks: int = 4, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "paceline.report/1",
        "job": {"world_size": ranks, "ranks_observed": ranks, "steps": 500, "collectives": 12000},
        "verdict": "straggler", "slowdown": 1.14, "idle_ratio": 0.12, "gamma": 0.42,
        "wasted_gpu_s": 96.3, "findings": [finding()],
        "data": {"complete": True, "dropped": {}, "notes": []},
        "ranks": [rank_row(rank, slow=rank == 2) for rank in range(ranks)],
    } | changes  # fmt: skip


def healthy(**changes: Any) -> dict[str, Any]:
    return report(verdict="healthy", findings=[], **changes)
