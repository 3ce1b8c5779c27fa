"""Answers of several formats about one job, put into one (docs/adr/0070)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.ranks import format_ranks
from paceline_service.importers.answer import Answer
from paceline_service.importers.faults import Faults, losses

Json = dict[str, Any]
_INSUFFICIENT = "insufficient_evidence"
_STANDSTILL = ("hang", "desync")
_SAME_SHARE = 2 / 3
"""Of the ranks that were seen: a job with more of them is what the input is about."""
_NOTES_OF_OTHERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one format says of the job.

    Attributes:
        name: of the format.
        files: that it was read from.
        answer: what they say alone.
        weight: how much the format can tell; the larger leads.
    """

    name: str
    files: tuple[Path, ...]
    answer: Answer
    weight: int

    @property
    def report(self) -> Json:
        """The report on these files alone."""
        return self.answer.report

    def close(self) -> None:
        """Let go of the timed records."""
        if self.answer.log is not None:
            self.answer.log.close()


def answer_of(parts: Sequence[Part], faults: Faults) -> Answer:
    """Return the answer that formats give together.

    Args:
        parts: of one job, the one that leads first.
        faults: what is wrong with the input as a whole.
    """
    report = blend(parts)
    data = report["data"]
    data["sources"] = [
        {
            "format": part.name,
            "files": [str(path) for path in part.files],
            "verdict": part.report["verdict"],
        }
        for part in parts
    ]
    for reason, count in losses(faults).items():
        data["dropped"][reason] = data["dropped"].get(reason, 0) + count
    data["complete"] = data["complete"] and not faults.lossy
    data["notes"] += faults.notes()
    together = Faults()
    for part in parts:
        together.take(part.answer.faults)
    together.take(faults)
    lead = parts[0].answer
    return replace(lead, report=report, faults=together, parts=tuple(part.report for part in parts))


def of_one_job(parts: Sequence[Part], faults: Faults) -> list[Part]:
    """Return the parts that are about one job, the one that leads first; tell of the others.

    Raises:
        InputError: they are about several, and none of them is what the input is about.
    """
    ordered = sorted(parts, key=_leads)
    jobs: list[list[Part]] = []
    for part in ordered:
        mine = next((job for job in jobs if all(_fit(part, other) for other in job)), None)
        if mine is None:
            jobs.append([part])
        else:
            mine.append(part)
    seen = [max(part.report["job"]["ranks_observed"] for part in job) for job in jobs]
    most = max(range(len(jobs)), key=lambda index: seen[index])
    if len(jobs) > 1 and seen[most] <= _SAME_SHARE * sum(seen):
        told = "; ".join(f"{_place(job[0])} {_of_job(job[0])}" for job in jobs)
        raise InputError(f"the input is of several jobs: {told}; give the files of one")
    for index, job in enumerate(jobs):
        for part in job if index != most else ():
            message = (
                f"left out with all of the format {part.name}: {_of_job(part)}, the others are "
                f"{_of_job(jobs[most][0])}"
            )
            faults.add("other_job", part.files[0], None, message, count=len(part.files))
    return jobs[most]


def blend(parts: Sequence[Part]) -> Json:
    """Return one report from what the formats say; the first of them leads.

    Its figures and ranks stand. Findings of the others are added, or strengthen those that they
    agree with; where formats contradict each other, a note says so.
    """
    lead, *others = parts
    report = {**lead.report, "findings": [dict(one) for one in lead.report["findings"]]}
    data = dict(lead.report["data"])
    data["notes"], data["dropped"] = list(data["notes"]), dict(data["dropped"])
    notes: list[str] = []
    for part in others:
        notes += _take(report, part, lead)
        _take_data(data, part.report["data"], part.name)
        for key in ("ranks", "what_if"):
            report[key] = report.get(key) or part.report.get(key)
        report["job"] = {**part.report["job"], **report["job"]}
        if part.answer.world_size_told and not lead.answer.world_size_told:
            report["job"]["world_size"] = part.report["job"]["world_size"]
            data["complete"] = False
    data["notes"][:0] = notes
    report["findings"].sort(key=lambda one: -(one["wasted_gpu_s"] or 0.0))
    if others:
        report["wasted_gpu_s_by_cause"] = _wasted_by_cause(report["findings"])
    report["verdict"] = _verdict(report["findings"], lead.report["verdict"])
    report["data"] = data
    if not report.get("what_if"):
        report.pop("what_if", None)
    return report


def _leads(part: Part) -> tuple[bool, bool, int]:
    """Sort key: what tells of steps, then what has an answer, then what can tell most."""
    return not part.report["job"]["steps"], part.report["verdict"] == _INSUFFICIENT, -part.weight


def _fit(one: Part, other: Part) -> bool:
    """Whether two parts can be about one job."""
    names = {part.report["job"].get("name") for part in (one, other)} - {None, ""}
    mine, theirs = (part.report["job"]["world_size"] for part in (one, other))
    if len(names) > 1:
        return False
    # A size that nobody told is that of the ranks that were seen: the job has no fewer.
    if not one.answer.world_size_told and mine <= theirs:
        return True
    return bool(mine == theirs or (not other.answer.world_size_told and theirs <= mine))


def _of_job(part: Part) -> str:
    job = part.report["job"]
    name = f"{job['name']!r}, " if job.get("name") else ""
    return f"of a job {name}of {counted(job['world_size'], 'rank')}"


def _place(part: Part) -> str:
    more = f" and {len(part.files) - 1} more" if len(part.files) > 1 else ""
    return f"{part.files[0]}{more} ({part.name})"


def _take(report: Json, part: Part, lead: Part) -> list[str]:
    """Put the findings of a part into the report; return what is to be said about it."""
    notes = []
    for finding in part.report["findings"]:
        same = next((one for one in report["findings"] if _agree(one, finding)), None)
        about = f"{finding['kind']} of {_who(finding)}"
        if same is None:
            evidence = [f"told by {_place(part)}", *finding["evidence"]]
            report["findings"].append({**finding, "evidence": evidence})
            if lead.report["verdict"] != _INSUFFICIENT:
                notes.append(f"{part.name}: {about}; {lead.name} alone does not tell it")
            continue
        first = f": {finding['evidence'][0]}" if finding["evidence"] else ""
        same["evidence"] = [
            *same["evidence"],
            f"{part.name} tells the same of {_who(finding)}{first}",
        ]
        same["confidence"] = max(
            (one["confidence"] for one in (same, finding) if one["confidence"] is not None),
            default=None,
        )
        if same["cause"] == "unknown":
            same["cause"] = finding["cause"]
        same["phase"] = same["phase"] or finding["phase"]
        notes.append(f"{part.name} and {lead.name} agree: {about}")
    verdict = part.report["verdict"]
    if verdict == "healthy" and lead.report["findings"]:
        notes.append(f"{part.name} contradicts {lead.name}: alone it says healthy")
    elif verdict == _INSUFFICIENT:
        notes.append(f"{part.name}: not enough evidence for an answer of its own")
    elif verdict == "healthy":
        notes.append(f"{part.name} says healthy as well")
    return notes


def _agree(one: Json, other: Json) -> bool:
    """Whether two findings tell the same: one kind, and a rank (or nobody) in common."""
    ranks, theirs = set(one["ranks"]), set(other["ranks"])
    return bool(one["kind"] == other["kind"] and (ranks & theirs or ranks == theirs))


def _who(finding: Json) -> str:
    return f"rank {format_ranks(finding['ranks'])}" if finding["ranks"] else "the job"


def _take_data(data: Json, other: Json, name: str) -> None:
    # Every rank was seen if the lead saw it: a training log has none by nature.
    data["complete"] = data["complete"] and not other["dropped"]
    for reason, count in other["dropped"].items():
        data["dropped"][reason] = data["dropped"].get(reason, 0) + count
    data["notes"] += [f"{name}: {note}" for note in other["notes"][:_NOTES_OF_OTHERS]]
    for key, value in other.items():
        data.setdefault(key, value)


def _wasted_by_cause(findings: Sequence[Json]) -> dict[str, float]:
    total: dict[str, float] = {}
    for finding in findings:
        if finding["wasted_gpu_s"] is not None:
            cause = finding["cause"]
            total[cause] = round(total.get(cause, 0.0) + finding["wasted_gpu_s"], 9)
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _verdict(findings: Sequence[Json], alone: str) -> str:
    if not findings:
        return alone
    kinds = [finding["kind"] for finding in findings]
    return str(next((kind for kind in _STANDSTILL if kind in kinds), kinds[0]))
