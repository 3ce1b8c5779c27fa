"""Counts durations in buckets, for /metrics; no lock: one thread adds, others read."""

from __future__ import annotations

from bisect import bisect_left

from paceline_service.export.rows import HistogramRow, histogram_row

DURATIONS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Durations in seconds.

    Args:
        bounds_s: upper bounds of the buckets, ascending.
    """

    def __init__(self, bounds_s: tuple[float, ...] = DURATIONS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._total_s = 0.0

    def add(self, duration_s: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds_s, duration_s)] += 1
        self._total_s += duration_s

    def __add__(self, other: Histogram) -> Histogram:
        """Return what both counted, in the same buckets."""
        both = Histogram(self._bounds_s)
        both._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        both._total_s = self._total_s + other._total_s
        return both

    def sample(self) -> HistogramRow:
        """Return what was counted so far."""
        return histogram_row(self._bounds_s, self._counts, self._total_s)
