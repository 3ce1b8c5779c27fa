"""Unions of intervals and what they have in common, in whole nanoseconds."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.records import Int64Array


def union(start_ns: Int64Array, end_ns: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the union of N intervals as disjoint ones, ascending; empty ones vanish."""
    real = end_ns > start_ns
    order = np.argsort(start_ns[real], kind="stable")
    start, end = start_ns[real][order], end_ns[real][order]
    if not len(start):
        return start, end
    reached = np.maximum.accumulate(end)
    begins = np.append(True, start[1:] > reached[:-1])
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(start) - 1)
    return start[begins], reached[last]


def length_ns(start_ns: Int64Array, end_ns: Int64Array) -> int:
    """Return the length of the union of N intervals."""
    start, end = union(start_ns, end_ns)
    return int((end - start).sum())


def covered_ns(
    start_ns: Int64Array, end_ns: Int64Array, by: tuple[Int64Array, Int64Array]
) -> Int64Array:
    """Return (N,) how much of each interval lies within ``by``, disjoint ascending intervals."""
    covered: Int64Array = np.maximum(_covered_until(end_ns, by) - _covered_until(start_ns, by), 0)
    return covered


def _covered_until(time_ns: Int64Array, by: tuple[Int64Array, Int64Array]) -> Int64Array:
    start, end = by
    if not len(start):
        return np.zeros(len(time_ns), dtype=np.int64)
    before = np.append(0, np.cumsum(end - start))
    index = np.searchsorted(start, time_ns, side="right")
    inside = np.maximum(end[np.maximum(index - 1, 0)] - time_ns, 0)
    covered: Int64Array = before[index] - np.where(index > 0, inside, 0)
    return covered
