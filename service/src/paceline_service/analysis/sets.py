"""Sets of whole numbers in arrays, for the short arrays and few codes of one step.

``np.unique`` asks ``numpy.ma`` whether an array is masked, and importing that takes longer than
many an answer; ``np.isin`` takes ten times as long as comparing with three codes does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.records import BoolArray, Int64Array


def distinct(values: NDArray[np.integer]) -> Int64Array:
    """Return the numbers that occur, each once and ascending."""
    ordered = np.sort(values, axis=None)
    if len(ordered) < 2:
        return ordered.astype(np.int64, copy=False)
    new = np.empty(len(ordered), dtype=np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new].astype(np.int64, copy=False)


def one_of(values: NDArray[np.integer], wanted: Iterable[int]) -> BoolArray:
    """Return which values are among the few that are wanted."""
    found = np.zeros(values.shape, dtype=np.bool_)
    for one in wanted:
        found |= values == one
    return found


def among(values: NDArray[np.integer], wanted: NDArray[np.integer]) -> BoolArray:
    """Return which values are among the many that are wanted."""
    if not len(wanted):
        return np.zeros(values.shape, dtype=np.bool_)
    ordered = np.sort(wanted)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[at] == values)
