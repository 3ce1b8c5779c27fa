"""The verdict: this is where it is decided who is slow, or that nobody is, or that we cannot know.

A rank is named when its evidence passed the threshold of the allowed false-alarm rate
(``episodes``) *and* what it costs the job is material. Nobody is named otherwise; the job is
healthy only when the steps that were seen would have sufficed to name a clear culprit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from paceline.counted import counted
from paceline_service.analysis.causes.watch import CauseWatch
from paceline_service.analysis.channel import Channel, JobFacts
from paceline_service.analysis.evidence.edetector import least_shift, least_steps
from paceline_service.analysis.evidence.episodes import EpisodeTracker
from paceline_service.analysis.evidence.from_start import BLOCK_STEPS
from paceline_service.analysis.evidence.peers import PeerFinder
from paceline_service.analysis.evidence.periodic import passing, with_period
from paceline_service.analysis.options import Options
from paceline_service.analysis.reconcile import reconcile
from paceline_service.analysis.records import BoolArray
from paceline_service.analysis.report import Finding, Report
from paceline_service.analysis.totals import Totals


def judge(
    *,
    world_size: int,
    observed: BoolArray,
    nodes: dict[int, str],
    ended: dict[int, str],
    dropped: dict[str, int],
    totals: Totals,
    tracker: EpisodeTracker,
    peers: PeerFinder,
    options: Options,
    channels: Sequence[Channel],
    facts: JobFacts,
    watch: CauseWatch,
) -> Report:
    """Return the report on everything that was analysed so far."""
    notes: list[str] = []
    findings, alone, immaterial = _material(
        tracker, nodes, totals.phases_seen, options, peers, watch
    )
    notes += immaterial
    if len(findings) > 1:  # who runs where is a question about every rank
        from paceline_service.analysis.findings import merge_by_node

        findings = merge_by_node(findings, _ranks_of_node(nodes), alone)
    slow = {e.rank for e in tracker.episodes if e.period_steps is None and not e.transient}
    slow_steps: Counter[int] = Counter()
    for episode in tracker.episodes:
        slow_steps[episode.rank] += episode.steps
    facts = replace(facts, slow_ranks=tuple(sorted(slow)))
    for channel in channels:
        findings += channel.findings(facts)
        notes += channel.notes(facts)
    findings, reconciled = reconcile(
        [_for_all_steps(one, totals, watch) for one in findings], slow_steps
    )
    notes += reconciled
    lost = dict(dropped)
    for reason, count in (
        ("duplicate", totals.duplicates),
        ("unmatched", totals.incomplete),
        ("mismatched", totals.mismatched),
    ):
        if count:
            lost[reason] = lost.get(reason, 0) + count
    missing = _missing(world_size, observed, totals, tracker, peers)
    killed = sorted(rank for rank, how in ended.items() if how == "killed")
    if killed:
        shown = ", ".join(f"rank {rank}" for rank in killed[:16])
        more = f" and {len(killed) - 16} more" if len(killed) > 16 else ""
        notes.append(f"died without a clean end: {shown}{more}")
    if findings:
        verdict = _kind_of(findings)
    elif missing:
        verdict = "insufficient_evidence"
    else:
        verdict = "healthy"
        notes += _sensitivity(world_size, tracker, peers, options)
    notes = missing + _left_out(totals) + notes
    observed_count = int(observed.sum())
    return Report(
        world_size=world_size,
        ranks_observed=observed_count,
        steps=totals.steps,
        collectives=totals.collectives,
        verdict=verdict,
        slowdown=totals.slowdown,
        idle_ratio=totals.idle_ratio,
        gamma=totals.gamma,
        wasted_gpu_s=_of_all_steps(totals) if totals.steps else None,
        findings=findings,
        complete=not lost and observed_count == world_size,
        dropped=lost,
        steps_left_out=totals.left_out,
        ranks=totals.rank_rows(_causes(findings)),
        notes=notes,
    )


def _kind_of(findings: list[Finding]) -> str:
    """Return the verdict: a job that stands still first, then what costs most."""
    kinds = [finding.kind for finding in findings]
    return next((kind for kind in ("hang", "desync") if kind in kinds), kinds[0])


def _of_all_steps(totals: Totals) -> float:
    """Return the waits of all steps, taken to be as in those whose collectives were recorded."""
    return totals.wasted_gpu_s * (totals.steps + totals.left_out) / totals.steps


def _for_all_steps(finding: Finding, totals: Totals, watch: CauseWatch) -> Finding:
    """Return the finding with the cost of the steps that a stride left out as well."""
    first, last = finding.first_step, finding.last_step
    if not totals.left_out or finding.wasted_gpu_s is None or first is None or last is None:
        return finding
    kept = watch.kept_steps([(first, last)])
    share = max((last - first + 1) / kept, 1.0) if kept else 1.0
    return replace(finding, wasted_gpu_s=finding.wasted_gpu_s * share)


def _causes(findings: list[Finding]) -> dict[int, str]:
    """Return the cause of the costliest finding about each rank that one names."""
    cause: dict[int, str] = {}
    for finding in findings:
        for rank in finding.ranks:
            cause.setdefault(rank, finding.cause)
    return cause


def _left_out(totals: Totals) -> list[str]:
    if not totals.steps or not totals.left_out:
        return []
    return [
        f"{totals.steps} of {counted(totals.steps + totals.left_out, 'step')} are in these "
        "figures; the "
        "collectives of the others were not recorded, as a stride or a lower level asked; "
        "wasted_gpu_s takes them to be alike"
    ]


def _material(
    tracker: EpisodeTracker,
    nodes: dict[int, str],
    phases_known: bool,
    options: Options,
    peers: PeerFinder,
    watch: CauseWatch,
) -> tuple[list[Finding], dict[int, float], list[str]]:
    """Return findings that cost enough, that cost by rank, and a note on each that does not."""
    if not tracker.episodes:
        return [], {}, []
    # Only imported where there is something to tell: starting is most of a small answer.
    from paceline_service.analysis.findings import Bystanders, alone_ratio, felt_ratio, finding_of

    findings: list[Finding] = []
    petty: dict[int, tuple[Finding, str]] = {}
    notes = []
    alone: dict[int, float] = {}
    felt: dict[int, float] = {}
    by_rank = sorted(tracker.episodes, key=lambda episode: (episode.rank, episode.first_step))
    slow = np.array(sorted({episode.rank for episode in by_rank}), dtype=np.int64)
    for rank, of_rank in groupby(by_rank, key=lambda episode: episode.rank):
        episodes = list(of_rank)
        gone = passing(episodes)
        if gone is not None:
            notes.append(gone)
            continue
        alone[rank], felt[rank] = alone_ratio(episodes), felt_ratio(episodes)
        group = next((g for g in peers.groups() if rank in g), np.array([rank], dtype=np.int64))
        finding = finding_of(
            episodes,
            Bystanders(
                watch=watch, nodes=nodes, phases_known=phases_known,
                peers=np.setdiff1d(group, slow, assume_unique=True),
            ),
        )  # fmt: skip
        finding = with_period(finding, episodes)
        if all(episode.transient for episode in episodes):
            notes.append(
                f"rank {rank} was slow for {counted(sum(e.steps for e in episodes), 'step')} from "
                f"step {finding.first_step} on, too short to say that it lasts"
            )
        elif alone[rank] >= options.material_ratio:
            findings.append(finding)
        else:
            against = "its peers" if episodes[-1].from_start else "it was"
            petty[rank] = (
                finding,
                (
                    f"rank {rank} is persistently {math.expm1(episodes[-1].shift):.1%} slower than "
                    f"{against}, but that costs the job only {alone[rank]:.2%}"
                ),
            )
    together = _of_costly_nodes(findings, petty, nodes, felt, options)
    notes += [note for rank, (_, note) in petty.items() if rank not in together]
    return findings + [petty[rank][0] for rank in together], alone, notes


def _of_costly_nodes(
    findings: list[Finding],
    petty: dict[int, tuple[Finding, str]],
    nodes: dict[int, str],
    felt: dict[int, float],
    options: Options,
) -> list[int]:
    """Return the ranks that cost too little each, but enough with the others of their node.

    Half of the node's ranks must be slow, and none of them hold most of the cost: a node at
    fault slows all that run on it, one rank at fault only makes its neighbours look a little slow.
    """
    slow = {finding.ranks[0] for finding in findings} | set(petty)
    out: list[int] = []
    if len(slow) < 2:
        return out
    for ranks in _ranks_of_node(nodes).values():
        mine = [rank for rank in ranks if rank in slow]
        share = sum(felt[rank] for rank in mine)
        even = 4 * max((felt[rank] for rank in mine), default=0.0) <= 3 * share
        if even and 2 <= len(mine) >= len(ranks) / 2 and share >= options.material_ratio:
            out += [rank for rank in mine if rank in petty]
    return out


def _missing(
    world_size: int,
    observed: BoolArray,
    totals: Totals,
    tracker: EpisodeTracker,
    peers: PeerFinder,
) -> list[str]:
    """Return why it cannot be said that nothing is wrong; empty when it can."""
    seen = int(observed.sum())
    if seen < 2:
        return [f"{seen} of {counted(world_size, 'rank')} were seen; comparing needs at least 2"]
    if not totals.steps and totals.left_out:
        return [
            f"of all steps that were seen ({totals.left_out}) the collectives of some rank were "
            "not recorded: the level was lower than `collectives` (docs/control.md)"
        ]
    if not totals.steps:
        return [
            "no whole step was seen: steps end with the optimizer's step, or with handle.step() "
            "in a job without one"
        ]
    if not totals.collectives:
        return ["no collective was seen: without one no rank waits for another"]
    reasons = []
    if totals.incomplete > totals.collectives / 2:
        reasons.append(
            f"{totals.incomplete} of {counted(totals.collectives, 'collective')} miss the record "
            "of a member"
        )
    if totals.unreleased_steps > totals.steps / 2:
        reasons.append(
            f"in {totals.unreleased_steps} of {counted(totals.steps, 'step')} the release of no "
            "collective is "
            "known (a GPU whose device timeline is not captured), so nobody's waiting was measured"
        )
    if seen < world_size:
        absent = np.flatnonzero(~observed)
        shown = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        reasons.append(f"{len(absent)} of {world_size} ranks were never seen ({shown})")
    largest = max((len(group) for group in peers.groups()), default=0)
    if largest < 2:
        reasons.append("no two ranks do the same work, so there is nobody to compare with")
        return reasons
    needed = least_steps(largest, world_size, tracker.gamma_steps)
    # Ranks that were slow from the start are looked for once per block of steps (from_start).
    needed += -needed % BLOCK_STEPS
    if tracker.judged_steps < needed:
        reasons.append(
            f"{counted(tracker.judged_steps, 'step')} could be judged; at one "
            f"false naming in the allowed time even the clearest fault takes {needed} with "
            f"{counted(largest, 'peer')}"
        )
    else:
        few = np.flatnonzero(observed & (tracker.scored_steps < needed))
        if len(few):
            shown = ", ".join(map(str, few[:8])) + (", ..." if len(few) > 8 else "")
            reasons.append(
                f"rank {shown} could be compared in fewer than {needed} steps: their step "
                "boundaries or their peers are missing"
            )
    return reasons


def _sensitivity(
    world_size: int, tracker: EpisodeTracker, peers: PeerFinder, options: Options
) -> list[str]:
    """Return how large a slowdown would have been seen: what `healthy` rules out."""
    baseline = tracker.baseline
    if baseline is None:
        return []
    shift = least_shift(
        tracker.judged_steps // 2,
        peers=max(len(group) for group in peers.groups()),
        ranks=world_size,
        gamma=tracker.gamma_steps,
        jitter=baseline.jitter,
        autocorrelation=baseline.autocorrelation,
        doubt=tracker.doubt,
    )
    return [
        f"a rank that became lastingly {math.expm1(shift):.1%} slower than its peers would have "
        f"been named in these {tracker.judged_steps} steps, one slow from its first step at "
        f"{math.expm1(max(shift, tracker.start_limit)):.1%}; their own time jitters by "
        f"{baseline.jitter:.1%} from step to step"
    ]


def _ranks_of_node(nodes: dict[int, str]) -> dict[str, list[int]]:
    ranks: dict[str, list[int]] = {}
    for rank, node in nodes.items():
        ranks.setdefault(node, []).append(rank)
    return ranks
