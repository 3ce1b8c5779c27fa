"""How much the time of healthy ranks varies (docs/math/simulator.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TAILS = ("normal", "student3", "lognormal", "skewed", "spikes", "exponential", "pareto")
SKEWED_LOG_SD = 0.75
"""Log-sd of the standardized lognormal ``skewed``: skewness 3.3, one side only."""
SPIKE_PROBABILITY = 0.01
SPIKE_SDS = 10.0
LEAST_FACTOR = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The factor that multiplies a rank's own time of a step; all figures are ratios.

    ``jitter`` is its coefficient of variation from step to step, of the shape ``tail``;
    ``autocorrelation`` its lag-1 correlation; ``spread`` the sd of what differs between ranks for
    good; ``common`` the sd of what all ranks share in a step. ``operation`` is the share of the
    jitter that each operation adds on its own. With ``pause_probability`` a rank stops in a step
    for ``pause_ratio`` of it.
    """

    jitter: float = 0.01
    tail: str = "normal"
    autocorrelation: float = 0.0
    spread: float = 0.005
    common: float = 0.01
    operation: float = 0.2
    pause_probability: float = 0.0
    pause_ratio: float = 0.0


class RankNoise:
    """Draws the factors step after step; the draws do not depend on any fault.

    Args:
        noise: what it is like.
        ranks: R.
        rng: where chance comes from.
    """

    def __init__(self, noise: Noise, ranks: int, rng: np.random.Generator) -> None:
        self._noise = noise
        self._rng = rng
        self.lasting = 1 + noise.spread * rng.standard_normal(ranks)
        self._state = standard_shocks(rng, ranks, noise.tail, noise.jitter)

    def step(self) -> FloatArray:
        """Return the factor of each rank in the next step; (R,)."""
        n, ranks = self._noise, len(self.lasting)
        shock = standard_shocks(self._rng, ranks, n.tail, n.jitter)
        rho = n.autocorrelation
        self._state = rho * self._state + np.sqrt(1 - rho**2) * shock
        common = 1 + n.common * self._rng.standard_normal()
        factor = common * self.lasting * (1 + n.jitter * self._state)
        if n.pause_probability > 0:
            factor = factor + n.pause_ratio * (self._rng.random(ranks) < n.pause_probability)
        return np.asarray(np.maximum(factor, LEAST_FACTOR))


def standard_shocks(rng: np.random.Generator, size: int, tail: str, jitter: float) -> FloatArray:
    """Return ``size`` values of mean 0 and variance 1; ``jitter`` shapes lognormal and Pareto."""
    if tail == "student3":
        return np.asarray(rng.standard_t(3, size) / np.sqrt(3.0))
    if tail == "lognormal":
        log_sd = np.sqrt(np.log1p(jitter**2))
        values = np.exp(log_sd * rng.standard_normal(size) - log_sd**2 / 2)
        return np.asarray((values - 1) / max(jitter, 1e-12))
    if tail == "skewed":
        values = np.exp(SKEWED_LOG_SD * rng.standard_normal(size))
        mean = np.exp(SKEWED_LOG_SD**2 / 2)
        return np.asarray((values - mean) / (mean * np.sqrt(np.expm1(SKEWED_LOG_SD**2))))
    if tail == "spikes":
        values = rng.standard_normal(size)
        values = values + SPIKE_SDS * (rng.random(size) < SPIKE_PROBABILITY)
        variance = 1 + SPIKE_SDS**2 * SPIKE_PROBABILITY * (1 - SPIKE_PROBABILITY)
        return np.asarray((values - SPIKE_SDS * SPIKE_PROBABILITY) / np.sqrt(variance))
    if tail == "exponential":
        return rng.standard_exponential(size) - 1
    if tail == "pareto":
        shape = pareto_shape(jitter)
        values = (1 + rng.pareto(shape, size)) * (shape - 1) / shape
        return np.asarray((values - 1) / max(jitter, 1e-12))
    return rng.standard_normal(size)


def pareto_shape(jitter: float) -> float:
    """Return the shape of a Pareto distribution with mean 1 and this coefficient of variation."""
    return 1 + float(np.sqrt(1 + 1 / max(jitter, 1e-12) ** 2))
