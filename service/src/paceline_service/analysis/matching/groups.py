"""The process groups of a job as arrays, so that members need no loop."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.records import Group, Int64Array
from paceline_service.analysis.sets import distinct


class Members:
    """Who belongs to each declared group; grows with every declaration.

    Attributes:
        sizes: (G,) members of each group.
        first: (G,) where each group begins in ``ranks``.
        ranks: (M,) global ranks, ascending within a group.
    """

    def __init__(self) -> None:
        self.sizes = np.zeros(0, dtype=np.int64)
        self.first = np.zeros(0, dtype=np.int64)
        self.ranks = np.zeros(0, dtype=np.int64)
        self._new: list[Int64Array] = []

    def add(self, group: Group) -> None:
        """Append a group; call ``settle`` before the arrays are read."""
        self._new.append(distinct(np.array(group.ranks, dtype=np.int64)))

    def settle(self) -> Members:
        """Bring the arrays up to date and return this."""
        if self._new:
            sizes = np.array([len(ranks) for ranks in self._new], dtype=np.int64)
            self.first = np.concatenate([self.first, len(self.ranks) + np.cumsum(sizes) - sizes])
            self.sizes = np.concatenate([self.sizes, sizes])
            self.ranks = np.concatenate([self.ranks, *self._new])
            self._new.clear()
        return self


def members_of(groups: list[Group]) -> Members:
    """Return the arrays of ``groups``, in their order."""
    members = Members()
    for group in groups:
        members.add(group)
    return members.settle()
