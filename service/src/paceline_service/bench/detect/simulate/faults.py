"""What is made slow in a simulated job, and when: the truth that a benchmark scores against."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import EXCLUSIVE_PHASES, Phase
from paceline_service.bench.detect.simulate.layout import GroupClass

FloatArray = NDArray[np.float64]
PHASES = len(EXCLUSIVE_PHASES)
COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
PHASES_OF_CAUSE = {
    "compute": COMPUTE,
    "gpu_throttle": COMPUTE,
    "gpu_fault": COMPUTE,
    "input": (Phase.INPUT,),
    "host": (Phase.HOST,),
    "gc": (Phase.FORWARD,),
}
FOREVER = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``slowdown`` is the share that is added: to the own time of ``ranks``, or to transfers.

    Attributes:
        kind: ``rank``, ``node``, ``stage``, ``job`` (everybody), ``rotating`` (one rank, another in
            each step), ``nic`` (all that leaves ``nodes[0]``) or ``link`` (between two nodes).
        ranks: who; empty for links.
        nodes: which, for ``node``, ``nic`` and ``link``.
        first: first step.
        last: last step.
        ramp_steps: over how many steps it creeps up to its full size.
        period_steps: 0, or it comes in the first ``width_steps`` steps of every such period.
    """

    kind: str
    slowdown: float
    cause: str = "compute"
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    first: int = 0
    last: int = FOREVER
    ramp_steps: int = 0
    period_steps: int = 0
    width_steps: int = 1

    def size_at(self, step: int) -> float:
        """Return the slowdown that holds in ``step``."""
        if not self.first <= step <= self.last:
            return 0.0
        since = step - self.first
        if self.period_steps and since % self.period_steps >= self.width_steps:
            return 0.0
        ramp = min((since + 1) / self.ramp_steps, 1.0) if self.ramp_steps else 1.0
        return self.slowdown * ramp

    @property
    def on_network(self) -> bool:
        """Whether it slows transfers, not ranks."""
        return self.kind in ("nic", "link")

    def transfer_factor(self, groups: GroupClass, size: float) -> FloatArray:
        """Return (G,) by how much the transfers of each group take longer; 1 is as before."""
        touched = (
            groups.within(self.nodes[0])
            if self.kind == "nic"
            else groups.joins(self.nodes[0], self.nodes[1])
        )
        return np.where(touched, 1.0 + size, 1.0)

    def pair_factor(self, source: NDArray[np.int64], target: NDArray[np.int64],
                    size: float) -> FloatArray:  # fmt: skip
        """Return by how much a message between each pair of nodes takes longer."""
        if self.kind == "nic":
            touched = (source != target) & ((source == self.nodes[0]) | (target == self.nodes[0]))
        else:
            one, other = self.nodes
            touched = ((source == one) & (target == other)) | ((source == other) & (target == one))
        return np.where(touched, 1.0 + size, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Healthy things that look slow. A number of 0 switches one off.

    Attributes:
        warm_up_steps: the first steps compile: up to ``warm_up_ratio`` more, different per rank.
        recompile_step: one later step in which every rank compiles again.
        eval_every: an evaluation follows each so many steps, ``eval_ratio`` of a step long.
        checkpoint_every: a checkpoint each so many steps, about ``checkpoint_ratio`` of a step.
        checkpoint_rank: who writes it; -1 is everybody.
        sequence_cv: the lengths of sequences differ between replicas and steps.
        resize: (step, ranks) from which the job runs on so many ranks.
    """

    warm_up_steps: int = 0
    warm_up_ratio: float = 8.0
    recompile_step: int = 0
    eval_every: int = 0
    eval_ratio: float = 2.0
    checkpoint_every: int = 0
    checkpoint_ratio: float = 2.0
    checkpoint_rank: int = -1
    sequence_cv: float = 0.0
    resize: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Slowness:
    """What the faults do to one step: factors of (phase, rank), and the sizes of the others."""

    factor: FloatArray
    pauses: FloatArray
    """(R,) share of the slowdown that is a pause of the garbage collector; 0 is none."""
    network: list[tuple[Fault, float]] = field(default_factory=list)


def slowness_at(
    step: int, faults: tuple[Fault, ...], ranks: int, phase_ns: FloatArray, rotating: int
) -> Slowness:
    """Return what holds in ``step``.

    A rank that is slow by s takes 1 + s times its own time of the whole step; the phases of the
    cause hold all of the excess.

    Args:
        step: its number.
        faults: all of the job.
        ranks: R.
        phase_ns: (7,) own time per phase without faults, ns.
        rotating: the rank whose turn it is.
    """
    slow = Slowness(factor=np.ones((PHASES, ranks)), pauses=np.zeros(ranks))
    for fault in faults:
        size = fault.size_at(step)
        if size <= 0:
            continue
        if fault.on_network:
            slow.network.append((fault, size))
            continue
        phases = np.array(PHASES_OF_CAUSE[fault.cause], dtype=np.int64)
        if fault.kind == "rotating":
            hit = np.array([rotating])
        else:
            hit = np.array(fault.ranks or range(ranks))
        share = size * phase_ns.sum() / phase_ns[phases].sum()
        slow.factor[np.ix_(phases, hit)] += share
        if fault.cause == "gc":
            slow.pauses[hit] += share
    return slow
