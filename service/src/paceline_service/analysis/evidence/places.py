"""Where each rank stands among its peers in one step, for all peer groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.evidence.edetector import normal_scores, weight_table
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import distinct

_APART = 64.0
"""Log self times differ by less than this, so group g's keys lie in [64 g - 32, 64 g + 32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What depends on how many peers are present alone; arrays by position, (n,).

    The positions are the ranks sorted by group, then by value. ``middle`` are the two
    positions around the group's median, ``others`` around the median of the other members.
    """

    group: Int64Array
    start: Int64Array
    count: Int64Array
    place: Int64Array
    middle: tuple[Int64Array, Int64Array]
    others: tuple[Int64Array, Int64Array]
    tables: list[FloatArray] = field(default_factory=list)
    """Weights (n, D) and normal scores (n,), made when first asked for."""

    def bets(self) -> tuple[FloatArray, FloatArray]:
        """Return weights (n, D) and normal scores (n,) of the positions."""
        if not self.tables:
            sizes = distinct(self.count)
            depth = weight_table(2).shape[1]
            weights, scores = np.ones((len(self.count), depth)), np.zeros(len(self.count))
            for size in map(int, sizes):
                at = np.flatnonzero(self.count == size)
                weights[at] = weight_table(size)[self.place[at]]
                scores[at] = normal_scores(size)[self.place[at]]
            self.tables[:] = [weights, scores]
        return self.tables[0], self.tables[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Ranks in order: by group, then ascending by value; (n,)."""

    ranks: Int64Array
    values: FloatArray
    layout: Layout

    def bets(self) -> tuple[FloatArray, FloatArray]:
        """Return weights (n, D) and normal scores (n,) by position; equal values share them.

        A sort that broke ties by position would favour the same rank in every step.
        """
        weights, scores = self.layout.bets()
        tied = self.values[1:] == self.values[:-1]
        tied &= self.layout.place[1:] > 0
        if not tied.any():
            return weights, scores
        begin = np.flatnonzero(np.append(True, ~tied))
        size = np.diff(np.append(begin, len(self.values)))
        weights = np.repeat(np.add.reduceat(weights, begin, axis=0) / size[:, None], size, axis=0)
        return weights, np.repeat(np.add.reduceat(scores, begin) / size, size)


class PeerPlan:
    """The peer groups of a job as arrays; groups of one rank compare with nobody.

    Args:
        peer_groups: disjoint, each an array of global ranks.
        world_size: R.
    """

    def __init__(self, peer_groups: Sequence[Int64Array], world_size: int) -> None:
        self.source = peer_groups
        self.group = np.full(world_size, -1, dtype=np.int64)
        wide = [peers for peers in peer_groups if len(peers) > 1]
        for index, peers in enumerate(wide):
            self.group[peers] = index
        self.groups = len(wide)
        self.sizes = np.array([len(peers) for peers in wide], dtype=np.int64)
        self.stray: BoolArray = np.zeros(world_size, dtype=np.bool_)
        """Ranks whose peer group is they alone."""
        for peers in peer_groups:
            if len(peers) == 1:
                self.stray[peers] = True
        self.has_strays = bool(self.stray.any())
        self._base = np.where(self.group >= 0, self.group * _APART, np.nan)
        self._layouts: dict[bytes, Layout] = {}

    def peers_of(self, rank: int) -> Int64Array:
        """Return the ranks that ``rank`` may be compared with, itself among them."""
        if self.group[rank] < 0:
            return np.array([rank], dtype=np.int64)
        return np.flatnonzero(self.group == self.group[rank])

    def place(self, values: FloatArray) -> Placed:
        """Sort the ranks within their groups; NaN is absent, and so is one without a peer."""
        keys = self._base + values
        ranks = np.argsort(keys)
        count = len(keys) - int(np.count_nonzero(np.isnan(keys)))
        ranks = ranks[:count]
        if self.groups == 1:
            sizes = np.array([count], dtype=np.int64)
        else:
            sizes = np.bincount(self.group[ranks], minlength=self.groups)
            if (sizes == 1).any():
                ranks = ranks[sizes[self.group[ranks]] > 1]
                sizes = np.where(sizes == 1, 0, sizes)
        if self.groups == 1 and count < 2:
            ranks, sizes = ranks[:0], np.zeros(1, dtype=np.int64)
        return Placed(ranks=ranks, values=values[ranks], layout=self._layout(sizes))

    def compare(self, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log self time less a median of the peers, two ways; each (R,), NaN unknown.

        The first takes one number, the median of all, from all peers of a step: their order,
        which is what the evidence bets on, stays as it was. The second takes the median of the
        *other* peers, so that with few of them a rank does not pull its own reference: it
        measures. 0.04 means four percent slower.
        """
        placed = self.place(logs)
        values, layout = placed.values, placed.layout
        common, scores = np.full(len(logs), np.nan), np.full(len(logs), np.nan)
        low, high = layout.middle
        common[placed.ranks] = values - (values[low] + values[high]) / 2
        low, high = layout.others
        scores[placed.ranks] = values - (values[low] + values[high]) / 2
        return common, scores

    def _layout(self, sizes: Int64Array) -> Layout:
        key = sizes.tobytes()
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= 16:
                self._layouts.clear()
            layout = self._layouts[key] = _layout_of(sizes)
        return layout


def _layout_of(sizes: Int64Array) -> Layout:
    begin = np.cumsum(sizes) - sizes
    group = np.repeat(np.arange(len(sizes)), sizes)
    start, count = np.repeat(begin, sizes), np.repeat(sizes, sizes)
    place = np.arange(len(group)) - start
    low, high = (count - 2) // 2, (count - 1) // 2
    # Without the value at `place`, all behind it move one to the left.
    return Layout(
        group=group,
        start=start,
        count=count,
        place=place,
        middle=(start + (count - 1) // 2, start + count // 2),
        others=(start + low + (place <= low), start + high + (place <= high)),
    )
