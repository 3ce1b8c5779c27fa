"""Student's t distribution: probabilities and quantiles (docs/math/compare.md)."""

from __future__ import annotations

import math

_TINY = 1e-300
_TERMS = 300
_CLOSE = 1e-14


def two_sided(t: float, freedom: float) -> float:
    """Return the probability of a value at least as far from 0 as ``t``.

    Args:
        t: the statistic.
        freedom: degrees of freedom, over 0.
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(probability: float, freedom: float) -> float:
    """Return the value below which t lies with this probability, from a half up to under 1."""
    tail = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > tail:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if two_sided(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges quickly on this side of the mean, by symmetry on the other.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (Lentz's way)."""
    value, c, d = 1.0, 1.0, _inverse(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = _inverse(1 + term * d)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value


def _inverse(value: float) -> float:
    return 1 / (value if abs(value) > _TINY else _TINY)
