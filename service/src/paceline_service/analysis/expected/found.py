"""What findings stand for, in time per rank and step: which part of a gap is whose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline_service.analysis.costs.calibrate_gap import Losses
from paceline_service.analysis.evidence.episode import Episode
from paceline_service.analysis.report import Finding

_OF_HOST = ("host", "gc", "input")
"""Causes in which the accelerator waits for what its host does (DETECTION section 5)."""
_LOSING = (
    "straggler", "communication", "imbalance", "stage_imbalance", "uniform_slowdown",
)  # fmt: skip
_LAST = 1 << 62


def losses_of(
    findings: Sequence[Finding],
    episodes: Iterable[Episode],
    *,
    rank_steps: float,
    kept_ratio: float,
    network_ns: float,
    behind_network_ns: float,
) -> Losses:
    """Return the losses that findings stand for.

    Args:
        findings: of the report.
        episodes: stretches in which ranks were slow, of which findings are made.
        rank_steps: steps of all ranks together.
        kept_ratio: steps that were recorded, of all: the costs of findings stand for all.
        network_ns: exposed time that slow places of the network cost all ranks together.
        behind_network_ns: wait per rank and step of ranks behind those places.
    """
    waited: dict[str, float] = {}
    own: dict[str, float] = {}
    comm: dict[str, float] = {}
    part_of = {
        rank: part_of_finding(one) for one in findings if one.kind == "straggler"
        for rank in one.ranks
    }  # fmt: skip
    for episode in episodes:
        part = part_of.get(episode.rank)
        if part is not None:
            _add(waited, part, max(episode.blamed_ns, 0.0) / rank_steps)
            _add(own, part, max(episode.self_ns - episode.peer_self_ns, 0.0) / rank_steps)
    for one in findings:
        lost = (one.wasted_gpu_s or 0.0) * 1e9 * kept_ratio / rank_steps
        if one.kind in ("imbalance", "stage_imbalance"):
            _add(waited, part_of_finding(one), lost)
        elif one.kind == "uniform_slowdown":
            _add(own, part_of_finding(one), lost)
    if network_ns > 0:
        # A sick GPU sends slowly too: then the report tells of the rank alone.
        kinds = {one.kind for one in findings}
        part = "straggler" if "communication" not in kinds and "straggler" in kinds else "network"
        _add(comm, part, network_ns / rank_steps)
        _add(waited, part, behind_network_ns)
    return Losses(waited_ns=waited, own_ns=own, comm_ns=comm)


def with_transfers(losses: Losses, part: str, more_ns: float) -> Losses:
    """Return the losses with more time in transfers, ns per rank and step."""
    comm = dict(losses.comm_ns)
    _add(comm, part, more_ns)
    return Losses(waited_ns=losses.waited_ns, own_ns=losses.own_ns, comm_ns=comm)


def part_of_finding(finding: Finding) -> str:
    """Return the part of a gap that a finding stands for."""
    if finding.kind in ("imbalance", "stage_imbalance"):
        return "imbalance"
    if finding.kind == "communication" or finding.cause == "network":
        return "network"
    if finding.cause in _OF_HOST:
        return "host"
    return "straggler" if finding.kind == "straggler" else "slowdown"


def spans_of(findings: Iterable[Finding]) -> list[tuple[int, int]]:
    """Return the first and last steps of what makes steps longer."""
    return [
        (one.first_step or 0, _LAST if one.last_step is None else one.last_step)
        for one in findings
        if one.kind in _LOSING
    ]


def _add(total: dict[str, float], part: str, more: float) -> None:
    total[part] = total.get(part, 0.0) + more


def recaused(
    expected: dict[str, Any], before: Sequence[Finding], after: Sequence[Finding]
) -> dict[str, Any]:
    """Return the block ``expected`` for findings that have got another cause since.

    What a finding has cost of its part goes with it, by its share of the GPU-seconds.
    """
    parts = expected.get("gap_parts_s")
    if not parts:
        return expected
    moved = dict(parts)
    for old, new in zip(before, after, strict=True):
        source, target = part_of_finding(old), part_of_finding(new)
        if source == target or moved[source] is None or moved[target] is None:
            continue
        cost = sum(one.wasted_gpu_s or 0.0 for one in before if part_of_finding(one) == source)
        lost_s = parts[source] * (old.wasted_gpu_s or 0.0) / cost if cost > 0 else 0.0
        moved[source] = round(moved[source] - lost_s, 9)
        moved[target] = round(moved[target] + lost_s, 9)
    return {**expected, "gap_parts_s": moved}
