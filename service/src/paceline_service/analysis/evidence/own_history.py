"""Evidence against a rank by its own past, for small peer groups (docs/math/evidence.md).

Among K peers a step can bet at most ln K. Against n past residuals it bets up to ln n, so few
peers, or none, no longer cap the evidence.
"""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.evidence.baseline import SCALE_STEPS
from paceline_service.analysis.evidence.edetector import DELTAS, EDetector, weight_table
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array

LARGEST_GROUP = 96
"""Peers up to which the past adds something: with more, places among peers lose below 10 %."""
TABLE_VALUES = 16_384
"""Past residuals that are kept; (n places of them bound the evidence of one step to ln n)."""
MOST_PLACES = 1024
LEAST_VALUES = 100
"""Past residuals below which there is no table: its tail would be a guess."""
_CLIP = 2.5
_MEMORY_STEPS = 128.0
"""Over how many steps the present size of the jitter is averaged: noisier times of all ranks are
no fault of any."""


class OwnHistory:
    """Bets on where a rank's residual lies among those of the past.

    A residual is the rank's whitened score less its offset, less the mean of its peers', over
    the present size of the group's jitter. The past is pooled over the ranks of small groups.
    """

    def __init__(self, world_size: int) -> None:
        self.detector = EDetector(world_size)
        self._size = world_size
        self._plan: PeerPlan | None = None
        self._members: Int64Array = np.zeros(0, dtype=np.int64)
        self._group: Int64Array = self._members
        self._present = np.zeros(0)
        self._past: list[FloatArray] = []
        self._held = 0
        self._edges: FloatArray | None = None
        self._values = 0
        self._table = np.zeros((0, len(DELTAS)))
        self._factors: FloatArray = np.zeros((0, len(DELTAS)))

    @property
    def tests(self) -> int:
        """How many ranks are tested."""
        return len(self._members)

    def see(self, residual: FloatArray, plan: PeerPlan, busy: BoolArray, *, learning: bool) -> None:
        """Take one step's residuals in standard deviations, (R,); NaN is absent.

        ``busy`` ranks are known to be slow: they neither bet nor are they anybody's measure.
        """
        if plan is not self._plan:
            self._adopt(plan)
        if not len(self._members):
            return
        value = residual[self._members]
        away = np.isnan(value) | busy[self._members]
        some_away = bool(away.any())
        tame = np.clip(value, -_CLIP, _CLIP)
        groups = len(self._present)
        if some_away:
            tame[away] = 0.0
            present = np.bincount(self._group, weights=~away, minlength=groups)
            count: FloatArray = present.astype(float)[self._group]
        else:
            count = self._count
        total = np.bincount(self._group, weights=tame, minlength=groups)[self._group]
        others = np.maximum(count - 1, 1)
        own = (value - (total - tame) / others) / np.sqrt(1 + (count > 1) / others)
        own /= np.maximum(self._present[self._group], 1e-9)
        self._follow_size(np.abs(own), count, away if some_away else None)
        here = np.flatnonzero(~away & ((count > 1) | self._alone)) if some_away else None
        if learning:
            self._remember(own if here is None else own[here])
        if self._edges is None:
            return
        members = self._members if here is None else self._members[here]
        own = own if here is None else own[here]
        low = np.searchsorted(self._edges, own, side="left")
        high = np.searchsorted(self._edges, own, side="right")
        factors = self._factors if here is None else self._factors[here]
        self.detector.bet(members, self._table[(low + high) // 2] * factors)

    def learn(self, doubt: FloatArray, steps: FloatArray, needed: float) -> None:
        """End an epoch: place what follows among the residuals so far.

        Args:
            doubt: (R,) variance of each offset's error over that of the jitter.
            steps: (R,) from how many steps it was learned.
            needed: logarithm of the evidence that raises an alarm.
        """
        if self._held >= LEAST_VALUES:
            self._past = [np.concatenate(self._past)[-TABLE_VALUES:]]
            self._held = len(self._past[0])
            past = np.sort(self._past[0])
            self._values = len(past)
            places = min(len(past), MOST_PLACES)
            at = np.arange(1, places) * len(past) // places
            self._edges = past[at]
            self._table = weight_table(places)
        if self._values:
            self._doubt = (doubt, steps, needed)
            self._factor()

    def _factor(self) -> None:
        """What is doubtful: the offset, the table (2 of its values), and the rank's own jitter."""
        doubt, steps, needed = self._doubt
        delta = np.array(DELTAS)
        rank = doubt[self._members] + 2 / self._values
        scale = delta**2 / (2 * (steps[self._members, None] + SCALE_STEPS))
        self._factors = np.exp(-needed * (rank[:, None] + scale))

    def _adopt(self, plan: PeerPlan) -> None:
        self._plan = plan
        small = plan.stray.copy()
        grouped = plan.group >= 0
        small[grouped] = plan.sizes[plan.group[grouped]] <= LARGEST_GROUP
        self._members = np.flatnonzero(small)
        group = plan.group[self._members]
        alone = group < 0
        group[alone] = plan.groups + np.arange(int(alone.sum()))
        _, self._group = np.unique(group, return_inverse=True)
        self._alone = alone
        self._count = np.bincount(self._group)[self._group].astype(float)
        self._present = np.ones(int(self._group.max(initial=-1)) + 1)
        if self._values:
            self._factor()

    def _follow_size(self, size: FloatArray, count: FloatArray, away: BoolArray | None) -> None:
        """Follow how large residuals are at present in each group, known before the next step."""
        size = np.minimum(size, _CLIP)
        if away is not None:
            size[away] = 0.0
        mean = np.bincount(self._group, weights=size / np.maximum(count, 1))
        # 0.79 is the mean size of a standard normal value, clipped at 2.5.
        factor = 1 + (mean / 0.79 - 1) / _MEMORY_STEPS
        self._present *= np.where(mean > 0, factor, 1.0)

    def _remember(self, own: FloatArray) -> None:
        self._past.append(own[:TABLE_VALUES])
        self._held += len(self._past[-1])
        while self._held - len(self._past[0]) >= TABLE_VALUES:
            self._held -= len(self._past.pop(0))
