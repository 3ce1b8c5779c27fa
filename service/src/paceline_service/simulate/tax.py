"""The straggler tax: what one slow rank, and mere chance, cost a job of K ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline_service.simulate.draws import generator
from paceline_service.simulate.largest import mean_of_largest
from paceline_service.simulate.noise import Floats, Noise

_AT_ONCE = 4_000_000
"""Step times held at a time, 8 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tax:
    """One case: K ranks, one of them ``factor`` times slower.

    Attributes:
        ranks: K.
        factor: lambda.
        step: the mean of the longest of K step times, over that of a healthy rank, by simulation.
        step_error: standard error of ``step``.
        step_expected: the same without drawing (``largest.py``).
        balanced: the mean over the ranks, over that of a healthy rank: perfect balance.
        worked: what the mean rank does not wait: ``balanced``, and its pauses on top.
        healthy: ``step_expected`` where no rank is slow.
    """

    ranks: int
    factor: float
    step: float
    step_error: float
    step_expected: float
    balanced: float
    worked: float
    healthy: float

    @property
    def tax(self) -> float:
        """E[max]/mean - 1: what the step takes longer than in perfect balance."""
        return self.step / self.balanced - 1

    @property
    def tax_expected(self) -> float:
        """The same without drawing."""
        return self.step_expected / self.balanced - 1

    @property
    def tax_error(self) -> float:
        """Standard error of ``tax``."""
        return self.step_error / self.balanced

    @property
    def slowdown(self) -> float:
        """How many times longer the job is than without a slow rank."""
        return self.step_expected / self.healthy

    @property
    def idle_ratio(self) -> float:
        """Share of all ranks' time that is waiting; a rank's own pauses are none."""
        return 1 - self.worked / self.step_expected


def taxes(
    noise: Noise, ranks: Sequence[int], factors: Sequence[float], steps: int, seed: int
) -> list[Tax]:
    """Return each case, K by K; the same draws serve every factor.

    Args:
        noise: its spread is relative to the mean.
        ranks: every K.
        factors: every lambda.
        steps: drawn of each K.
        seed: of the draws.
    """
    rng = generator(seed)
    answer = []
    for count in ranks:
        own, others = _longest(noise, count, steps, rng)
        healthy = mean_of_largest(noise, count)
        # Pauses are told over the time without them (DETECTION: d/T), so balance is without too.
        own_mean = float(noise.expected(np.ones(1))[0])
        for factor in factors:
            longest = np.maximum(factor * own, others)
            balanced = (count - 1 + factor) / count
            answer.append(
                Tax(
                    ranks=count, factor=factor, step=float(longest.mean()),
                    step_error=float(longest.std(ddof=1) / steps**0.5),
                    step_expected=mean_of_largest(noise, count, factor),
                    balanced=balanced, worked=own_mean * balanced, healthy=healthy,
                )
            )  # fmt: skip
    return answer


def _longest(
    noise: Noise, ranks: int, steps: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return what one rank takes in each step, and the longest of the others."""
    own, others = np.empty(steps), np.empty(steps)
    at_once = max(_AT_ONCE // ranks, 1)
    mean = np.ones(ranks)
    for first in range(0, steps, at_once):
        part = noise.draw(rng, mean, min(at_once, steps - first))
        own[first : first + len(part)] = part[:, 0]
        others[first : first + len(part)] = part[:, 1:].max(axis=1)
    return own, others
