"""From an episode to a finding: cause, cost, evidence in sentences, what to do next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.vocabulary import Phase, phase_name
from paceline_service.analysis.causes.actions import action_for
from paceline_service.analysis.causes.explain import Explanation, Symptoms, explain
from paceline_service.analysis.causes.watch import CauseWatch
from paceline_service.analysis.evidence.episode import Episode
from paceline_service.analysis.matching.device import LAUNCHED_LATE_NS
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import Finding

_CAUSE_OF_PHASE = {
    Phase.HOST: "host",
    Phase.INPUT: "input",
    Phase.FORWARD: "compute",
    Phase.BACKWARD: "compute",
    Phase.OPTIMIZER: "compute",
    Phase.COPY: "input",
    Phase.CHECKPOINT: "host",
}
SECOND_PHASE_SHARE = 0.3
"""A second phase is mentioned when it holds at least this share of the excess."""
LEAST_PHASE_SHARE = 0.4
"""Below this share of the excess no phase is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystanders:
    """What of a job a finding is explained with.

    Attributes:
        watch: steps and telemetry.
        nodes: by rank, as far as known.
        peers: healthy ranks that do the same work as the slow one.
        phases_known: whether the job told its phases; without them everything is HOST.
    """

    watch: CauseWatch
    nodes: dict[int, str]
    peers: Int64Array
    phases_known: bool


def finding_of(episodes: list[Episode], beside: Bystanders) -> Finding:
    """Return what the episodes of one rank amount to.

    Args:
        episodes: all of one rank, in time order; at least one.
        beside: what else is known of the job.
    """
    last = episodes[-1]
    node = beside.nodes.get(last.rank, "")
    total = _Totals(episodes)
    phase, phase_cause, shares = _main_phase(total.phase_excess_ns, beside.phases_known)
    spans = [(e.first_step, e.end_step) for e in episodes]
    # Of a rank that stalls at a period only the stalls are counted, of its pauses all steps.
    steps = max(beside.watch.kept_steps(spans), total.steps, 1)
    symptoms = Symptoms(
        phase=phase,
        phase_cause=phase_cause,
        excess_ns=(total.self_ns - total.peer_self_ns) / steps,
        launched_late=total.launched_late,
        on_device=last.on_device,
    )
    around = beside.watch.surroundings(last.rank, beside.peers, spans, beside.nodes)
    why = explain(symptoms, around)
    if phase == "host" and why.cause in ("compute", "gpu_throttle"):
        phase = None  # the host stood still because its device was busy
    return Finding(
        kind="straggler",
        ranks=[last.rank],
        nodes=[node] if node else [],
        cause=why.cause,
        phase=phase,
        first_step=episodes[0].first_step,
        last_step=last.end_step,
        slowdown=total.self_ns / total.peer_self_ns if total.peer_self_ns > 0 else None,
        recoverable_ratio=total.recoverable_ratio,
        wasted_gpu_s=total.wasted_ns / 1e9,
        confidence=max(episode.confidence for episode in episodes),
        period_steps=last.period_steps,
        evidence=[
            *_evidence(episodes, total, phase, shares), *why.sentences, *_launches(total, why)
        ],
        action=action_for(
            why.remedy, why.cause, rank=last.rank, node=node,
            alone=len(set(beside.nodes.values())) < 2,
        ),
    )  # fmt: skip


def alone_ratio(episodes: list[Episode]) -> float:
    """Return the share of the time that the rank costs, or would were it the only slow one."""
    duration_ns = sum(episode.duration_ns for episode in episodes)
    alone_ns = sum(episode.alone_ns for episode in episodes)
    return max(alone_ns / duration_ns, felt_ratio(episodes)) if duration_ns else 0.0


def felt_ratio(episodes: list[Episode]) -> float:
    """Return the share of the job's GPU time that others wait for the rank beyond its peers'."""
    duration_ns = sum(episode.duration_ns for episode in episodes)
    return sum(episode.felt_ns for episode in episodes) / duration_ns if duration_ns else 0.0


class _Totals:
    """Sums over the episodes of one rank."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.steps = sum(e.steps for e in episodes)
        self.self_ns = sum(e.self_ns for e in episodes)
        self.peer_self_ns = sum(e.peer_self_ns for e in episodes)
        self.blamed_ns = sum(e.blamed_ns for e in episodes)
        self.wasted_ns = sum(e.wasted_ns for e in episodes)
        self.last_arrivals = sum(e.last_arrivals for e in episodes)
        self.contested = sum(e.contested for e in episodes)
        self.phase_excess_ns = np.sum([e.phase_excess_ns for e in episodes], axis=0)
        self.phase_peer_ns = np.sum([e.phase_peer_ns for e in episodes], axis=0)
        lags_ns = [lag for e in episodes for lag in e.launch_lags_ns]
        self.launch_lag_ns = median_of(lags_ns) if lags_ns else None
        duration_ns = sum(e.duration_ns for e in episodes)
        recoverable_ns = sum(e.recoverable_ns for e in episodes)
        self.recoverable_ratio = recoverable_ns / duration_ns if duration_ns else 0.0

    @property
    def launched_late(self) -> bool | None:
        """Whether the device stood idle until each launch: it waited for its host."""
        return None if self.launch_lag_ns is None else self.launch_lag_ns <= LAUNCHED_LATE_NS


def _main_phase(
    excess_ns: np.ndarray, phases_known: bool
) -> tuple[str | None, str, list[tuple[str, float]]]:
    """Return the phase that holds most of the excess, its cause, and every notable share."""
    if not phases_known:
        return None, "unknown", []
    positive = np.maximum(excess_ns, 0.0)
    if positive.sum() <= 0:
        return None, "unknown", []
    share = positive / positive.sum()
    order = np.argsort(-share, kind="stable")
    main = Phase(int(order[0]))
    shares = [
        (phase_name(Phase(int(i))), float(share[i]))
        for i in order
        if share[i] >= SECOND_PHASE_SHARE or i == order[0]
    ]
    if share[order[0]] < LEAST_PHASE_SHARE:
        return None, "unknown", shares
    return phase_name(main), _CAUSE_OF_PHASE[main], shares


def _evidence(
    episodes: list[Episode], total: _Totals, phase: str | None, shares: list[tuple[str, float]]
) -> list[str]:
    last = episodes[-1]
    steps = max(total.steps, 1)
    own_ms, peer_ms = total.self_ns / steps / 1e6, total.peer_self_ns / steps / 1e6
    since = "from the first step" if last.from_start and len(episodes) == 1 else (
        f"since step {episodes[0].first_step}"
    )  # fmt: skip
    sentences = [
        f"rank {last.rank} needed {own_ms:.1f} ms of its own time per step against "
        f"{peer_ms:.1f} ms of its peers (median) {since}, over {total.steps} steps"
    ]
    if phase is not None:
        index = Phase[phase.upper()]
        there_ms = (total.phase_excess_ns[index] + total.phase_peer_ns[index]) / steps / 1e6
        sentences.append(
            f"it lost {total.phase_excess_ns[index] / steps / 1e6:.1f} ms per step in {phase} "
            f"({there_ms:.1f} ms against {total.phase_peer_ns[index] / steps / 1e6:.1f} ms), "
            f"{shares[0][1]:.0%} of all it lost"
        )
        sentences += [f"{name} holds another {share:.0%}" for name, share in shares[1:]]
    if total.contested:
        sentences.append(
            f"it arrived last at {total.last_arrivals} of the "
            f"{counted(total.contested, 'collective')} whose last arriver stood out"
        )
    sentences.append(
        f"its peers stood still {total.blamed_ns / 1e9:.2f} GPU-seconds for it, "
        f"{total.wasted_ns / 1e9:.2f} of which they would not have without it; these steps would "
        f"have been {total.recoverable_ratio:.1%} shorter"
    )
    if not last.open:
        sentences.append(f"it recovered after step {last.last_step}")
    if len(episodes) > 1:
        spans = ", ".join(f"{e.first_step}-{e.end_step}" for e in episodes)
        sentences.append(f"it was slow {len(episodes)} times: steps {spans}")
    return sentences


def _launches(total: _Totals, why: Explanation) -> list[str]:
    if total.launch_lag_ns is None or why.cause in ("gc", "input"):
        return []
    lag = f"{total.launch_lag_ns / 1e6:.2f} ms after their launch"
    if total.launched_late:
        return [f"its GPU waited for the host: its collectives started {lag}"]
    return [f"its GPU was busy: its collectives started {lag}"]


def merge_by_node(
    findings: list[Finding], ranks_of_node: dict[str, list[int]], alone: dict[int, float]
) -> list[Finding]:
    """Return findings with all ranks of one node joined into one about the node.

    What draining one of them gives back is little while the others are slow too; the node's
    share is the largest that one of its ranks would cost alone (``alone``, by rank).

    A node is named when the job runs on other nodes too, and at least two of its ranks are
    flagged: all of them, or most of more than two.
    """
    out = list(findings)
    if len(ranks_of_node) < 2:
        return out
    for node, ranks in ranks_of_node.items():
        mine = [f for f in out if f.nodes == [node] and len(f.ranks) == 1]
        if len(mine) < 2 or (len(mine) < len(ranks) and 2 * len(mine) <= max(len(ranks), 4)):
            continue
        out = [f for f in out if f not in mine] + [_about_node(node, len(ranks), mine, alone)]
    return out


def _about_node(node: str, size: int, mine: list[Finding], alone: dict[int, float]) -> Finding:
    """Return the findings about ranks of ``node``, which has ``size`` of them, as one."""
    worst = max(mine, key=lambda f: f.wasted_gpu_s or 0.0)
    cause, phase = _shared(mine)
    ranks = sorted(f.ranks[0] for f in mine)
    slowdowns = [f.slowdown for f in mine if f.slowdown is not None]
    wasted_gpu_s = sum(f.wasted_gpu_s or 0.0 for f in mine)
    share = max(alone[rank] for rank in ranks)
    of_cause = next(f for f in [worst, *mine] if f.cause == cause)
    return replace(
        of_cause,
        ranks=ranks,
        phase=phase,
        first_step=min(f.first_step for f in mine if f.first_step is not None),
        last_step=max(f.last_step for f in mine if f.last_step is not None),
        slowdown=median_of(slowdowns) if slowdowns else None,
        recoverable_ratio=share,
        wasted_gpu_s=wasted_gpu_s,
        confidence=max(f.confidence or 0.0 for f in mine),
        evidence=[
            f"{'all' if len(ranks) == size else f'{len(ranks)} of'} {size} ranks of node {node} "
            "are slow: their own time is "
            f"{min(slowdowns, default=1):.2f} to {max(slowdowns, default=1):.2f} times a peer's",
            f"others stood still {wasted_gpu_s:.2f} GPU-seconds longer for them; without the node "
            f"these steps would have been {share:.1%} shorter",
            *(f"rank {of_cause.ranks[0]}: {sentence}" for sentence in of_cause.evidence),
        ],
        action=(of_cause.action or "").replace(f"-rank-{of_cause.ranks[0]}", ""),
    )


def _shared(mine: list[Finding]) -> tuple[str, str | None]:
    """Return the cause and the phase that hold most of the cost; no phase without a majority."""
    cost: dict[str, float] = {}
    phases: dict[str | None, float] = {}
    for finding in mine:
        wasted = (finding.wasted_gpu_s or 0.0) + 1e-9
        cost[finding.cause] = cost.get(finding.cause, 0.0) + wasted
        phases[finding.phase] = phases.get(finding.phase, 0.0) + wasted
    cause = max(cost, key=lambda name: cost[name])
    phase = max(phases, key=lambda name: phases[name])
    return cause, phase if phases[phase] > sum(phases.values()) / 2 else None
