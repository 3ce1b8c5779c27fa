"""Which join of a rank followed which, group by group, as flat arrays."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import P2P_OPS
from paceline_service.analysis.blame.levels import IndexArray, expand
from paceline_service.analysis.blame.timeline import Exposures
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import one_of

_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)


class Joins:
    """The joins of one step and the syncs among them.

    A *sync* is an instance that held all its members: every one of them joined it. Between two
    ranks a send and a receive in either direction are syncs of the pair, not of their group.

    Attributes:
        of_row: (N,) the exposure of each row, -1 where its rank did not join.
        by_instance: (E,) the exposures, those of one instance together and by rank.
        rank_first: (R,) each rank's first exposure.
        rank_end: (R,) the exposure after its last.
    """

    def __init__(self, matches: Matches, exposures: Exposures, world_size: int) -> None:
        self._matches = matches
        self._exposures = exposures
        self._world_size = world_size
        self.of_row = np.full(len(matches.rows), -1, dtype=np.intp)
        self.of_row[exposures.row] = np.arange(len(exposures.row))
        self.by_instance = self.of_row[self.of_row >= 0]
        everyone = np.arange(world_size)
        self.rank_first = np.searchsorted(exposures.rank, everyone)
        self.rank_end = np.searchsorted(exposures.rank, everyone, side="right")
        joined = np.bincount(self.instance(self.by_instance), minlength=len(matches.first))
        self._is_sync: BoolArray = matches.complete & (joined == matches.size) & (joined > 1)
        self._channel = self._channels()
        self._previous, self._last = self._chain()

    def instance(self, exposure: IndexArray) -> IndexArray:
        """Return the instance of each exposure."""
        return self._matches.instance[self._exposures.row[exposure]]

    def previous(self, exposure: IndexArray) -> IndexArray:
        """Return the rank's join of the sync of that group before each exposure, or -1."""
        instance = self.instance(exposure)
        sync = self._previous[instance]
        # Members stand in the same order in all complete instances of their group.
        place = self._exposures.row[exposure] - self._matches.first[instance]
        row = self._matches.first[np.maximum(sync, 0)] + place
        return np.where(sync >= 0, self.of_row[np.where(sync >= 0, row, 0)], -1)

    def last(self) -> IndexArray:
        """Return the joins of the last sync of every group and pair."""
        return self.of_row[expand(self._matches.first[self._last], self._matches.size[self._last])]

    def keys(self, exposure: IndexArray) -> Int64Array:
        """Return a number for each exposure's group or pair and rank, the same in all steps."""
        channel = self._channel[self.instance(exposure)]
        rank = self._exposures.rank[exposure]
        pair = channel // self._world_size % self._world_size
        return np.where(
            channel < 0, channel * self._world_size - rank, channel * 2 + (rank == pair)
        )

    def _channels(self) -> Int64Array:
        """Return (I,) a number for each group (negative) or pair of ranks in a group."""
        rows, first = self._matches.rows, self._matches.first
        group, rank, peer = rows.group[first], rows.rank[first], rows.peer[first]
        low, high = np.minimum(rank, peer), np.maximum(rank, peer)
        size = self._world_size
        return np.where(
            one_of(rows.code[first], _P2P), (group * size + low) * size + high, -1 - group
        )

    def _chain(self) -> tuple[IndexArray, IndexArray]:
        """Return (I,) the sync before each instance, or -1, and the last syncs."""
        first = self._matches.first
        # Both directions of a pair are in the order of its lower rank, groups in their own.
        place = np.where(self._channel < 0, np.arange(len(first)), self.of_row[first])
        order = np.lexsort((place, self._channel))
        channel, sync = self._channel[order], self._is_sync[order]
        at = np.maximum.accumulate(np.where(sync, np.arange(len(order)), -1))
        before = np.append(-1, at[:-1])[: len(order)]
        found = (before >= 0) & (channel[np.maximum(before, 0)] == channel)
        previous = np.full(len(first), -1, dtype=np.intp)
        previous[order] = np.where(found, order[np.maximum(before, 0)], -1)
        ends = np.append(channel[1:] != channel[:-1], True)[: len(order)]
        last = at[ends]
        last = last[(last >= 0) & (channel[np.maximum(last, 0)] == channel[ends])]
        return previous, order[last]
