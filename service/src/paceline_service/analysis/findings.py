"""From an episode to a finding: cause, cost, evidence in sentences, what to do next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.vocabulary import Phase, phase_name
from paceline_service.analysis.device import LAUNCHED_LATE_NS
from paceline_service.analysis.episode import Episode
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


def finding_of(
    episodes: list[Episode], *, node: str, phases_known: bool, single_node: bool
) -> Finding:
    """Return what the episodes of one rank amount to.

    Args:
        episodes: all of one rank, in time order; at least one.
        node: its node's name, empty when unknown.
        phases_known: whether the job told its phases; without them everything is HOST.
        single_node: whether the whole job runs on one node, which then cannot be drained.
    """
    last = episodes[-1]
    total = _Totals(episodes)
    phase, cause, shares = _main_phase(total.phase_excess_ns, phases_known)
    if cause == "compute" and total.launched_late:
        cause = "host"
    elif phase == "host" and not last.on_device and total.launched_late is False:
        phase, cause = None, "compute"  # the host stood still because its device was busy
    return Finding(
        kind="straggler",
        ranks=[last.rank],
        nodes=[node] if node else [],
        cause=cause,
        phase=phase,
        first_step=episodes[0].first_step,
        last_step=last.end_step,
        slowdown=total.self_ns / total.peer_self_ns if total.peer_self_ns > 0 else None,
        recoverable_ratio=total.recoverable_ratio,
        wasted_gpu_s=total.blamed_ns / 1e9,
        confidence=max(episode.confidence for episode in episodes),
        evidence=_evidence(episodes, total, phase, shares) + _launches(total),
        action=_action(last.rank, node, cause, alone=single_node),
    )


def alone_ratio(episodes: list[Episode]) -> float:
    """Return the share of the time the rank would cost were it the only slow one."""
    duration_ns = sum(episode.duration_ns for episode in episodes)
    return sum(episode.alone_ns for episode in episodes) / duration_ns if duration_ns else 0.0


class _Totals:
    """Sums over the episodes of one rank."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.steps = sum(e.steps for e in episodes)
        self.self_ns = sum(e.self_ns for e in episodes)
        self.peer_self_ns = sum(e.peer_self_ns for e in episodes)
        self.blamed_ns = sum(e.blamed_ns for e in episodes)
        self.last_arrivals = sum(e.last_arrivals for e in episodes)
        self.contested = sum(e.contested for e in episodes)
        self.phase_excess_ns = np.sum([e.phase_excess_ns for e in episodes], axis=0)
        self.phase_peer_ns = np.sum([e.phase_peer_ns for e in episodes], axis=0)
        lags_ns = [lag for e in episodes for lag in e.launch_lags_ns]
        self.launch_lag_ns = float(np.median(lags_ns)) if lags_ns else None
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
            f"it arrived last at {total.last_arrivals} of the {total.contested} collectives "
            "whose last arriver stood out"
        )
    sentences.append(
        f"its peers stood still {total.blamed_ns / 1e9:.2f} GPU-seconds for it; without it these "
        f"steps would have been {total.recoverable_ratio:.1%} shorter"
    )
    if not last.open:
        sentences.append(f"it recovered after step {last.last_step}")
    if len(episodes) > 1:
        spans = ", ".join(f"{e.first_step}-{e.end_step}" for e in episodes)
        sentences.append(f"it was slow {len(episodes)} times: steps {spans}")
    return sentences


def _launches(total: _Totals) -> list[str]:
    if total.launch_lag_ns is None:
        return []
    lag = f"{total.launch_lag_ns / 1e6:.2f} ms after their launch"
    if total.launched_late:
        return [f"its GPU waited for the host: its collectives started {lag}"]
    return [f"its GPU was busy: its collectives started {lag}"]


def _action(rank: int, node: str, cause: str, *, alone: bool) -> str:
    """Return the next command; ``alone``: there is no other node to move the job to."""
    if cause == "input":
        return f"iostat -x 1 3; top -b -n 1 | head -20  # on {node or f'the node of rank {rank}'}"
    if cause == "host":
        return f"py-spy dump --pid PID_OF_RANK_{rank}  # twice, in a slow step; then top -b -n 1"
    if alone or not node:
        return (
            f"nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE  # for rank {rank}; then top -b -n 1"
        )
    return f"scontrol update nodename={node} state=drain reason=paceline-straggler-rank-{rank}"


def merge_by_node(
    findings: list[Finding], ranks_of_node: dict[str, list[int]], alone: dict[int, float]
) -> list[Finding]:
    """Return findings with all ranks of one node joined into one about the node.

    What draining one of them gives back is little while the others are slow too; the node's
    share is the largest that one of its ranks would cost alone (``alone``, by rank).

    A node is named when every one of its ranks is flagged, it has at least two, and the job
    runs on other nodes too.
    """
    out = list(findings)
    if len(ranks_of_node) < 2:
        return out
    for node, ranks in ranks_of_node.items():
        mine = [f for f in out if f.nodes == [node] and len(f.ranks) == 1]
        if len(ranks) < 2 or {f.ranks[0] for f in mine} != set(ranks):
            continue
        out = [f for f in out if f not in mine] + [_about_node(node, mine, alone)]
    return out


def _about_node(node: str, mine: list[Finding], alone: dict[int, float]) -> Finding:
    """Return the findings about each rank of ``node`` as one."""
    worst = max(mine, key=lambda f: f.wasted_gpu_s or 0.0)
    ranks = sorted(f.ranks[0] for f in mine)
    slowdowns = [f.slowdown for f in mine if f.slowdown is not None]
    wasted_gpu_s = sum(f.wasted_gpu_s or 0.0 for f in mine)
    share = max(alone[rank] for rank in ranks)
    return replace(
        worst,
        ranks=ranks,
        first_step=min(f.first_step for f in mine if f.first_step is not None),
        last_step=max(f.last_step for f in mine if f.last_step is not None),
        slowdown=float(np.median(slowdowns)) if slowdowns else None,
        recoverable_ratio=share,
        wasted_gpu_s=wasted_gpu_s,
        confidence=max(f.confidence or 0.0 for f in mine),
        evidence=[
            f"all {len(ranks)} ranks of node {node} are slow: their own time is "
            f"{min(slowdowns, default=1):.2f} to {max(slowdowns, default=1):.2f} times a peer's",
            f"others stood still {wasted_gpu_s:.2f} GPU-seconds for them; without the node "
            f"these steps would have been {share:.1%} shorter",
            *(f"its worst: {sentence}" for sentence in worst.evidence[:1]),
            *(f"its worst, rank {worst.ranks[0]}: {sentence}" for sentence in worst.evidence[1:2]),
        ],
        action=f"scontrol update nodename={node} state=drain reason=paceline-straggler",
    )
