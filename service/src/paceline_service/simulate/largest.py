"""The mean of the largest of K step times, without drawing any: what a barrier costs on average.

Exact where there is a closed form (uniform, shifted exponential, Pareto, pauses), else by
integrating  E[max] = x0 + int_{x0} (1 - P(max <= x)) dx  on a grid (docs/math/execution.md).
"""

from __future__ import annotations

import math

import numpy as np

from paceline_service.simulate.noise import Floats, Noise

_GRID = 6001
_SMOOTH_GRID = 1201
"""Of laws without an edge the trapezoid rule needs few points, and ``erfc`` is slow."""
_FAR = 8.3
"""Standard deviations beyond which a normal variable is in less than 1e-16 of the draws."""
_EULER = 0.5772156649015329
_erfc = np.vectorize(math.erfc, otypes=[float])


def mean_of_largest(noise: Noise, ranks: int, factor: float = 1.0) -> float:
    """Return E[max] over the mean (of a pause: over the time without), one rank being slower.

    Args:
        noise: the law, its spread relative to the mean.
        ranks: K, 2 or more.
        factor: one rank takes so many times as long; 1 for equal ranks.
    """
    noise.relative_spread(np.ones(1))  # refuses what no law is
    if noise.law == "constant":
        return max(factor, 1.0)
    if noise.law == "pause":
        return _pause(noise, ranks, factor)
    if factor == 1.0:
        known = _closed(noise, ranks)
        if known is not None:
            return known
    return _integrated(noise, ranks, factor)


def harmonic(count: int) -> float:
    """Return 1 + 1/2 + ... + 1/count."""
    if count < 1000:
        return math.fsum(1 / k for k in range(1, count + 1))
    return math.log(count) + _EULER + 1 / (2 * count) - 1 / (12 * count * count)


def _closed(noise: Noise, ranks: int) -> float | None:
    c = noise.spread
    if noise.law == "uniform":
        return 1 + c * (ranks - 1) / (ranks + 1)
    if noise.law == "exponential":
        return 1 + c * (harmonic(ranks) - 1)
    if noise.law == "pareto":
        least, tail = (c - 1) / c, 1 / c
        return least * math.exp(
            math.lgamma(ranks + 1) + math.lgamma(1 - tail) - math.lgamma(ranks + 1 - tail)
        )
    return None


def _pause(noise: Noise, ranks: int, factor: float) -> float:
    """Return E[max] of two values a rank: exact, for there are four cases."""
    p, d = noise.probability, noise.spread
    somebody = -math.expm1((ranks - 1) * math.log1p(-p)) if p < 1 else 1.0
    cases = (
        (own_p * other_p, max(factor * (1 + own * d), 1 + other * d))
        for own, own_p in ((0, 1 - p), (1, p))
        for other, other_p in ((0, 1 - somebody), (1, somebody))
    )
    return math.fsum(p_of * longest for p_of, longest in cases)


def _integrated(noise: Noise, ranks: int, factor: float) -> float:
    grid = _support(noise, ranks)
    if factor != 1.0:
        grid = np.unique(np.concatenate([grid, factor * grid]))
    # Of the others none, and the slow one not either, is longer than x.
    with np.errstate(divide="ignore"):  # where X is surely longer: log 0, and exp makes it 0 again
        below = (ranks - 1) * np.log1p(-_beyond(noise, grid))
        below += np.log1p(-_beyond(noise, grid / factor))
    longer = -np.expm1(below)
    return float(grid[0] + ((longer[1:] + longer[:-1]) / 2 * np.diff(grid)).sum())


def _support(noise: Noise, ranks: int) -> Floats:
    """Return where the largest of K can lie, densely where the law changes fast."""
    c = noise.spread
    if noise.law == "uniform":
        return np.linspace(1 - c, 1 + c, _GRID)
    if noise.law == "normal":
        return np.maximum(1 + c * np.linspace(-_FAR, _FAR, _SMOOTH_GRID), 0.0)
    if noise.law == "exponential":
        return np.asarray(1 - c + c * np.linspace(0, math.log(ranks) + 40, _GRID))
    if noise.law == "pareto":
        # 1 - P is K (x0/x)^a out there: the grid goes on until that and its integral are nothing.
        least, decades = (c - 1) / c, (math.log(ranks) + 34) / (c - 1)
        return np.asarray(least * np.exp(np.linspace(0, min(decades, 600), 4 * _GRID)))
    if noise.law == "lognormal":
        sigma = math.sqrt(math.log1p(c * c))
        return np.exp(sigma * np.linspace(-_FAR, _FAR + sigma, _SMOOTH_GRID) - sigma * sigma / 2)
    return _gamma_grid(c)


def _beyond(noise: Noise, x: Floats) -> Floats:
    """Return P(X > x) of a law with mean 1."""
    c = noise.spread
    if noise.law == "uniform":
        return np.clip((1 + c - x) / (2 * c), 0.0, 1.0)
    if noise.law == "normal":
        return np.asarray(_erfc((x - 1) / (c * math.sqrt(2))) / 2)
    if noise.law == "exponential":
        return np.exp(-np.maximum(x - (1 - c), 0.0) / c)
    if noise.law == "pareto":
        return np.asarray(np.minimum((c - 1) / (c * x), 1.0) ** c)
    if noise.law == "lognormal":
        sigma = math.sqrt(math.log1p(c * c))
        with np.errstate(divide="ignore"):
            z = (np.log(x) + sigma * sigma / 2) / sigma
        return np.asarray(_erfc(z / math.sqrt(2)) / 2)
    return _gamma_beyond(c, x)


def _gamma_grid(c: float) -> Floats:
    """Return a grid from nothing to where a gamma variable with cv ``c`` hardly ever is."""
    shape = 1 / (c * c)
    low = max(1 - 9 * c, 0.0) if shape > 4 else 0.0
    high = 1 + 9 * c + 40 * c * c
    return low + (high - low) * np.linspace(0, 1, _GRID) ** (1 if shape > 4 else 4)


def _gamma_beyond(c: float, x: Floats) -> Floats:
    """Return P(X > x) of a gamma law with mean 1, from its density summed up."""
    shape = 1 / (c * c)
    fine = np.unique(np.concatenate([_gamma_grid(c), x[(x > 0) & np.isfinite(x)]]))
    middle = (fine[1:] + fine[:-1]) / 2
    log_density = (
        shape * math.log(shape) - math.lgamma(shape) + (shape - 1) * np.log(middle) - shape * middle
    )
    pieces = np.exp(log_density) * np.diff(fine)
    after = np.append(pieces[::-1].cumsum()[::-1], 0.0)
    return np.asarray(np.interp(x, fine, np.minimum(after / after[0], 1.0), left=1.0, right=0.0))
