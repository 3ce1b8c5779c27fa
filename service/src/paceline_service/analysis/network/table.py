"""The transfers that may be compared with each other: one class per group, operation and size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.network.transfers import Transfers
from paceline_service.analysis.records import BoolArray, Int64Array

MAX_CLASSES = 131_072
"""12,500 groups of a job of 10,000 ranks with a handful of sizes each, 90 MB; what comes on top
of it is not watched, and the report says so."""
EXACT_SIZES = 8
"""A group that sends more sizes than these sends a new one in every step (routed tokens): its
further sizes are put into bins."""
BINS_PER_OCTAVE = 2
BIN_LOG_WIDTH = float(np.log(2.0)) / BINS_PER_OCTAVE
"""Sizes of one bin differ by up to this, log units, and so may their transfers."""

UInt64Array = NDArray[np.uint64]


class ClassTable:
    """Numbers each (group, op, source, destination, size) that was seen, C so far.

    ``columns`` holds one int64 row per class: group, op, source, destination, bytes (the size,
    or -1 - bin), members. Grows by doubling.
    """

    def __init__(self) -> None:
        self._keys = np.zeros(0, dtype=np.uint64)
        self._of_key = np.zeros(0, dtype=np.int64)
        self._series = np.zeros(0, dtype=np.uint64)
        self.columns = np.zeros((0, 6), dtype=np.int64)
        self.refused = 0
        """Transfers of classes beyond ``MAX_CLASSES``."""

    def __len__(self) -> int:
        """Return C."""
        return len(self.columns)

    @property
    def group(self) -> Int64Array:
        """Index of the group, (C,)."""
        return self.columns[:, 0]

    @property
    def op(self) -> Int64Array:
        """Number of the operation, (C,)."""
        return self.columns[:, 1]

    @property
    def source(self) -> Int64Array:
        """Sender of a pair, (C,), -1 for collectives."""
        return self.columns[:, 2]

    @property
    def destination(self) -> Int64Array:
        """Receiver of a pair, (C,), -1 for collectives."""
        return self.columns[:, 3]

    @property
    def payload_bytes(self) -> Int64Array:
        """Size of every transfer of the class, (C,); -1 - bin where it is a bin of sizes."""
        return self.columns[:, 4]

    @property
    def members(self) -> Int64Array:
        """Ranks that take part, (C,)."""
        return self.columns[:, 5]

    @property
    def binned(self) -> BoolArray:
        """Which classes hold more than one size, (C,)."""
        return np.asarray(self.columns[:, 4] < 0)

    @property
    def series(self) -> UInt64Array:
        """Equal for classes that differ by nothing but their size, (C,)."""
        return self._series

    def number(self, transfers: Transfers) -> Int64Array:
        """Return the class of each transfer, (T,), new ones made; -1 where it is not watched."""
        sized = np.flatnonzero(transfers.payload_bytes > 0)
        classes = np.full(len(transfers), -1, dtype=np.int64)
        if not len(sized):
            return classes
        who = [getattr(transfers, name)[sized] for name in ("group", "op", "source", "destination")]
        size, members = transfers.payload_bytes[sized], transfers.members[sized]
        series = mix(*who)
        found = self._look_up(series, size)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            self._make(who, size, members, series, missing)
            found[missing] = self._look_up(series[missing], size[missing])
            self.refused += int((found[missing] < 0).sum())
        classes[sized] = found
        return classes

    def _look_up(self, series: UInt64Array, size: Int64Array) -> Int64Array:
        """Return the class of each size, or of its bin, or -1."""
        found = self._find(mix(series, size))
        missing = np.flatnonzero(found < 0)
        found[missing] = self._find(mix(series[missing], bin_of(size[missing])))
        return found

    def _find(self, keys: UInt64Array) -> Int64Array:
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._of_key[at], -1)

    def _make(
        self,
        who: list[Int64Array],
        size: Int64Array,
        members: Int64Array,
        series: UInt64Array,
        missing: NDArray[np.intp],
    ) -> None:
        """Make classes for ``missing``: of an exact size, or of a bin where there are many."""
        _, unique = np.unique(mix(series[missing], size[missing]), return_index=True)
        missing = missing[np.sort(unique)]
        # How many sizes each series has already, and which of its new ones this is.
        exact = np.sort(self._series[~self.binned])
        have = np.searchsorted(exact, series[missing], "right") - np.searchsorted(
            exact, series[missing], "left"
        )
        order = np.argsort(series[missing], kind="stable")
        ordered = series[missing][order]
        place = np.empty(len(missing), dtype=np.int64)
        place[order] = np.arange(len(missing)) - np.searchsorted(ordered, ordered, "left")
        exact_size = have + place < EXACT_SIZES
        code = np.where(exact_size, size[missing], bin_of(size[missing]))
        keys, unique = np.unique(mix(series[missing], code), return_index=True)
        new = self._find(keys) < 0
        keys, unique = keys[new], unique[new]
        room = MAX_CLASSES - len(self)
        keys, unique = keys[:room], unique[:room]
        chosen = missing[unique]
        rows = np.column_stack([*(part[chosen] for part in who), code[unique], members[chosen]])
        numbers = len(self) + np.arange(len(rows))
        self.columns = np.concatenate([self.columns, rows])
        self._series = np.concatenate([self._series, series[chosen]])
        all_keys = np.concatenate([self._keys, keys])
        order = np.argsort(all_keys)
        self._keys, self._of_key = all_keys[order], np.append(self._of_key, numbers)[order]


def bin_of(size: Int64Array) -> Int64Array:
    """Return the number that stands for the bin of each size, -1 - bin; sizes are positive."""
    return np.asarray(-1 - np.floor(np.log2(size) * BINS_PER_OCTAVE).astype(np.int64))


def mix(*columns: Int64Array | UInt64Array) -> UInt64Array:
    """Return one number per row of ``columns``: equal rows equal, others not (2^-64 a pair)."""
    mixed = np.full(len(columns[0]), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in columns:
        mixed ^= np.asarray(column).astype(np.uint64)
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(29)
    return mixed
