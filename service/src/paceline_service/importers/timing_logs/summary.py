"""What a log tells, as the object ``data.timings`` of the report (docs/formats/timing-logs.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline_service.importers.timing_logs.detector import Named
from paceline_service.importers.timing_logs.facts import Change, Facts, Growth
from paceline_service.importers.timing_logs.job import Job
from paceline_service.importers.timing_logs.told import remedy

_SHOWN = 100


def timings(job: Job, facts: Facts | None, named: Named | None, resolved: bool) -> dict[str, Any]:
    """Return what the logs of a job tell."""
    places = job.places
    told: dict[str, Any] = {
        "form": facts.kind if facts is not None else "communication summary",
        "times_of_each_rank": resolved,
        "remedy": None if resolved else remedy(facts),
        "stages": places.stages,
        "tensor_parallel": places.tensor,
        "attempts": [
            {"first": attempt[0].iteration, "last": attempt[-1].iteration, "reports": len(attempt)}
            for attempt in job.attempts[-_SHOWN:]
        ],
    }
    if facts is not None:
        told |= _of_steps(facts)
    if named is not None:
        told["slowest"] = {
            "rank": named.rank, "times": named.times, "reports": named.reports,
            "slowest_ms": named.slowest_ms, "fastest_ms": named.fastest_ms,
            "excess_over_next": named.excess,
        }  # fmt: skip
    if job.tables:
        told["communication"] = _of_table(job)
    return told


def _of_steps(facts: Facts) -> dict[str, Any]:
    return {
        "reports": facts.reports,
        "iterations": [facts.first, facts.last],
        "iterations_per_report": facts.each,
        "step_ms": None if facts.relative else facts.median_ms,
        "tflops_per_gpu": facts.tflops,
        "skipped_iterations": facts.skipped,
        "timers_of_rank": facts.single_rank,
        "changes": [_of_change(change) for change in facts.changes],
        "outliers": [
            {"iteration": one.iteration, "step_ms": one.step_ms, "after": one.why or None}
            for one in facts.outliers[:_SHOWN]
        ],
        "spreads": [
            {"timer": one.timer, "phase": one.phase, "least_ms": one.least_ms,
             "most_ms": one.most_ms}
            for one in facts.spreads
        ],
    }  # fmt: skip


def _of_change(change: Change) -> dict[str, Any]:
    return {
        "iteration": change.iteration,
        "last_iteration": change.last_iteration,
        "before_ms": change.before_ms,
        "after_ms": change.after_ms,
        "chance": change.chance,
        "work": dict(zip(("what", "before", "after"), change.work, strict=True))
        if change.work
        else None,
        "timers": _grown(change.single),
        "fastest_rank": _grown(change.least),
        "slowest_rank": _grown(change.most),
    }


def _grown(growths: Sequence[Growth]) -> list[dict[str, Any]]:
    return [
        {"timer": one.timer, "before_ms": one.before_ms, "after_ms": one.after_ms}
        for one in growths
    ]


def _of_table(job: Job) -> list[dict[str, Any]]:
    rows = []
    for straggler in (False, True):
        table = next((t for t in reversed(job.tables) if t.straggler == straggler), None)
        for operation, size, count, a, b, c, d in table.rows[:_SHOWN] if table else ():
            figures = (
                {"transfer_ms": a, "waited_ms": b, "transfer_each_ms": c, "waited_each_ms": d}
                if straggler
                else {"total_ms": a, "each_ms": b, "algbw_gbps": c, "busbw_gbps": d}
            )
            rows.append({"operation": operation, "size": size, "count": count, **figures})
    return rows
