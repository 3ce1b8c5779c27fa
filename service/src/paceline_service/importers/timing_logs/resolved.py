"""What is to be said of findings that come from the times of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.ranks import format_ranks
from paceline_service.analysis.report import Finding, Report
from paceline_service.importers.timing_logs.job import Job
from paceline_service.importers.timing_logs.places import Places

_OF_ONE_RANK = ("its peers stood still", "it arrived last")
"""How sentences begin that hold of one rank, and not of a group that is slow together."""


def about_records(job: Job) -> list[str]:
    """Return what is known of the records, and what is derived."""
    recorder = job.recorder
    notes = [
        "the log tells how long, not when: records follow each other in the order of a step, and "
        "waits are what the slowest rank's own work leaves to the others"
    ]
    if recorder.iterations > recorder.reports:
        each = round(recorder.iterations / recorder.reports)
        notes.append(
            f"each step of this report is the sum of the {each} iterations that one report of the "
            "log is the average of, under the number of the last of them"
        )
    if job.places.tensor is not None and job.places.tensor > 1:
        notes.append(
            f"the timers of forward and backward hold the all-reduces of {job.places.tensor} "
            "tensor-parallel ranks: which of these is slow the log does not tell"
        )
    if recorder.unplaced:
        notes.append(unplaced(recorder.unplaced))
    return notes


def unplaced(reports: int) -> str:
    """Return why reports with the times of all ranks were not used."""
    return (
        f"{reports:,} reports are of a job with pipeline stages, and the log does not say which "
        "rank is in which: their ranks are not compared"
    )


def told_by_records(report: Report, job: Job) -> list[Finding]:
    """Return the findings in terms of the log: from its first report on, by tensor group."""
    findings = [
        replace(one, first_step=max(one.first_step, job.recorder.first))
        if one.first_step is not None
        else one
        for one in report.findings
    ]
    if job.places.tensor is None or job.places.tensor < 2:
        return findings
    return _by_tensor_group(findings, report, job.places)


def _by_tensor_group(findings: Sequence[Finding], report: Report, places: Places) -> list[Finding]:
    """Put findings about ranks of one tensor-parallel group into one: they wait for each other."""
    groups: dict[int, list[Finding]] = {}
    kept: list[Finding] = []
    for finding in findings:
        ranks = finding.ranks
        group = places.tensor_group(ranks[0]) if ranks else []
        if finding.kind == "straggler" and set(ranks) <= set(group):
            groups.setdefault(group[0], []).append(finding)
        else:
            kept.append(finding)
    kept += [_together(same, report) for same in groups.values()]
    return sorted(kept, key=lambda one: -(one.wasted_gpu_s or 0.0))


def _together(findings: Sequence[Finding], report: Report) -> Finding:
    first = findings[0]
    ranks = sorted({rank for one in findings for rank in one.ranks})
    sentences = [text for text in first.evidence if not text.startswith(_OF_ONE_RANK)]
    shares = []
    for row in report.ranks:
        whole = row.self_ns + row.wait_ns + row.exposed_comm_ns
        if row.rank in ranks and first.slowdown and whole > 0:
            shares.append(row.self_ns * (1 - 1 / first.slowdown) / whole)
    wasted = sum(one.wasted_gpu_s or 0.0 for one in findings)
    return replace(
        first,
        ranks=ranks,
        first_step=min((one.first_step for one in findings if one.first_step is not None),
                       default=None),
        last_step=max((one.last_step for one in findings if one.last_step is not None),
                      default=None),
        recoverable_ratio=max(shares, default=first.recoverable_ratio),
        wasted_gpu_s=wasted,
        evidence=[
            *sentences,
            f"rank {format_ranks(ranks)} share layers: each waits for the slow one within forward "
            f"and backward, so one of them may be slow alone; the others stood still "
            f"{wasted:,.2f} GPU-seconds for them",
        ],
    )  # fmt: skip
