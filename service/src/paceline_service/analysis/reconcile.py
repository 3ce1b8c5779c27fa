"""Findings of several channels about the same thing become one (docs/math/kinds.md).

Each rule says which of two answers explains the other. What is left out is not lost: it becomes
evidence of the finding that stays, or a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from paceline.counted import counted
from paceline_service.analysis.report import Finding

STAGE_MARGIN = 1.05
"""A rank this much slower than its slow stage is slow by itself as well."""
CHANCE_SDS = 6.0
"""Standard deviations that a rank's mean must stand apart where batches differ in size; the best
of all stretches of all ranks is looked at, and ranks of one replica share their batches."""
_OF_BATCH = ("forward", "backward", None)
LEAST_IN_TURN = 3
DIGITS = 9
"""Of seconds these are nanoseconds, which is how the times were taken."""
AT_ONCE_STEPS = 20
"""Troubles that begin within so many steps of each other began together."""


def reconcile(
    findings: list[Finding], slow_steps: Mapping[int, int] | None = None
) -> tuple[list[Finding], list[str]]:
    """Return the findings that stand, the costliest first, and notes on those that do not.

    Args:
        findings: of all channels.
        slow_steps: by rank over how many steps its slowdown was measured; a rank that was slow at
            times has fewer than lie between its first and its last one.
    """
    notes: list[str] = []
    kept = [_finite(finding) for finding in findings]
    kept = _without_checkpoints(kept, notes)
    kept = _stages_before_ranks(kept)
    kept = _nodes_before_ranks(kept)
    kept = _ranks_before_their_network(kept)
    kept = _lengths_before_ranks(kept, slow_steps or {}, notes)
    kept = _rotation_before_periods(kept)
    kept = _culprits_before_everyone(kept)
    kept = _culprits_before_kinds(kept, notes)
    kept.sort(key=lambda finding: -(finding.wasted_gpu_s or 0.0))
    return kept, notes


def _finite(finding: Finding) -> Finding:
    """Return the finding with what is no number as unknown."""
    return replace(
        finding,
        slowdown=_number(finding.slowdown),
        recoverable_ratio=_number(finding.recoverable_ratio),
        wasted_gpu_s=_number(finding.wasted_gpu_s),
        confidence=_number(finding.confidence),
        period_steps=_number(finding.period_steps),
    )


def _number(value: float | None) -> float | None:
    """Return a figure as it is told; sums depend in their last digits on what arrived first."""
    return round(value, DIGITS) if value is not None and math.isfinite(value) else None


def _without_checkpoints(findings: list[Finding], notes: list[str]) -> list[Finding]:
    """A rank that writes checkpoints for all is not slow."""
    out = []
    for finding in findings:
        if finding.kind == "straggler" and finding.phase == "checkpoint":
            ranks = ", ".join(map(str, finding.ranks[:8]))
            notes.append(
                f"rank {ranks} writes checkpoints while the others wait: that has cost "
                f"{finding.wasted_gpu_s or 0.0:.2f} GPU-seconds, "
                f"{finding.recoverable_ratio or 0.0:.1%} of the time; asynchronous checkpoints "
                "cost less"
            )
        else:
            out.append(finding)
    return out


def _stages_before_ranks(findings: list[Finding]) -> list[Finding]:
    """The ranks of a stage that is slow on every replica are no stragglers."""
    stages = [finding for finding in findings if finding.kind == "stage_imbalance"]
    out = []
    for finding in findings:
        of = next((stage for stage in stages if _within(finding, stage)), None)
        if finding.kind == "straggler" and of is not None and not _worse(finding, of):
            continue
        out.append(finding)
    return out


def _nodes_before_ranks(findings: list[Finding]) -> list[Finding]:
    """A rank of a node that is slow as a whole is not named again."""
    stragglers = [finding for finding in findings if finding.kind == "straggler"]
    out = []
    for finding in findings:
        if finding.kind == "straggler" and any(
            other is not finding
            and len(other.ranks) > len(finding.ranks)
            and _within(finding, other)
            and _overlap(finding, other)
            for other in stragglers
        ):
            continue
        out.append(finding)
    return out


def _ranks_before_their_network(findings: list[Finding]) -> list[Finding]:
    """A sick GPU sends slowly too: its transfers are its symptom, not a second trouble."""
    sick = [
        finding
        for finding in findings
        if finding.kind == "straggler" and finding.cause in ("gpu_throttle", "gpu_fault")
    ]
    explains: dict[int, list[str]] = {}
    out = []
    for finding in findings:
        if finding.kind == "communication" and finding.ranks:
            culprit = next(
                (one for one in sick if _within(finding, one) and _overlap(finding, one)), None
            )
            if culprit is not None:
                explains.setdefault(id(culprit), []).extend(finding.evidence[:1])
                continue
        out.append(finding)
    return [
        replace(one, evidence=[*one.evidence, *explains[id(one)]]) if id(one) in explains else one
        for one in out
    ]


def _lengths_before_ranks(
    findings: list[Finding], slow_steps: Mapping[int, int], notes: list[str]
) -> list[Finding]:
    """A rank that drew long batches for a while is not slow: chance alone does that.

    The mean of n batches of log spread s differs from that of a peer by s * sqrt(2 / n).
    """
    spreads = [
        math.log(one.slowdown) for one in findings if one.kind == "imbalance" and one.slowdown
    ]
    out = []
    for finding in findings:
        if finding.kind == "straggler" and spreads and finding.phase in _OF_BATCH:
            steps = (finding.last_step or 0) - (finding.first_step or 0) + 1
            steps = min(steps, max((slow_steps.get(r, steps) for r in finding.ranks), default=1))
            chance = CHANCE_SDS * spreads[0] * math.sqrt(2 / max(steps, 1))
            if math.log(finding.slowdown or 1.0) < chance:
                ranks = ", ".join(map(str, finding.ranks[:8]))
                notes.append(
                    f"rank {ranks} was behind for {counted(steps, 'step')} by no more than batches "
                    "of different size explain"
                )
                continue
        out.append(finding)
    return out


def _rotation_before_periods(findings: list[Finding]) -> list[Finding]:
    """Ranks that are late in turns, each at its period, are one rotation."""
    if not any(finding.kind == "imbalance" and not finding.slowdown for finding in findings):
        return findings
    turns = [finding for finding in findings if finding.period_steps is not None]
    if len(turns) < LEAST_IN_TURN:
        return findings
    return [finding for finding in findings if finding.period_steps is None]


def _culprits_before_everyone(findings: list[Finding]) -> list[Finding]:
    """All became slower when one did: they wait for it where no record shows a wait."""
    begun = [
        finding.first_step
        for finding in findings
        if finding.kind in ("straggler", "communication", "imbalance")
        and finding.first_step is not None
    ]
    return [
        finding
        for finding in findings
        if finding.kind != "uniform_slowdown"
        or all(abs(step - (finding.first_step or 0)) > AT_ONCE_STEPS for step in begun)
    ]


def _culprits_before_kinds(findings: list[Finding], notes: list[str]) -> list[Finding]:
    """A job is bound by its communication only where no rank, link or stage is to blame."""
    culprit = any(
        finding.kind in ("straggler", "communication", "hang", "desync", "stage_imbalance")
        for finding in findings
    )
    out = []
    for finding in findings:
        if culprit and finding.kind == "communication_bound":
            notes.append(
                "the job also waits for communication more than it computes: "
                + (finding.evidence[0] if finding.evidence else "gamma is above 1")
            )
        else:
            out.append(finding)
    return out


def _within(finding: Finding, other: Finding) -> bool:
    return bool(finding.ranks) and set(finding.ranks) <= set(other.ranks)


def _overlap(one: Finding, other: Finding) -> bool:
    """Whether their steps overlap; unknown ones do."""
    begin = max(one.first_step or 0, other.first_step or 0)
    ends = [end for end in (one.last_step, other.last_step) if end is not None]
    return not ends or begin <= min(ends)


def _worse(rank: Finding, stage: Finding) -> bool:
    """Whether a rank is slower than its slow stage alone explains."""
    if rank.slowdown is None or stage.slowdown is None:
        return False
    return rank.slowdown > STAGE_MARGIN * stage.slowdown
