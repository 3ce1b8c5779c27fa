"""Work that is uneven in a way that changes from step to step: imbalance (docs/math/kinds.md).

Two signs, either of which will do, both over ranks that are not slow for good:

- *lengths*: forward and backward of a rank grow and shrink together (Pearson >= 0.9 within
  ranks), and the optimizer, whose work does not depend on the batch, does not follow;
- *rotation*: in most steps one rank alone stands far behind, and it is ever another one.
"""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import EXCLUSIVE_PHASES, Phase, phase_name
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.analysis.scores import MAD_TO_SD

LEAST_PEARSON = 0.9
"""DETECTION section 5; measured on jobs with sequences of different lengths."""
MOST_FOLLOWING = 0.5
"""How much of the same change the optimizer may show: 0 where the batch is uneven, 1 where the
GPU itself is now slower and now faster."""
ALONE_SPREADS = 4.0
"""How far behind a rank must be, in spreads of its peers; one in 30,000 normal values is."""
ALONE_RATIO = 2.0
"""How much further behind than the next rank. Of heavy tails (Student, 3 degrees of freedom) the
largest is twice the second in 2^-3 of the steps, which is far from most of them."""
MOST_STEPS_RATIO = 0.5
MOST_OF_ONE = 0.5
"""Share of such steps that one rank may hold; a rank with more is slow, not unlucky."""
LEAST_STEPS = 30
"""As many steps as offsets are learned from."""
LEAST_RANKS = 6
"""Of fewer ranks the largest is often twice as far from the middle as the second by chance."""
MEMORY_STEPS = 512
"""Sums fade with this time constant: the work of a job changes, and so must the answer."""
_RATE_STEPS = 8
_BEGUN_RATE = 0.2
"""Rotation begins where such steps begin to be frequent, measured over some 8 steps."""
_LEAST_NS = 1_000.0


_MAIN_SHARE = 0.4
_ACTION = (
    "sort or pack sequences so that every rank gets as many tokens in each step  # no node needs "
    "to be drained: the slowest rank changes"
)
_ACTION_OF_ROTATION = (
    "log the batch and its files of the slowest rank in each step  # no node needs to be drained: "
    "the slowest rank changes; look for what ranks do in turns (logging, data shards, experts)"
)


@dataclass(slots=True)
class _Products:
    """Sums over steps of products of log times, by rank; they fade."""

    count: FloatArray
    sums: FloatArray
    """(3, R): forward, backward, optimizer."""
    products: FloatArray
    """(3, 3, R)."""


class Imbalance:
    """Watches who is behind in each step, and whether forward and backward agree on it."""

    def __init__(self, world_size: int) -> None:
        self._pairs = _Products(
            np.zeros(world_size), np.zeros((3, world_size)), np.zeros((3, 3, world_size))
        )
        self._alone = np.zeros(world_size)
        """Fading number of steps in which each rank alone was far behind."""
        self._alone_phase_ns = np.zeros(len(EXCLUSIVE_PHASES))
        """Fading excess of those ranks in those steps, by phase."""
        self._spread = 0.0
        self._alone_rate = 0.0
        self._alone_first = -1
        self._steps = 0.0
        self._seen = 0
        self._excess_ns = 0.0
        self._duration_ns = 0.0
        self._blamed_ns = np.zeros(world_size)
        self._first_step = -1
        self._last_step = -1

    def see(self, step: JudgedStep) -> None:
        """Take the next step."""
        if np.isnan(step.note.scores).all():
            return  # the job settles, or nobody can be compared
        row = step.row
        fade = 1 - 1 / MEMORY_STEPS
        self._seen += 1
        self._steps = self._steps * fade + 1
        self._alone *= fade
        self._alone_phase_ns *= fade
        self._excess_ns *= fade
        self._duration_ns = self._duration_ns * fade + row.duration_ns
        self._blamed_ns = self._blamed_ns * fade + step.blame.blamed_ns.sum(axis=1)
        for array in (self._pairs.count, self._pairs.sums, self._pairs.products):
            array *= fade
        behind_ns = 0.0
        for peers in step.peer_groups:
            here = peers[row.self_ns[peers] >= 0]
            if len(here) < 2:
                continue
            own = row.self_ns[here].astype(np.float64)
            behind_ns = max(behind_ns, float(own.max() - median_of(own)))
            self._learn_pairs(row.phase_self_ns, here)
        self._excess_ns += behind_ns
        alone = self._who_is_alone(step.note.scores)
        if alone >= 0:
            self._alone[alone] += 1
            peers = next(group for group in step.peer_groups if alone in group)
            typical = median_of(row.phase_self_ns[peers[row.self_ns[peers] >= 0]], axis=0)
            self._alone_phase_ns += np.maximum(row.phase_self_ns[alone] - typical, 0.0)
            if self._alone_rate < _BEGUN_RATE:
                self._alone_first = row.step
        self._alone_rate += ((alone >= 0) - self._alone_rate) / _RATE_STEPS
        if self._first_step < 0:
            self._first_step = row.step
        self._last_step = row.step

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return the imbalance, if there is one."""
        others = np.ones(facts.world_size, dtype=np.bool_)
        others[list(facts.slow_ranks)] = False
        if self._seen < LEAST_STEPS or others.sum() < 2 or self._duration_ns <= 0:
            return []
        blamed_ns = float(self._blamed_ns.sum())
        # What slow ranks cost is theirs; the rest of the excess is the imbalance.
        share = float(self._blamed_ns[others].sum()) / blamed_ns if blamed_ns > 0 else 0.0
        ratio = share * self._excess_ns / self._duration_ns
        spread, evidence = self._lengths(others)
        by_length = bool(evidence)
        evidence = evidence or self._rotation(others)
        if not evidence or ratio < facts.options.material_ratio:
            return []
        cause, phase = ("compute", None) if by_length else self._phase()
        first_step = self._first_step if by_length else self._alone_first
        fading = self._steps / self._seen
        wasted_gpu_s = float(self._blamed_ns[others].sum()) / 1e9 / fading
        return [
            Finding(
                kind="imbalance",
                ranks=[],
                nodes=[],
                cause=cause,
                phase=phase,
                first_step=first_step,
                last_step=self._last_step,
                slowdown=float(np.exp(spread)) if by_length else None,
                recoverable_ratio=min(ratio, 1.0),
                wasted_gpu_s=wasted_gpu_s,
                confidence=None,
                evidence=[
                    *evidence,
                    f"the slowest rank of a step took {ratio:.1%} of the step longer than the "
                    "median one; with even work the steps would be that much shorter",
                ],
                action=_ACTION if by_length else _ACTION_OF_ROTATION,
            )
        ]

    def notes(self, facts: JobFacts) -> list[str]:
        """Return nothing: what is no finding needs no word."""
        return []

    def _learn_pairs(self, phase_self_ns: Int64Array, here: Int64Array) -> None:
        phases = np.array([int(p) for p in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)])
        times = phase_self_ns[np.ix_(here, phases)].T.astype(np.float64)
        if (times[:2] <= 0).any():
            return  # not every rank tells its phases
        logs = np.log(np.maximum(times, _LEAST_NS))
        logs -= median_of(logs, axis=1, keepdims=True)
        self._pairs.count[here] += 1
        self._pairs.sums[:, here] += logs
        self._pairs.products[:, :, here] += logs[:, None, :] * logs[None, :, :]

    def _who_is_alone(self, scores: FloatArray) -> int:
        """Return the rank far behind its peers while no other is, over the job; -1 for none."""
        known = np.flatnonzero(~np.isnan(scores))
        if len(known) < LEAST_RANKS:
            return -1
        place, spread = alone_behind(scores[known], self._spread)
        self._spread += (spread - self._spread) / _RATE_STEPS if self._spread else spread
        return int(known[place]) if place >= 0 else -1

    def _phase(self) -> tuple[str, str | None]:
        """Return cause and phase of what made one rank after the other late."""
        total = float(self._alone_phase_ns.sum())
        main = int(np.argmax(self._alone_phase_ns))
        if total <= 0 or self._alone_phase_ns[main] < _MAIN_SHARE * total or not main:
            return "unknown", None
        phase = Phase(main)
        return ("input" if phase in (Phase.INPUT, Phase.COPY) else "compute"), phase_name(phase)

    def _lengths(self, others: BoolArray) -> tuple[float, list[str]]:
        """Return the spread of the batches, log units, and the evidence that they differ."""
        covariance, count = within_covariance(
            self._pairs.count, self._pairs.sums, self._pairs.products, others
        )
        if count < LEAST_STEPS:
            return 0.0, []
        forward, backward, optimizer = np.diag(covariance)
        if min(forward, backward) <= 0:
            return 0.0, []
        pearson = float(covariance[0, 1] / np.sqrt(forward * backward))
        both = float(forward + backward + 2 * covariance[0, 1])
        following = float(2 * (covariance[0, 2] + covariance[1, 2]) / both) if optimizer else 1.0
        if pearson < LEAST_PEARSON or abs(following) > MOST_FOLLOWING:
            return 0.0, []
        return float(np.sqrt(both) / 2), [
            "forward and backward of a rank grow and shrink together from step to step (Pearson "
            f"{pearson:.3f}, forward by {np.sqrt(forward):.1%}), its optimizer does not: the "
            "batches are of different size, for example in sequence length",
            "no rank is slower than its peers for good",
        ]

    def _rotation(self, others: BoolArray) -> list[str]:
        """Return the evidence that one rank at a time is behind, ever another one."""
        alone = self._alone[others]
        total = float(alone.sum())
        if self._steps <= 0 or total < MOST_STEPS_RATIO * self._steps:
            return []
        if alone.max() > MOST_OF_ONE * total:
            return []
        number = int((alone > 0).sum())
        return [
            f"in {total / self._steps:.0%} of the steps one rank alone was far behind all others, "
            f"and it was one of {number} ranks, none of them in more than "
            f"{alone.max() / total:.0%} of these steps"
        ]


def alone_behind(scores: FloatArray, usual_spread: float = 0.0) -> tuple[int, float]:
    """Return the place of the one score far above all others, -1 for none, and their spread.

    Args:
        scores: (R,) of one step, larger is slower; at least 3.
        usual_spread: of the steps before; few ranks may be close together by chance.
    """
    order = np.argsort(scores)
    first, second = scores[order[-1]], scores[order[-2]]
    rest = scores[order[:-1]]
    median = median_of(rest)
    spread = MAD_TO_SD * median_of(np.abs(rest - median))
    ahead = float(first - median)
    far = ahead > ALONE_SPREADS * max(spread, usual_spread)
    far = far and ahead > ALONE_RATIO * float(second - median)
    return (int(order[-1]) if far and ahead > 0 else -1), spread


def within_covariance(
    count: FloatArray, sums: FloatArray, products: FloatArray, chosen: BoolArray
) -> tuple[FloatArray, float]:
    """Return the covariance (V, V) of V values within ranks, and the observations per rank.

    What a rank has for good (its mean) is left out, so a slow GPU, whose forward and backward
    are both slow, correlates nothing.

    Args:
        count: (R,) observations.
        sums: (V, R).
        products: (V, V, R).
        chosen: (R,) which ranks count.
    """
    known = chosen & (count >= 2)
    if not known.any():
        return np.zeros((len(sums), len(sums))), 0.0
    number = count[known]
    mean = sums[:, known] / number
    within = products[:, :, known] - number * mean[:, None, :] * mean[None, :, :]
    return within.sum(axis=2) / number.sum(), float(number.mean())
