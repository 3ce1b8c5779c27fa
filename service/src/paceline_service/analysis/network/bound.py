"""A job that communicates longer than it computes with nothing broken (docs/math/network.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import Op, Phase, op_name
from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.network.fit import TransferFit
from paceline_service.analysis.network.levels import sizes_of
from paceline_service.analysis.network.table import ClassTable
from paceline_service.analysis.network.words import time_of
from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.report import Finding

ERRORS = 4.0
"""gamma must exceed 1 by so many standard errors: once in 30,000 by chance."""
FITTED_CLASSES = 64
"""The costliest classes stand for all of their kind: a large job has thousands alike."""
_WITH_BATCH = [int(phase) for phase in (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.COPY)]
"""Phases that take longer with a larger batch; the optimizer's step does not."""


class CommunicationShare:
    """Sums over the steps of exposed communication c and compute s, all ranks together, ns."""

    def __init__(self) -> None:
        self.steps = 0
        self.first_step = 0
        self.last_step = 0
        self._sums = np.zeros(5)
        self._with_batch_ns = 0.0

    def add(self, row: StepRow, exposed_ns: float) -> None:
        """Add a step in which the ranks stood still ``exposed_ns`` for transfers."""
        here = row.present
        busy_ns = float(row.self_ns[here].sum())
        if busy_ns <= 0:
            return
        if not self.steps:
            self.first_step = row.step
        self.last_step = row.step
        self.steps += 1
        c, s = exposed_ns, busy_ns
        self._sums += (c, s, c * c, s * s, c * s)
        self._with_batch_ns += float(row.phase_self_ns[here][:, _WITH_BATCH].sum())

    @property
    def exposed_ns(self) -> float:
        """Sum of c."""
        return float(self._sums[0])

    @property
    def compute_ns(self) -> float:
        """Sum of s."""
        return float(self._sums[1])

    def least_gamma(self) -> float:
        """Return the lower confidence bound of c / s: the delta method for a ratio of sums."""
        if self.steps < 2 or self.compute_ns <= 0:
            return 0.0
        gamma = self.exposed_ns / self.compute_ns
        c, s, cc, ss, cs = self._sums / self.steps
        variance = (cc - c * c) - 2 * gamma * (cs - c * s) + gamma**2 * (ss - s * s)
        error = np.sqrt(max(float(variance), 0.0) / (self.steps - 1)) / s
        return gamma - ERRORS * float(error)

    def batch_factor(self, exposed_ns: float) -> float | None:
        """Return how many times the batch makes compute as long as communication."""
        scaling = self._with_batch_ns or self.compute_ns
        fixed = self.compute_ns - scaling
        return (exposed_ns - fixed) / scaling if scaling > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What the finding about a communication-bound job is made of."""

    share: CommunicationShare
    table: ClassTable
    fits: Callable[[NDArray[np.intp]], list[TransferFit]]
    """The fits of the series of some classes."""
    exposed_ns: FloatArray
    """(C,) exposed communication of each class."""
    excess_ns: float
    """What of it slow places are to blame for."""
    least_steps: int
    world_size: int


def bound_finding(bound: Bound) -> list[Finding]:
    """Return the finding, or nothing: gamma is below 1, or would be without the slow places."""
    share = bound.share
    exposed_ns = share.exposed_ns - bound.excess_ns
    if share.steps < bound.least_steps or share.least_gamma() <= 1:
        return []
    if exposed_ns <= share.compute_ns:
        return []
    gamma = exposed_ns / share.compute_ns
    per_step = 1.0 / share.steps / bound.world_size
    evidence = [
        f"exposed communication is {gamma:.2f} times the compute (gamma): a rank computes "
        f"{time_of(share.compute_ns * per_step)} per step and stands still "
        f"{time_of(exposed_ns * per_step)} for transfers, over {share.steps} steps",
        "no rank, link or node stands out: the transfers take what they always took",
        *_batch(share, exposed_ns),
        *_world(bound, exposed_ns),
    ]
    finding = Finding(
        kind="communication_bound",
        ranks=[],
        nodes=[],
        cause="unknown",
        phase=None,
        first_step=share.first_step,
        last_step=share.last_step,
        slowdown=None,
        recoverable_ratio=None,
        wasted_gpu_s=None,
        confidence=None,
        evidence=evidence,
        action="paceline plan gamma  # larger batch, fewer ranks, overlap, or less to send",
    )
    return [finding]


def _batch(share: CommunicationShare, exposed_ns: float) -> list[str]:
    factor = share.batch_factor(exposed_ns)
    if factor is None:
        return []
    return [
        f"with {factor:.2f} times the batch per rank compute would last as long as communication, "
        "as far as what is sent does not grow with the batch (gradients and weights do not)"
    ]


def _world(bound: Bound, exposed_ns: float) -> list[str]:
    """Return at what group size the costliest kind of collective would break even."""
    table, exposed = bound.table, bound.exposed_ns
    if not len(table) or exposed.sum() <= 0:
        return []
    kind = table.op * (bound.world_size + 1) + table.members
    of = np.unique(kind, return_inverse=True)[1]
    by_kind = np.bincount(of.reshape(-1), weights=exposed)
    main = of.reshape(-1) == int(np.argmax(by_kind))
    op, members = int(table.op[main][0]), int(table.members[main][0])
    if members < 3 or op == Op.SEND:
        return []
    start_up, fitted = _start_up_share(bound, op, members)
    mine = float(exposed[main].sum())
    rest = exposed_ns - mine
    sizes = np.arange(1, members)
    alpha = (sizes - 1) / (members - 1)
    beta = (sizes - 1) / sizes * members / (members - 1)
    took = rest + mine * (start_up * alpha + (1 - start_up) * beta)
    fits = sizes[took <= bound.share.compute_ns]
    largest = int(fits.max()) if len(fits) else 0
    name = op_name(Op(op))
    basis = (
        f"{start_up:.0%} of its {name} is start-up time and the rest bandwidth (alpha and beta "
        "as measured)"
        if fitted
        else f"its {name} was seen in too few sizes to tell start-up time from bandwidth, so all "
        "of it is taken as bandwidth"
    )
    whole = " (the whole job)" if members == bound.world_size else ""
    answer = (
        f"break-even would be at {largest} ranks per group instead of {members}{whole}, at the "
        "same batch per rank"
        if largest > 1
        else f"no group of 2 ranks or more instead of {members}{whole} would break even at this "
        "batch per rank"
    )
    return [f"{basis}: {answer}"]


def _start_up_share(bound: Bound, op: int, members: int) -> tuple[float, bool]:
    """Return what share of the exposed transfers is alpha, and whether that is measured."""
    size = sizes_of(bound.table)
    start_up = total = 0.0
    chosen = np.flatnonzero((bound.table.op == op) & (bound.table.members == members))
    chosen = chosen[np.argsort(-bound.exposed_ns[chosen])][:FITTED_CLASSES]
    series = {(fit.group, fit.op): fit for fit in bound.fits(chosen) if fit.alpha_ns is not None}
    for number in chosen:
        fit = series.get((int(bound.table.group[number]), op))
        if fit is None or fit.alpha_ns is None or fit.beta_ns_per_byte is None:
            continue
        took = fit.alpha_ns + fit.beta_ns_per_byte * float(size[number])
        weight = float(bound.exposed_ns[number])
        start_up += weight * fit.alpha_ns / max(took, 1e-9)
        total += weight
    return (start_up / total, True) if total > 0 else (0.0, False)
