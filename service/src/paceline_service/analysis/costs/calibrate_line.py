"""A start-up time and a price per byte through measured transfers, with how sure they are.

docs/math/calibration.md gives the formulas.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.medians import median_of

FloatArray = NDArray[np.float64]

DRAWS = 200
"""Repetitions with the noise of the sizes drawn anew: their 2.5 and 97.5 % quantiles are steady to
a tenth of the interval."""
_LEFT_OUT = 5
"""Repetitions at each end that lie outside of the interval: 2.5 %."""


def theil_sen(size: FloatArray, took_ns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return alpha, ns, and beta, ns per byte, of B lines through the same sizes, each (B,).

    beta is the median of the slopes between all pairs of sizes, alpha the median of what is left,
    so that up to 29 % of the sizes may lie anywhere. Where alpha would be negative it is 0, and
    beta the median of time per byte.

    Args:
        size: (n,) bytes, positive, at least two of them different.
        took_ns: (B, n) transfer at each size.
    """
    first, second = np.triu_indices(len(size), k=1)
    apart = size[first] != size[second]
    first, second = first[apart], second[apart]
    slopes = (took_ns[:, second] - took_ns[:, first]) / (size[second] - size[first])
    beta = median_of(slopes, axis=1)
    alpha = median_of(took_ns - beta[:, None] * size, axis=1)
    below = alpha < 0
    beta = np.where(below, median_of(took_ns / size, axis=1), beta)
    return np.maximum(alpha, 0.0), beta


def line_intervals(
    size: FloatArray, took_ns: FloatArray, error_ns: FloatArray
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the 95 % intervals of alpha and beta of the line through n sizes.

    Each size is drawn anew from a normal distribution around what it took, with its standard
    error, or with what the sizes lie off the line if that is more: a real network is no line.

    Args:
        size: (n,) bytes, as in ``theil_sen``.
        took_ns: (n,) typical transfer at each size.
        error_ns: (n,) standard error of each.
    """
    alpha, beta = theil_sen(size, took_ns[None, :])
    line_ns = alpha + beta * size
    if len(size) > 2:
        off = np.sqrt(np.sum((took_ns / line_ns - 1) ** 2) / (len(size) - 2))
        error_ns = np.maximum(error_ns, off * line_ns)
    drawn = np.maximum(took_ns + _normals(len(size)) * error_ns, 0.01 * took_ns)
    alphas, betas = theil_sen(size, drawn)
    (low_a, high_a), (low_b, high_b) = (
        np.sort(drawn_ones)[[_LEFT_OUT, -1 - _LEFT_OUT]].tolist() for drawn_ones in (alphas, betas)
    )
    return (
        (min(low_a, float(alpha[0])), max(high_a, float(alpha[0]))),
        (min(low_b, float(beta[0])), max(high_b, float(beta[0]))),
    )


def _normals(count: int) -> FloatArray:
    """Return (DRAWS, count) normal values, ever the same ones.

    Additive recurrence over the generalized golden ratio, Box-Muller: spread more evenly than
    chance would, and without the import of a random generator.
    """
    pairs = (count + 1) // 2
    ratio = 1.5
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (2 * pairs + 1))
    step = ratio ** -np.arange(1.0, 2 * pairs + 1)
    uniform = (0.5 + np.arange(1, DRAWS + 1)[:, None] * step) % 1.0
    radius = np.sqrt(-2 * np.log(np.maximum(uniform[:, :pairs], 0.25 / DRAWS)))
    angle = 2 * np.pi * uniform[:, pairs:]
    return np.hstack([radius * np.cos(angle), radius * np.sin(angle)])[:, :count]
