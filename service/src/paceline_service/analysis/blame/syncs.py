"""Totals of ranks when a group last held them all together, kept from step to step."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.blame.levels import IndexArray
from paceline_service.analysis.blame.timeline import PHASES
from paceline_service.analysis.records import Int64Array

COMM, WAIT, ROWS = PHASES, PHASES + 1, PHASES + 2
"""Rows of totals: self time by phase, then exposed communication and wait."""
KEPT_PER_RANK = 16
"""Groups and pairs of a rank that are remembered; beyond that the longest unused are let go."""


@dataclass(slots=True)
class Syncs:
    """One entry per member of a group or pair, by ascending ``key``.

    Attributes:
        key: (S,) which group or pair, and which rank of it.
        totals: (ROWS, S) self time by phase, exposed communication and wait of the rank
            when the sync ended, since the job began.
        step: (S,) in which of the ledger's steps that was.
        next_exposure: (S,) the rank's first exposure after it.
    """

    key: Int64Array
    totals: Int64Array
    step: Int64Array
    next_exposure: IndexArray

    @classmethod
    def none(cls) -> Syncs:
        """Return no entries."""
        return cls(
            key=np.zeros(0, dtype=np.int64),
            totals=np.zeros((ROWS, 0), dtype=np.int64),
            step=np.zeros(0, dtype=np.int64),
            next_exposure=np.zeros(0, dtype=np.intp),
        )

    def find(self, key: Int64Array) -> IndexArray:
        """Return the entry of each key, -1 where there is none."""
        if not len(self.key):
            return np.full(len(key), -1, dtype=np.intp)
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[at] == key, at, -1)

    def update(self, newer: Syncs, limit: int) -> Syncs:
        """Return these with ``newer`` entries in the place of those of the same key."""
        stale = np.isin(self.key, newer.key, assume_unique=True)
        key = np.concatenate([self.key[~stale], newer.key])
        step = np.concatenate([self.step[~stale], newer.step])
        order = np.argsort(key, kind="stable")
        if len(order) > limit:
            newest = np.argsort(-step[order], kind="stable")[:limit]
            order = order[np.sort(newest)]
        totals = np.concatenate([self.totals[:, ~stale], newer.totals], axis=1)
        after = np.concatenate([self.next_exposure[~stale], newer.next_exposure])
        return Syncs(
            key=key[order], totals=totals[:, order], step=step[order], next_exposure=after[order]
        )
