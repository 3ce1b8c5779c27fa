"""Medians of the short arrays of one step.

``np.median`` asks ``numpy.ma`` whether an array is masked, and importing that takes longer than
many an answer; it also takes five times as long as finding the middle of a short array does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

_SHORT = 256
"""Up to so many values, all are put in order sooner than those in the middle are found."""

Numbers = NDArray[Any] | Sequence[float]


@overload
def median_of(values: Numbers) -> float: ...


@overload
def median_of(values: Numbers, axis: int, *, keepdims: bool = False) -> NDArray[np.float64]: ...


def median_of(
    values: Numbers, axis: int | None = None, *, keepdims: bool = False
) -> NDArray[np.float64] | float:
    """Return the median of all numbers, or along an axis; NaN where one is, or there is none."""
    array = np.asarray(values)
    if axis is None:
        flat = array.flatten()
        if not len(flat):
            return math.nan
        low, high = _sort_middle(flat)
        return math.nan if flat[-1] != flat[-1] else (float(flat[low]) + float(flat[high])) / 2.0
    along = array.swapaxes(axis, -1)
    if not along.shape[-1]:
        found = np.full((*along.shape[:-1], 1), math.nan)
    else:
        along = along.copy()
        low, high = _sort_middle(along)
        found = (along[..., low, None].astype(np.float64) + along[..., high, None]) / 2.0
        if along.dtype.kind == "f":
            last = along[..., -1:]
            np.copyto(found, last, where=np.isnan(last))
    found = found.swapaxes(-1, axis)
    return found if keepdims else found.squeeze(axis)


def _sort_middle(values: NDArray[Any]) -> tuple[int, int]:
    """Put the middle of the last axis in its place, and what is no number last; say where it is."""
    count = values.shape[-1]
    low, high = (count - 1) // 2, count // 2
    if count <= _SHORT:
        values.sort()
    else:
        values.partition((low, high, count - 1))
    return low, high
