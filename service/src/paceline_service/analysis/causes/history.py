"""Rows over time in bounded memory: the newest as they came, older ones averaged."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.records import BoolArray, FloatArray

_FIRST_ROWS = 16


class ThinningHistory:
    """Keeps at most ``capacity`` rows; when full, the older half is averaged two by two.

    What is far back is then known more coarsely, in proportion to how far back it is. Means over
    a stretch stay right, because a row counts as often as it stands for.

    Args:
        shape: of the values of a row.
        capacity: rows; at least 8.
    """

    def __init__(self, shape: tuple[int, ...], capacity: int) -> None:
        self._capacity = max(capacity, 8)
        size = min(_FIRST_ROWS, self._capacity)
        self._key = np.zeros(size)
        self._count = np.zeros(size)
        self._value = np.full((size, *shape), np.nan)
        self._rows = 0

    def __len__(self) -> int:
        """Return the number of rows that are kept."""
        return self._rows

    @property
    def keys(self) -> FloatArray:
        """(rows,) mean key (a time or a step) of each row, in the order of arrival."""
        return self._key[: self._rows]

    @property
    def counts(self) -> FloatArray:
        """(rows,) how many values each row stands for."""
        return self._count[: self._rows]

    @property
    def values(self) -> FloatArray:
        """(rows, ...) means of what is known; NaN where nothing is."""
        return self._value[: self._rows]

    def append(self, key: float, value: FloatArray) -> None:
        """Take one row."""
        if self._rows == len(self._key):
            if self._rows < self._capacity:
                self._grow()
            else:
                self._thin()
        self._key[self._rows] = key
        self._count[self._rows] = 1.0
        self._value[self._rows] = value
        self._rows += 1

    def mean(self, chosen: BoolArray) -> FloatArray:
        """Return the mean over the ``chosen`` (rows,) rows; NaN where nothing is known."""
        weight = self.counts[chosen]
        return _mean(self.values[chosen], weight)

    def _grow(self) -> None:
        size = min(2 * len(self._key), self._capacity)
        extra = size - len(self._key)
        self._key = np.concatenate([self._key, np.zeros(extra)])
        self._count = np.concatenate([self._count, np.zeros(extra)])
        unknown = np.full((extra, *self._value.shape[1:]), np.nan)
        self._value = np.concatenate([self._value, unknown])

    def _thin(self) -> None:
        older = self._rows // 4 * 2
        pairs = older // 2
        weight = self._count[:older].reshape(pairs, 2)
        total = weight.sum(axis=1)
        key = (self._key[:older].reshape(pairs, 2) * weight).sum(axis=1) / total
        value = self._value[:older].reshape(pairs, 2, *self._value.shape[1:])
        merged = _mean(np.moveaxis(value, 1, 0), np.moveaxis(weight, 1, 0))
        kept = self._rows - older
        for array, front in ((self._key, key), (self._count, total), (self._value, merged)):
            array[pairs : pairs + kept] = array[older : self._rows].copy()
            array[:pairs] = front
        self._rows = pairs + kept


def _mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted mean over the first axis of what is no NaN."""
    weight = weight.reshape(*weight.shape, *[1] * (values.ndim - weight.ndim))
    known = np.where(np.isnan(values), 0.0, weight)
    total = known.sum(axis=0)
    summed = (np.where(np.isnan(values), 0.0, values) * known).sum(axis=0)
    mean: FloatArray = np.full(summed.shape, np.nan)
    np.divide(summed, total, out=mean, where=total > 0)
    return mean
