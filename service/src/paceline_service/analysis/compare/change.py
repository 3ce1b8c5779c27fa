"""Whether the mean of one figure differs between two runs (docs/math/compare.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.compare.student import quantile, two_sided
from paceline_service.analysis.records import FloatArray

FALSE_RATE = 0.01
"""Of two runs that do not differ one comparison in a hundred says that they do."""
POWER = 0.8
"""A difference that is called the smallest one that shows would show in so many cases."""
LEAST_BATCHES = 4
LEAST_MERGED = 6
MERGED_FROM = 0.3
"""Correlation of neighbours from which batches are merged; chance alone brings half of it."""
MOST_CORRELATION = 0.5
"""More is no correlation of neighbours but a run that changed, which is what is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """By how much a figure differs; ``error`` is the standard error of the difference."""

    difference: float
    error: float
    freedom: float
    p_value: float

    @property
    def half(self) -> float:
        """Half the interval that holds the truth in all but ``FALSE_RATE`` of the cases."""
        return self.error and quantile(1 - FALSE_RATE / 2, self.freedom) * self.error

    @property
    def smallest(self) -> float:
        """The difference that the data would have shown with probability ``POWER``."""
        return self.half + (self.error and quantile(POWER, self.freedom) * self.error)


def change(before: FloatArray, after: FloatArray, *, merge: bool = False) -> Change | None:
    """Compare the batch values (B,) of two runs by Welch's test; NaN is left out.

    Args:
        before: of the one run.
        after: of the other.
        merge: whether batches that hang together are merged into longer ones. A run that changed
            in its middle then shows less; for the step time that is what is asked about.

    Returns:
        None where one has fewer than ``LEAST_BATCHES``.
    """
    one, two = before[~np.isnan(before)], after[~np.isnan(after)]
    if min(len(one), len(two)) < LEAST_BATCHES:
        return None
    if merge:
        one, two = _merged(one), _merged(two)
    first, second = _square_error(one), _square_error(two)
    difference = float(two.mean() - one.mean())
    error = math.sqrt(first + second)
    if error <= abs(difference) * 1e-12:
        # Nothing varies: what differs, differs.
        same = difference == 0.0
        return Change(difference=difference, error=0.0, freedom=1.0, p_value=1.0 if same else 0.0)
    freedom = (first + second) ** 2 / (first**2 / (len(one) - 1) + second**2 / (len(two) - 1))
    p_value = two_sided(difference / error, freedom)
    return Change(difference=difference, error=error, freedom=freedom, p_value=p_value)


def significant(p_values: Sequence[float | None]) -> list[bool]:
    """Return which of a family of tests hold together at ``FALSE_RATE`` (Holm's way)."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    held = [False] * len(p_values)
    for tested, (p, place) in enumerate(known):
        if p * (len(known) - tested) >= FALSE_RATE:
            break
        held[place] = True
    return held


def _square_error(values: FloatArray) -> float:
    """Return the squared standard error of the mean of batches that may hang together."""
    count = len(values)
    apart = values - values.mean()
    square = float((apart**2).sum())
    if square <= 0:
        return 0.0
    correlation = min(max(_correlation(apart, square), 0.0), MOST_CORRELATION)
    return square / (count - 1) / count * (1 + correlation) / (1 - correlation)


def _correlation(apart: FloatArray, square: float) -> float:
    """Return the correlation of neighbours; its estimate is too low by about 1 / count."""
    return float((apart[1:] * apart[:-1]).sum()) / square + 1 / len(apart)


def _merged(values: FloatArray) -> FloatArray:
    """Return means of pairs, of fours, as long as neighbours hang together and enough are left."""
    while len(values) >= 2 * LEAST_MERGED:
        apart = values - values.mean()
        square = float((apart**2).sum())
        if square <= 0 or _correlation(apart, square) < MERGED_FROM:
            break
        values = values[len(values) % 2 :].reshape(-1, 2).mean(axis=1)
    return values
