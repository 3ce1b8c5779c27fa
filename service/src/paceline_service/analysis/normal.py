"""The normal distribution, imported when it is first asked for.

``statistics`` brings fractions and decimals with it, and takes as long to import as a small answer
takes to make.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statistics import NormalDist


def normal_quantile(probability: float) -> float:
    """Return the value that is exceeded with probability 1 - ``probability``."""
    return _standard().inv_cdf(probability)


def normal_cdf(value: float) -> float:
    """Return the probability of less than ``value``."""
    return _standard().cdf(value)


@cache
def _standard() -> NormalDist:
    from statistics import NormalDist

    return NormalDist()
