"""The comparison of two runs as the JSON object ``paceline.compare/1`` (docs/compare.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline_service.analysis.compare.change import FALSE_RATE
from paceline_service.analysis.compare.figures import RunFigures
from paceline_service.analysis.compare.findings import FindingChanges, match_findings
from paceline_service.analysis.compare.runs import PartChange, RankChange, RunChange, compare_runs
from paceline_service.export.step_blob import PHASE_NAMES
from paceline_service.export.step_table import StepTable
from paceline_service.export.words import Json, main_finding

SCHEMA = "paceline.compare/1"
PARTS = (*PHASE_NAMES, "communication", "waiting")
"""In the order of ``RunFigures.part_ns``."""
_DIFFERENT_PROGRAM = 0.05
"""So much more or fewer collectives a step are another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs."""

    name: str
    format: str
    report: Json
    figures: RunFigures
    history: StepTable | None
    nodes: Mapping[int, str]

    @property
    def world_size(self) -> int:
        """R."""
        return int(self.report["job"]["world_size"])

    @property
    def is_judged(self) -> bool:
        """Whether there was enough of it to find what there may be."""
        return bool(self.report["verdict"] != "insufficient_evidence")


def compare_sides(before: Side, after: Side, tolerance: float) -> Json:
    """Return the answer about two runs."""
    same_ranks = before.world_size == after.world_size
    same_nodes = all(
        after.nodes.get(rank, node) == node for rank, node in before.nodes.items() if node
    )
    found = compare_runs(before.figures, after.figures, same_ranks=same_ranks, tolerance=tolerance)
    findings = match_findings(
        before.report["findings"], after.report["findings"], same_ranks=same_ranks,
        same_nodes=same_nodes,
    )  # fmt: skip
    step = found.step
    verdict = _verdict(found, findings, tolerance, before, after)
    return {
        "schema": SCHEMA,
        "verdict": verdict,
        "verdict_by": "steps" if verdict == step.verdict else "findings",
        "false_rate": FALSE_RATE,
        "tolerance_ratio": tolerance,
        "before": _side(before),
        "after": _side(after),
        "step": {
            "before_ns": round(step.before_ns),
            "after_ns": round(step.after_ns),
            "change_ratio": step.ratio,
            "low_ratio": step.low_ratio,
            "high_ratio": step.high_ratio,
            "smallest_ratio": step.smallest_ratio,
            "p_value": step.p_value,
        },
        "parts": [_part(one) for one in found.parts],
        "ranks": [_rank(one, before, after) for one in found.ranks],
        "slower_ranks": [one.rank for one in found.ranks if one.verdict == "slower"],
        "faster_ranks": [one.rank for one in found.ranks if one.verdict == "faster"],
        "findings": {
            "came": findings.came,
            "went": findings.went,
            "stayed": [{"before": one, "after": two} for one, two in findings.stayed],
        },
        "notes": _notes(before, after, found, findings, same_nodes=same_nodes),
    }


def _verdict(
    found: RunChange, findings: FindingChanges, tolerance: float, before: Side, after: Side
) -> str:
    """Return what the step times say, or what a finding proves that came or went.

    A run that became slow half-way is no sample of one speed, so that its step times prove
    little; the finding that says since when proves it.
    """
    step = found.step
    if step.verdict != "no_difference":
        return step.verdict
    came = before.is_judged and any(one["recoverable_ratio"] for one in findings.came)
    if step.ratio >= tolerance and came:
        return "slower"
    went = after.is_judged and any(one["recoverable_ratio"] for one in findings.went)
    if step.ratio <= -tolerance and went:
        return "faster"
    return step.verdict


def _side(side: Side) -> Json:
    report = side.report
    main = main_finding(report)
    return {
        "name": side.name,
        "format": side.format,
        "job": dict(report["job"]),
        "verdict": report["verdict"],
        "ranks": list(main["ranks"]) if main is not None else [],
        "steps_compared": side.figures.steps,
        "slowdown": report["slowdown"],
        "idle_ratio": report["idle_ratio"],
        "gamma": report["gamma"],
        "wasted_gpu_s": report["wasted_gpu_s"],
        "complete": report["data"]["complete"],
    }


def _part(one: PartChange) -> Json:
    change = one.change
    half = change.half if change is not None else 0.0
    return {
        "part": PARTS[one.part],
        "before_ns": round(one.before_ns),
        "after_ns": round(one.after_ns),
        "change_ns": round(one.after_ns) - round(one.before_ns),
        "low_ns": round(change.difference - half) if change is not None else None,
        "high_ns": round(change.difference + half) if change is not None else None,
        "p_value": change.p_value if change is not None else None,
        "significant": one.holds,
    }


def _rank(one: RankChange, before: Side, after: Side) -> Json:
    return {
        "rank": one.rank,
        "node_before": before.nodes.get(one.rank) or None,
        "node_after": after.nodes.get(one.rank) or None,
        "before_ns": round(one.before_ns),
        "after_ns": round(one.after_ns),
        "change_ratio": one.ratio,
        "against_peers_ratio": one.against_peers_ratio,
        "p_value": one.p_value,
        "changed": one.changed,
        "verdict": one.verdict or None,
    }


def _notes(
    before: Side, after: Side, found: RunChange, findings: FindingChanges, *, same_nodes: bool
) -> list[str]:
    notes = []
    one, two = before.report["job"], after.report["job"]
    if before.world_size != after.world_size:
        notes.append(
            f"the runs have {before.world_size} and {counted(after.world_size, 'rank')}; ranks are "
            "not compared one by one"
        )
    elif not same_nodes:
        moved = sorted(
            rank for rank, node in before.nodes.items() if after.nodes.get(rank, node) != node
        )
        notes.append(f"not on the same nodes in both runs: ranks {format_ranks(moved)}")
    per_step = [job["collectives"] / job["steps"] if job["steps"] else 0.0 for job in (one, two)]
    if min(per_step) > 0 and max(per_step) / min(per_step) - 1 > _DIFFERENT_PROGRAM:
        notes.append(
            f"{per_step[0]:.4g} collectives a step before and {per_step[1]:.4g} after: these are "
            "not the same program, and a difference need not be a fault"
        )
    if before.format != after.format:
        notes.append(
            f"the formats differ ({before.format}, {after.format}); what they count as a step or "
            "as own work may differ, too"
        )
    for side in (before, after):
        if not side.report["data"]["complete"]:
            notes.append(f"the data of {side.name} are incomplete")
    for side, changed, word in (
        (after, findings.went, "went"), (before, findings.came, "came")
    ):  # fmt: skip
        if changed and not side.is_judged:
            notes.append(
                f"of {side.name} alone there is not enough evidence: a finding that {word} may "
                "stand in it, too"
            )
    if found.step.verdict == "insufficient_evidence":
        notes.append(_too_few((before, after)))
    return notes


def _too_few(sides: Sequence[Side]) -> str:
    steps = " and ".join(f"{side.figures.steps}" for side in sides)
    return f"{steps} steps could be compared; a test needs four of each run, a sharp one sixty"
