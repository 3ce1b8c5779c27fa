"""How a rank's step time spreads around what it takes on average.

Every law is one of a factor with mean 1 and relative spread ``c`` (R,), one of each rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.errors import ConfigError

Floats = NDArray[np.float64]
MOST_NORMAL = 1 / 3
"""A wider normal law would be negative in more than 0.1 % of the draws."""
MOST_SPREAD = 3
"""Of a law without an upper end: what spreads more is no time of computing the same thing."""
MOST_PAUSE = 1_000_000
LAWS = {
    "constant": "no spread",
    "uniform": "half the width of the interval",
    "normal": "standard deviation",
    "lognormal": "standard deviation",
    "gamma": "standard deviation",
    "exponential": "standard deviation; a shifted exponential: never below mean - sd",
    "pareto": "shape, above 1: the smaller, the heavier the tail",
    "pause": "probability:length, a pause that a rank makes in some of its steps",
}
"""The laws by name, and what their number is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A law and its spread.

    Attributes:
        law: of ``LAWS``.
        spread: relative to the mean where ``relative``, else in seconds; of ``pareto`` the shape,
            of ``pause`` its length.
        relative: see ``spread``.
        probability: of a pause, per rank and step.
    """

    law: str = "constant"
    spread: float = 0.0
    relative: bool = True
    probability: float = 0.0

    def relative_spread(self, mean_s: Floats) -> Floats:
        """Return the spread of ranks with these means, over the means (R,).

        Raises:
            ConfigError: a step time would be negative, or have no mean.
        """
        c = np.full(len(mean_s), self.spread) if self.relative else self.spread / mean_s
        self._check(float(c.max()))
        return c

    def draw(self, rng: np.random.Generator, mean_s: Floats, steps: int) -> Floats:
        """Return step times (S, R), s, drawn step by step and rank by rank.

        Raises:
            ConfigError: as of ``relative_spread``.
        """
        c = self.relative_spread(mean_s)
        return np.asarray(mean_s * self._factors(rng, c, (steps, len(mean_s))))

    def expected(self, mean_s: Floats) -> Floats:
        """Return what ranks take on average (R,): pauses come on top of ``mean_s``."""
        if self.law != "pause":
            return mean_s
        return np.asarray(mean_s * (1 + self.probability * self.relative_spread(mean_s)))

    def _factors(
        self, rng: np.random.Generator, c: Floats, shape: tuple[int, int]
    ) -> Floats | float:
        law = self.law
        if law == "uniform":
            return 1 + rng.uniform(-1.0, 1.0, shape) * c
        if law == "normal":
            return np.maximum(1 + rng.standard_normal(shape) * c, 0.0)
        if law == "lognormal":
            sigma = np.sqrt(np.log1p(c * c))
            return np.exp(rng.standard_normal(shape) * sigma - sigma * sigma / 2)
        if law == "gamma":
            return rng.standard_gamma(np.broadcast_to(1 / (c * c), shape)) * (c * c)
        if law == "exponential":
            return 1 - c + rng.standard_exponential(shape) * c
        if law == "pareto":
            return (1 + rng.pareto(self.spread, shape)) * (self.spread - 1) / self.spread
        if law == "pause":
            return 1 + (rng.random(shape) < self.probability) * c
        return np.ones(shape)

    def _check(self, widest: float) -> None:
        law, wrong = self.law, ""
        if law not in LAWS:
            raise ConfigError(f"--noise {law!r} is no law; there are {', '.join(LAWS)}")
        if law == "constant":
            return
        if law == "pareto":
            if not 1 < self.spread < math.inf:
                wrong = f"the shape {self.spread:g} has no mean: give a shape above 1, such as 3"
        elif not 0 < widest < math.inf:
            wrong = "give a spread above 0: a share of the mean (5%) or a time (2ms)"
        elif law in ("uniform", "exponential") and widest > 1:
            wrong = f"a spread of {widest:.0%} of the mean makes times negative: give at most 100 %"
        elif law == "normal" and widest > MOST_NORMAL:
            wrong = (
                f"a standard deviation of {widest:.0%} of the mean makes times negative: give at "
                f"most {MOST_NORMAL:.0%}, or take lognormal or gamma"
            )
        elif law in ("lognormal", "gamma") and widest > MOST_SPREAD:
            wrong = f"a spread of {widest:.0%} of the mean: give at most {MOST_SPREAD:.0%}"
        elif law == "pause" and widest > MOST_PAUSE:
            wrong = f"a pause of {widest:g} steps: give at most {MOST_PAUSE:,} times the mean"
        elif law == "pause" and not 0 <= self.probability <= 1:
            wrong = f"the probability {self.probability:g}: give one from 0 to 1, or in per cent"
        if wrong:
            raise ConfigError(f"--noise {law}: {wrong}")
