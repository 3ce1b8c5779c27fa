"""Robust measures of scores: the pieces that baseline, episodes and verdict share."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import FloatArray, Int64Array

MAD_TO_SD = 1.4826
LEAST_SELF_NS = 1_000
"""Self time below this is taken as this: a logarithm of nothing says nothing."""


def log_self(self_ns: Int64Array) -> FloatArray:
    """Return the natural logarithm of self time, (R,); NaN where a rank has none (-1)."""
    logs = np.log(np.maximum(self_ns, LEAST_SELF_NS))
    absent = self_ns < 0
    if absent.any():
        logs[absent] = np.nan
    return np.asarray(logs)


def spread(values: FloatArray) -> float:
    """Return the standard deviation that the median absolute deviation implies; 0 when empty."""
    if not len(values):
        return 0.0
    return float(MAD_TO_SD * median_of(np.abs(values - median_of(values))))
