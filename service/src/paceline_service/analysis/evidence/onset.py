"""When a shift began."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import FloatArray, Int64Array

_ONSET_STEPS = 10
_ONSET_ROUNDS = 3


def find_onset(excess: FloatArray) -> Int64Array:
    """Return for each of n series where its shift began: the largest tail sum above half of it.

    Maximum likelihood for a known shift in noise of equal spread (Hinkley 1970). The shift is
    the median of the last ten values, then of all values since the onset that this gave.

    Args:
        excess: (T, n) scores less their offset; NaN is absent.

    Returns:
        (n,) rows of ``excess``.
    """
    steps, count = excess.shape
    known = ~np.isnan(excess)
    filled = np.where(known, excess, 0.0)
    onset = np.full(count, max(steps - _ONSET_STEPS, 0))
    for _ in range(_ONSET_ROUNDS):
        half = np.zeros(count)
        for column in range(count):
            tail = excess[onset[column] :, column]
            tail = tail[known[onset[column] :, column]]
            half[column] = max(median_of(tail) / 2, 0.0) if len(tail) else 0.0
        gain = np.where(known, np.clip(filled, -2 * half, 2 * half) - half, 0.0)
        sums = np.cumsum(gain[::-1], axis=0)[::-1]
        onset = np.where(known, sums, -np.inf).argmax(axis=0)
    return onset
