"""Is one pipeline stage heavier than the others on every replica? (docs/math/stages.md)."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.ranks import format_ranks
from paceline.vocabulary import Op, Phase, phase_name
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.evidence.stages import Places, find_places
from paceline_service.analysis.kinds.stages_blocks import Block, Blocks, heaviest_run, heavy_ratio
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.normal import normal_cdf
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.report import Finding
from paceline_service.analysis.sets import distinct, one_of
from paceline_service.analysis.whatif.costs import WhatIf
from paceline_service.analysis.whatif.sampler import WhatIfSampler

LEAST_STEPS = 8
CERTAIN = 4.0
"""Standard errors; 1 in 30,000 of a single stage by chance."""
REPLICAS_AGREE = 0.9
"""Share of the replicas that must show it: one slow rank makes no heavy stage."""
AGREEING_SHARE = 1 / 3
"""How much of what the typical replica shows each of these must show: of two replicas one slow rank
shifts the median, too."""
REPLAY_ERROR = 0.1
"""A replay further from the real steps than this says nothing about them."""
PHASE_SHARE = 0.7
_FORWARD, _BACKWARD = int(Phase.FORWARD), int(Phase.BACKWARD)
_PIPELINE_DIMS = ("", "pp", "pipe", "pipeline", "pipeline_parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heavy:
    """A stage that is too heavy: since when, how sure, and what it costs.

    ``ratio`` is (D,), the log of its work over the others' in each replica; ``costs`` the figures
    of replayed steps, ``share`` the part of their time in which it was so, and ``even_ratio`` what
    the steps in which it was so would be shorter by.
    """

    stage: int
    blocks: list[Block]
    from_start: bool
    ratio: FloatArray
    score: float
    costs: WhatIf
    even_ratio: float
    share: float

    @property
    def whole(self) -> Block:
        """All its steps."""
        return reduce(add, self.blocks)


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
        self._sampler = WhatIfSampler(world_size)
        self._blocks = Blocks()

    def see(self, step: JudgedStep) -> None:
        """Take the next step; those that a job begins with are compiling and are left out."""
        if step.row.step < self._options.settling_steps:
            return
        self._learn(step)
        self._sampler.see(step, self._places)
        places = self._places
        if places is None or (places.stage < 0).any() or not step.row.present.all():
            return  # a rank beside the pipeline has no stage to be compared with
        phases_ns = step.row.phase_self_ns[:, [_FORWARD, _BACKWARD]].astype(np.float64)
        work_ns = phases_ns.sum(axis=1)
        if not work_ns.any():
            work_ns = step.row.self_ns.astype(np.float64)
        if (work_ns <= 0).any():
            return
        logs = np.log(work_ns)
        logs = logs - logs.mean()
        of_stage = np.zeros((places.stages, 2))
        np.add.at(of_stage, places.stage, phases_ns)
        count = np.bincount(places.stage, minlength=places.stages)
        self._blocks.add(
            Block(
                first_step=step.row.step,
                last_step=step.row.step,
                steps=1,
                duration_ns=step.row.duration_ns,
                log_sum=logs,
                log_squares=logs**2,
                phase_ns=of_stage / count[:, None],
            )
        )

    def finish(self) -> None:
        """Let the last steps count: no more will come."""
        self._sampler.flush()

    def _learn(self, step: JudgedStep) -> None:
        if self._places is not None:
            return
        self._places = find_places(step.matches.rows, self._size)
        if self._places is not None:
            p2p = one_of(step.matches.rows.code, (int(Op.SEND), int(Op.RECV)))
            self._groups = set(map(int, distinct(step.matches.rows.group[p2p])))

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
        heavy = self._heaviest(places) if places is not None else None
        if heavy is None or places is None:
            return []
        ranks = np.flatnonzero(places.stage == heavy.stage)
        work_ns = heavy.costs.stage_work_ns / heavy.costs.steps
        whole = heavy.whole
        return [
            Finding(
                kind="stage_imbalance",
                ranks=ranks.tolist(),
                nodes=_nodes(ranks, facts),
                cause="compute",
                phase=_phase(whole.phase_ns, heavy.stage),
                first_step=0 if heavy.from_start else whole.first_step,
                last_step=whole.last_step,
                slowdown=math.exp(median_of(heavy.ratio)),
                recoverable_ratio=heavy.even_ratio,
                wasted_gpu_s=_idle_s(work_ns, places, heavy) * whole.steps,
                confidence=min(normal_cdf(heavy.score), 0.999999),
                evidence=_evidence(work_ns, places, heavy, facts),
                action=_action(work_ns, heavy.stage),
            )
        ]

    def _heaviest(self, places: Places) -> _Heavy | None:
        blocks = self._blocks.all
        if sum(block.steps for block in blocks) < LEAST_STEPS:
            return None
        per_block = np.stack([median_of(block.ratios(places)[0], axis=0) for block in blocks])
        steps = np.array([float(block.steps) for block in blocks])
        best: tuple[float, int, int, int] = (0.0, 0, 0, 0)
        for stage in range(places.stages):
            begin, end = heaviest_run(per_block[:, stage], steps)
            total = float((per_block[begin:end, stage] * steps[begin:end]).sum())
            best = max(best, (total, stage, begin, end))
        _, stage, begin, end = best
        if begin == end:
            return None
        whole = reduce(add, blocks[begin:end])
        ratios, errors = whole.ratios(places)
        ratio = ratios[:, stage]
        typical = median_of(ratio)
        heavy = math.log1p(heavy_ratio(len(ratio)))
        error = median_of(errors[:, stage]) / math.sqrt(len(ratio))
        score = (typical - heavy) / max(error, 1e-9)
        if whole.steps < LEAST_STEPS or score < CERTAIN:
            return None
        least = float(np.quantile(ratio, 1 - REPLICAS_AGREE, method="lower"))
        if least < max(heavy / 2, AGREEING_SHARE * typical):
            return None  # some of its ranks are slow, not the stage
        if begin and len(ratio) == 1:
            return None  # a rank that became slow, and no matter of the stages
        costs = self._sampler.figures() if not begin else self._sampler.newest()
        if costs is None or not costs.steps or abs(costs.error_ratio) > REPLAY_ERROR:
            return None
        share = 1.0
        if end < len(blocks):
            # It is over: what it cost all steps was lost in these.
            costs = self._sampler.figures() or costs
            share = whole.duration_ns / max(sum(block.duration_ns for block in blocks), 1)
        even_ratio = min(costs.even_ratio / max(share, 1e-9), 0.99)
        if even_ratio < self._options.material_ratio:
            return None
        return _Heavy(
            stage=stage, blocks=blocks[begin:end], from_start=begin == 0, ratio=ratio, score=score,
            costs=costs, even_ratio=even_ratio, share=share,
        )  # fmt: skip

    def notes(self, facts: JobFacts) -> list[str]:
        """Return what was not replayed."""
        if not self._sampler.too_large:
            return []
        return [
            f"{counted(self._sampler.too_large, 'step was', 'steps were')} too large to be "
            "replayed, so what removing ranks would give back is known from their self times only"
        ]

    def _pipeline(self, facts: JobFacts) -> Places | None:
        """Return the stages, unless the groups of the transfers are told to be something else."""
        dims = {
            facts.groups[group].mesh_dim.lower()
            for group in self._groups
            if group < len(facts.groups)
        }
        return self._places if dims <= set(_PIPELINE_DIMS) else None


def _nodes(ranks: NDArray[np.intp], facts: JobFacts) -> list[str]:
    return sorted({facts.nodes[rank] for rank in map(int, ranks) if rank in facts.nodes})


def _on_one_of_nodes(places: Places, stage: int, facts: JobFacts) -> bool:
    """Return whether all ranks of a stage are on one node, of several that the job runs on."""
    own = _nodes(np.flatnonzero(places.stage == stage), facts)
    return len(own) == 1 and len(set(facts.nodes.values())) > 1


def _phase(phase_ns: FloatArray, stage: int) -> str | None:
    """Return the phase that holds most of what the stage works more."""
    others = median_of(np.delete(phase_ns, stage, axis=0), axis=0)
    excess = np.maximum(phase_ns[stage] - others, 0)
    if excess.sum() <= 0 or excess.max() < PHASE_SHARE * excess.sum():
        return None
    return phase_name((Phase.FORWARD, Phase.BACKWARD)[int(excess.argmax())])


def _idle_s(work_ns: FloatArray, places: Places, heavy: _Heavy) -> float:
    """Return how many seconds per step the other ranks stand still because of the stage.

    That is by how much the steps are longer than with the stage as light as the others. Replayed
    is the stage at the mean of all; from there on the time falls as its work does.
    """
    stage, costs = heavy.stage, heavy.costs
    above_others = float(work_ns[stage] - median_of(np.delete(work_ns, stage)))
    above_mean = float(work_ns[stage] - work_ns.mean())
    if above_mean <= 0 or costs.base_ns <= 0:
        return 0.0
    repaired = 1 - float(costs.fixed_stage_ns[stage]) / costs.base_ns
    longer = np.clip(repaired * above_others / above_mean / heavy.share, 0.0, 1.0)
    others = int((places.stage >= 0).sum() - (places.stage == stage).sum())
    step_ns = heavy.whole.duration_ns / heavy.whole.steps
    return others * float(longer) * step_ns / 1e9


def _evidence(work_ns: FloatArray, places: Places, heavy: _Heavy, facts: JobFacts) -> list[str]:
    stage, ratio, costs = heavy.stage, heavy.ratio, heavy.costs
    others = median_of(np.delete(work_ns, stage))
    many = int((np.expm1(ratio) > heavy_ratio(len(ratio)) / 2).sum())
    last = ", the last," if stage == places.stages - 1 else ""
    since = "" if heavy.from_start else f" since about step {heavy.whole.first_step}"
    sentences = [
        f"stage {stage}{last} of {places.stages} works {_ms(work_ns[stage])} per step in forward "
        f"and backward against {_ms(others)} of the other stages (median), "
        f"{work_ns[stage] / others:.2f}x, over {heavy.whole.steps} steps{since}",
        f"so it is on {many} of {len(ratio)} replicas, by {np.expm1(ratio.min()):.1%} to "
        f"{np.expm1(ratio.max()):.1%}",
        f"with all stages at {_ms(work_ns.mean())} the steps would be {heavy.even_ratio:.1%} "
        f"shorter ({counted(costs.steps, 'step')} replayed, {abs(costs.error_ratio):.1%} off)",
        f"S = {costs.slowdown:.2f}: the steps take that many times what they would with every "
        "computation at the mean and every transfer at the median of its kind",
    ]
    share, top = costs.stage_share(stage), costs.top_share
    if share is not None and top is not None:
        sign = "M_S" if stage == places.stages - 1 else f"M of stage {stage}"
        sentences.append(
            f"of what is lost so, repairing the stage would give back {share:.0%} ({sign} = "
            f"{share:.2f}); the slowest 3 % of the ranks {top:.0%} (M_W = {top:.2f})"
        )
    if not heavy.from_start:
        sentences.append(
            "the cut of the model did not change then: look for what the ranks of that stage share"
        )
    if len(ratio) == 1:
        sentences.append(
            "there is one replica: a slow GPU in that stage would look the same; compare its "
            "clocks with those of the others"
        )
    elif _on_one_of_nodes(places, stage, facts):
        sentences.append(
            f"all its ranks are on {_nodes(np.flatnonzero(places.stage == stage), facts)[0]}: a "
            "slow node would look the same; swap two stages' nodes to tell"
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
