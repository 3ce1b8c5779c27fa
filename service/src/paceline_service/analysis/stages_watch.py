"""Is one pipeline stage heavier than the others on every replica? (docs/math/stages.md)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from paceline.ranks import format_ranks
from paceline.vocabulary import Op, Phase, phase_name
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.report import Finding
from paceline_service.analysis.stages import find_places
from paceline_service.analysis.whatif import Places, WhatIf
from paceline_service.analysis.whatif_sampler import WhatIfSampler

HEAVY_RATIO = 0.05
"""How much more than the others a stage must work to be a finding. A stage holds whole layers, 4 to
20 of them as a rule: below a twentieth there is nothing to move."""
LEAST_STEPS = 8
EARLY_STEPS = 32
"""A model is cut before it runs: what was not there in these steps is no matter of its cut."""
EARLY_SHARE = 0.5
CERTAIN = 4.0
"""Standard errors; 1 in 30,000 of a single stage by chance."""
CORRELATED = 1.25
"""How much larger a standard error is at the lag-1 autocorrelation of 0.2 of real jobs: the square
root of (1 + 0.2) / (1 - 0.2), DETECTION section 4."""
REPLICAS_AGREE = 0.9
"""Share of the replicas that must show it: one slow rank makes no heavy stage."""
REPLAY_ERROR = 0.1
"""A replay further from the real steps than this says nothing about them."""
PHASE_SHARE = 0.7
_FORWARD, _BACKWARD = int(Phase.FORWARD), int(Phase.BACKWARD)
_PIPELINE_DIMS = ("", "pp", "pipe", "pipeline", "pipeline_parallel")


@dataclass(slots=True)
class _Sums:
    """Of the logarithms of a rank's work, its replica's mean removed; (R,) each."""

    steps: int
    log_sum: FloatArray
    log_squares: FloatArray


class StageWatch:
    """A channel: learns the stages, compares their work, and replays steps for what it costs.

    Args:
        world_size: R.
        options: how cautious to be.
    """

    def __init__(self, world_size: int, options: Options) -> None:
        self._size = world_size
        self._options = options
        self._places: Places | None = None
        self._groups: set[int] = set()
        self._last_step = -1
        self._sampler = WhatIfSampler(world_size)
        self._clear()

    def _clear(self) -> None:
        self._all = self._fresh()
        self._early: _Sums | None = None
        self._phase_ns = np.zeros((self._size, 2))
        self._duration_ns = 0

    def _fresh(self) -> _Sums:
        return _Sums(steps=0, log_sum=np.zeros(self._size), log_squares=np.zeros(self._size))

    def see(self, step: JudgedStep) -> None:
        """Take the next step; those that a job begins with are compiling and are left out."""
        if step.row.step < self._options.settling_steps:
            return
        self._learn(step)
        self._sampler.see(step, self._places)
        work_ns = step.row.phase_self_ns[:, [_FORWARD, _BACKWARD]].astype(np.float64)
        if self._places is None or not step.row.present.all():
            return
        total_ns = work_ns.sum(axis=1)
        if not total_ns.any():
            total_ns = step.row.self_ns.astype(np.float64)
        if (total_ns <= 0).any():
            return
        logs = np.log(total_ns)
        logs = logs - logs.mean()
        self._last_step = step.row.step
        self._duration_ns += step.row.duration_ns
        self._phase_ns += np.maximum(work_ns, 0)
        self._all.steps += 1
        self._all.log_sum += logs
        self._all.log_squares += logs**2
        if self._all.steps == EARLY_STEPS:
            self._early = _Sums(
                steps=EARLY_STEPS,
                log_sum=self._all.log_sum.copy(),
                log_squares=self._all.log_squares.copy(),
            )

    def _learn(self, step: JudgedStep) -> None:
        if self._places is not None:
            return
        self._places = find_places(step.matches.rows, self._size)
        if self._places is not None:
            p2p = np.isin(step.matches.rows.code, (int(Op.SEND), int(Op.RECV)))
            self._groups = set(map(int, np.unique(step.matches.rows.group[p2p])))
            self._clear()

    @property
    def places(self) -> Places | None:
        """Stage and replica of every rank; None where no pipeline was seen."""
        return self._places

    def figures(self, facts: JobFacts) -> dict[str, Any] | None:
        """Return the block ``what_if`` of the report; None when nothing was replayed."""
        found = self._sampler.figures()
        if found is None or not found.steps or abs(found.error_ratio) > REPLAY_ERROR:
            return None
        places = self._pipeline(facts)
        slow = found.rank_slowdowns
        block: dict[str, Any] = {
            "steps": found.steps,
            "slowdown": found.slowdown,
            "replay_error": found.error_ratio,
            "m_w": found.top_share,
            "m_s": None,
            "ranks": [{"rank": rank, "slowdown": float(slow[rank])} for rank in found.top],
            "stages": [],
        }
        if places is not None and len(found.fixed_stage_ns):
            block["m_s"] = found.stage_share(places.stages - 1)
            block["stages"] = [
                {
                    "stage": stage,
                    "ranks": format_ranks(np.flatnonzero(places.stage == stage).tolist()),
                    "work_ns": round(float(found.stage_work_ns[stage]) / found.steps),
                    "slowdown": float(found.stage_slowdowns[stage]),
                    "share": found.stage_share(stage),
                }
                for stage in range(places.stages)
            ]
        return block

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return at most one finding: the stage that is heaviest, if it is too heavy."""
        places = self._pipeline(facts)
        if places is None or self._all.steps < LEAST_STEPS:
            return []
        ratio, error = _replica_ratios(self._all, places)
        agreed = np.quantile(ratio, 1 - REPLICAS_AGREE, axis=0, method="lower")
        stage = int(np.argmax(agreed))
        least = float(agreed[stage])
        doubt = float(np.median(error[:, stage]))
        score = (least - np.log1p(HEAVY_RATIO)) / max(doubt, 1e-9)
        if score < CERTAIN or not self._was_so_from_the_start(places, stage, least):
            return []
        found = self._sampler.figures()
        if found is None or abs(found.error_ratio) > REPLAY_ERROR:
            return []
        if found.even_ratio < self._options.material_ratio:
            return []
        return [self._finding(places, stage, ratio[:, stage], score, found, facts)]

    def notes(self, facts: JobFacts) -> list[str]:
        """Return what was not replayed."""
        if not self._sampler.too_large:
            return []
        return [
            f"{self._sampler.too_large} steps were too large to be replayed, so what removing "
            "ranks would give back is known from their self times only"
        ]

    def _was_so_from_the_start(self, places: Places, stage: int, least: float) -> bool:
        if self._early is None:
            return True
        ratio, _ = _replica_ratios(self._early, places)
        early = np.quantile(ratio[:, stage], 1 - REPLICAS_AGREE, method="lower")
        return bool(early >= EARLY_SHARE * least)

    def _pipeline(self, facts: JobFacts) -> Places | None:
        """Return the stages, unless the groups of the transfers are told to be something else."""
        dims = {
            facts.groups[group].mesh_dim.lower()
            for group in self._groups
            if group < len(facts.groups)
        }
        return self._places if dims <= set(_PIPELINE_DIMS) else None

    def _finding(
        self, places: Places, stage: int, ratio: FloatArray, score: float, found: WhatIf,
        facts: JobFacts,
    ) -> Finding:  # fmt: skip
        ranks = np.flatnonzero(places.stage == stage)
        nodes = sorted({facts.nodes[int(r)] for r in ranks if int(r) in facts.nodes})
        work_ns = found.stage_work_ns / found.steps
        others = np.delete(work_ns, stage)
        share = found.stage_share(stage)
        steps = self._all.steps
        return Finding(
            kind="stage_imbalance",
            ranks=ranks.tolist(),
            nodes=nodes,
            cause="compute",
            phase=self._phase(places, stage),
            first_step=0,
            last_step=self._last_step,
            slowdown=float(work_ns[stage] / np.median(others)),
            recoverable_ratio=found.even_ratio,
            wasted_gpu_s=_idle_s(work_ns, places, stage, found) * steps,
            confidence=min(NormalDist().cdf(score), 0.999999),
            evidence=_evidence(work_ns, places, stage, ratio, steps, found, share, nodes, facts),
            action=_action(work_ns, stage),
        )

    def _phase(self, places: Places, stage: int) -> str | None:
        """Return the phase that holds most of what the stage works more."""
        mean = np.stack(
            [self._phase_ns[places.stage == s].mean(axis=0) for s in range(places.stages)]
        )
        excess = np.maximum(mean[stage] - np.median(np.delete(mean, stage, axis=0), axis=0), 0)
        if excess.sum() <= 0 or excess.max() < PHASE_SHARE * excess.sum():
            return None
        return phase_name((Phase.FORWARD, Phase.BACKWARD)[int(excess.argmax())])


def _replica_ratios(sums: _Sums, places: Places) -> tuple[FloatArray, FloatArray]:
    """Return (D, S) log of each stage's work over the median of the others, and its error."""
    mean = sums.log_sum / sums.steps
    variance = np.maximum(sums.log_squares / sums.steps - mean**2, 0)
    error = CORRELATED * np.sqrt(2 * variance / sums.steps)
    replicas = int(places.replica.max()) + 1
    logs, errors = np.zeros((replicas, places.stages)), np.zeros((replicas, places.stages))
    known = places.stage >= 0
    logs[places.replica[known], places.stage[known]] = mean[known]
    errors[places.replica[known], places.stage[known]] = error[known]
    others = np.stack(
        [np.median(np.delete(logs, s, axis=1), axis=1) for s in range(places.stages)], axis=1
    )
    return logs - others, errors


def _idle_s(work_ns: FloatArray, places: Places, stage: int, found: WhatIf) -> float:
    """Return by how many seconds per step the other ranks would stand still less, were it even."""
    count = np.bincount(places.stage[places.stage >= 0], minlength=places.stages).astype(float)
    count[stage] = 0
    shorter_ns = (found.base_ns - found.even_ns) / found.steps
    idle_ns = count.sum() * shorter_ns + float((count * (work_ns.mean() - work_ns)).sum())
    return max(float(idle_ns), 0.0) / 1e9


def _evidence(
    work_ns: FloatArray, places: Places, stage: int, ratio: FloatArray, steps: int, found: WhatIf,
    share: float | None, nodes: list[str], facts: JobFacts,
) -> list[str]:  # fmt: skip
    others = np.median(np.delete(work_ns, stage))
    heavy = int((np.expm1(ratio) > HEAVY_RATIO).sum())
    last = ", the last," if stage == places.stages - 1 else ""
    sentences = [
        f"stage {stage}{last} of {places.stages} works {_ms(work_ns[stage])} per step in forward "
        f"and backward against {_ms(others)} of the other stages (median), "
        f"{work_ns[stage] / others:.2f}x, over {steps} steps",
        f"so it is on {heavy} of {len(ratio)} replicas, by {np.expm1(ratio.min()):.1%} to "
        f"{np.expm1(ratio.max()):.1%}",
        f"with all stages at {_ms(work_ns.mean())} the steps would be {found.even_ratio:.1%} "
        f"shorter ({found.steps} steps replayed, {abs(found.error_ratio):.1%} off)",
        f"S = {found.slowdown:.2f}: the steps take that many times what they would with every "
        "computation at the mean and every transfer at the median of its kind",
    ]
    if share is not None and found.top_share is not None:
        sign = "M_S" if stage == places.stages - 1 else f"M of stage {stage}"
        sentences.append(
            f"of what is lost so, repairing the stage would give back {share:.0%} ({sign} = "
            f"{share:.2f}); the slowest 3 % of the ranks {found.top_share:.0%} (M_W = "
            f"{found.top_share:.2f})"
        )
    if len(ratio) == 1:
        sentences.append(
            "there is one replica: a slow GPU in that stage would look the same; compare its "
            "clocks with those of the others"
        )
    elif len(nodes) == 1 and len(set(facts.nodes.values())) > 1:
        sentences.append(
            f"all its ranks are on {nodes[0]}: a slow node would look the same; swap two stages' "
            "nodes to tell"
        )
    return sentences


def _action(work_ns: FloatArray, stage: int) -> str:
    excess = 1 - float(work_ns.mean() / work_ns[stage])
    lightest = int(np.argmin(work_ns))
    return (
        f"# move {excess:.0%} of the layers of stage {stage} to the other stages, first to stage "
        f"{lightest}: {_ms(work_ns[stage])} per step against {_ms(work_ns[lightest])}, "
        f"{_ms(work_ns.mean())} when even"
    )


def _ms(time_ns: Any) -> str:
    return f"{float(time_ns) / 1e6:.1f} ms"
