"""What the stand-in collector says beside steps and reports: incidents, what-if, settings."""

from __future__ import annotations

from typing import Any

from tests.e2e.page.page_jobs import STEP_NS, PageJob

OPENED_AFTER_STEPS = 14
NO_SETTINGS = {
    "generation": 0, "level": None, "stride": None, "relief_stride": 1, "enabled": None,
    "telemetry_interval_s": None, "updated_wall_ns": None, "updated_by": None,
    "effective_step": None, "agreed_wall_ns": None,
    "ranks": {"follows": "", "waits": "", "missed": {}, "silent": ""},
}  # fmt: skip


def incidents(job: PageJob, number: int) -> list[dict[str, Any]]:
    """Return the incidents of the findings of a job; ``number`` is the id of the first."""
    rows = []
    for i, finding in enumerate(job.report()["findings"]):
        opened = job.started_wall_ns + (job.slow_from + OPENED_AFTER_STEPS) * STEP_NS
        over = finding["last_step"] is not None and finding["last_step"] + 30 < job.steps
        is_open = job.state != "ended" and not over
        closed = None if is_open else job.started_wall_ns + job.steps * STEP_NS
        rows.append(
            {
                **finding, "id": number + i, "job": job.name, "attempt": job.attempt,
                "open": is_open, "opened_wall_ns": opened, "updated_wall_ns": closed or opened,
                "closed_wall_ns": closed,
                "closed_reason": None if is_open else "recovered" if over else "ended",
                "earlier_incidents": job.earlier_incidents, "acknowledged": None,
                "silenced": None, **job.incident,
            }
        )  # fmt: skip
    return rows


def what_if(job: PageJob, without: str | None) -> dict[str, Any]:
    """Return the answer of ``/what-if``: the slow ranks and their nodes give everything back."""
    nodes, report = job.nodes(), job.report()
    back = next((f["recoverable_ratio"] for f in report["findings"]), 0.0)
    slow = set(job.slow_ranks) if report["findings"] else set()
    of_node: dict[str, set[int]] = {}
    for rank, node in nodes.items():
        of_node.setdefault(node, set()).add(int(rank))
    left_out = {"rank": {f"rank:{r}": {r} for r in range(job.ranks)},
                "node": {f"node:{n}": ranks for n, ranks in of_node.items()}}  # fmt: skip
    every = {**left_out["rank"], **left_out["node"]}
    duration_ns = job.steps * STEP_NS // 10

    def ratio(ranks: set[int]) -> float:
        return back if slow and slow <= ranks else 0.0004

    candidates = [
        {"without": name, "recoverable_ns": int(ratio(ranks) * duration_ns),
         "recoverable_ratio": ratio(ranks)}
        for name, ranks in every.items() if len(ranks) < job.ranks
    ]  # fmt: skip
    candidates.sort(key=lambda one: -one["recoverable_ratio"])
    mine = ratio(every.get(without, set())) if without else 0.0
    return {
        "job": job.name, "attempt": job.attempt, "without": [without] if without else [],
        "ranks": "", "steps": job.steps, "first_step": 0 if job.steps else None,
        "last_step": job.steps - 1 if job.steps else None, "duration_ns": duration_ns,
        "recoverable_ns": int(mine * duration_ns),
        "recoverable_ratio": mine if job.steps else None, "at_least": False, "replay": None,
        "candidates": candidates[:16],
    }  # fmt: skip


def offenders(jobs: list[PageJob]) -> list[dict[str, Any]]:
    """Return who was named, by node."""
    rows: dict[str, dict[str, Any]] = {}
    for job in jobs:
        for one in incidents(job, 1):
            for node in one["nodes"]:
                row = rows.setdefault(
                    node, {"node": node, "gpu_uuid": None, "incidents": 0, "jobs": [],
                           "causes": [], "first_wall_ns": one["opened_wall_ns"],
                           "last_wall_ns": one["opened_wall_ns"]},
                )  # fmt: skip
                row["incidents"] += 1
                row["jobs"] = sorted({*row["jobs"], job.name})
                row["causes"] = sorted({*row["causes"], one["cause"]})
    return sorted(rows.values(), key=lambda row: (-len(row["jobs"]), row["node"]))


def settings(job: PageJob) -> dict[str, Any]:
    """Return what nobody has asked for anything looks like."""
    return {**NO_SETTINGS, "job": job.name, "attempt": job.attempt}
