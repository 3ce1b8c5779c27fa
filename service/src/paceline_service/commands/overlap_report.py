"""The overlap that a report tells of, for ``paceline plan overlap --report FILE``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline_service.analysis.costs.overlap_measured import (
    BACKWARD_SHARE,
    Measured,
    measured_from_trace,
)
from paceline_service.analysis.costs.units import positive
from paceline_service.commands.report_file import read_report
from paceline_service.commands.report_link import FittedLink, fitted_link

_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A report's overlap, and its links where its transfers had sizes enough to tell."""

    measured: Measured
    link: FittedLink | None


def read_job(path: Path, backward_s: float | None, all_reduce_s: float | None) -> Job:
    """Return what a report tells of communication and what it hides behind.

    Args:
        path: of a report as JSON; ``-`` is stdin.
        backward_s: in place of two thirds of the compute that the report tells.
        all_reduce_s: of a step, where no trace tells what communication was hidden.

    Raises:
        InputError: the file is no report, or tells too little.
    """
    report = read_report(path)
    try:
        transfers = (report.get("calibration") or {}).get("transfers") or []
        link = fitted_link(transfers, ("all_reduce",))
        measured = _measured(report, path, all_reduce_s)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"--report {path}: is incomplete: {error!r}") from error
    if backward_s is not None:
        measured = replace(measured, backward_s=backward_s)
    if link is not None:
        measured = replace(measured, latency_s=link.collective_s)
    return Job(measured=measured, link=link)


def _measured(report: dict[str, Any], path: Path, all_reduce_s: float | None) -> Measured:
    job, ranks = report.get("job") or {}, report.get("ranks") or []
    steps = int(job.get("steps") or 0)
    if steps < 1 or not ranks:
        raise InputError(
            f"{path}: the report has no steps of ranks, so there is nothing to compare"
        )
    trace = (report.get("data") or {}).get("trace") or {}
    if trace.get("job"):
        return measured_from_trace(
            compute_s=trace["job"]["compute_ns"] * _NS,
            communication_s=trace["job"]["communication_ns"] * _NS,
            exposed_s=trace["job"]["exposed_communication_ns"] * _NS,
            wait_s=(trace.get("wait_ns") or 0) * _NS,
            collectives=int(trace.get("collectives") or job.get("collectives") or steps),
            rank_steps=len(trace.get("ranks") or ranks) * steps,
            steps=steps,
        )
    if all_reduce_s is None:
        raise InputError(
            f"{path}: the report is not of profiler traces (no data.trace), so nothing tells what "
            "was hidden: give --all-reduce, what the collectives of a step take alone, or analyze "
            "traces"
        )
    count = len(ranks) * steps
    exposed_s = min(_sum(ranks, "exposed_comm_ns") * _NS / count, all_reduce_s)
    self_s = _sum(ranks, "self_ns") * _NS / count
    return Measured(
        transfer_s=all_reduce_s, least_exposed_s=exposed_s, most_exposed_s=exposed_s,
        wait_s=_sum(ranks, "wait_ns") * _NS / count,
        backward_s=positive(self_s, "self_ns of the ranks", "nanoseconds") * BACKWARD_SHARE,
        buckets=max(round(int(job.get("collectives") or steps) / steps), 1),
    )  # fmt: skip


def _sum(ranks: list[dict[str, Any]], name: str) -> float:
    return float(sum(row.get(name) or 0 for row in ranks))
