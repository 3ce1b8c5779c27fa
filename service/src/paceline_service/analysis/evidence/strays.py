"""Ranks that do what no other rank does (a pipeline stage of one): compared with their own past."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.evidence.baseline import median_by_rank
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray
from paceline_service.analysis.scores import spread


class StrayReference:
    """Scores a stray rank by its log self time less its usual one, less that of all ranks.

    What slows the whole job is taken off: the median, over the other ranks, of how far each is
    from its own usual time.
    """

    def __init__(self, world_size: int, learning_steps: int) -> None:
        self._everyone = PeerPlan([np.arange(world_size)], world_size)
        self._steps = learning_steps
        self._rows: list[FloatArray] = []
        self._usual: FloatArray | None = None
        self.just_learned = False
        """Whether this step was the last that the usual times were learned from."""
        self.variance = 0.0
        """Of a score, as the steps that were learned from show it."""

    def compare(self, logs: FloatArray, stray: BoolArray, busy: BoolArray) -> FloatArray:
        """Return the scores of the ``stray`` ranks, (n,); NaN while nothing is learned."""
        self.just_learned = False
        if self._usual is None:
            self._rows.append(logs)
            if len(self._rows) < self._steps:
                return np.full(int(stray.sum()), np.nan)
            self._usual = median_by_rank(np.stack(self._rows))
            learned = [self._everyone.compare(row - self._usual)[1][stray] for row in self._rows]
            seen = np.concatenate(learned)
            self.variance = spread(seen[~np.isnan(seen)]) ** 2
            self._rows.clear()
            self.just_learned = True
        away = logs - self._usual
        _, scores = self._everyone.compare(away)
        if busy.any():
            fit = away[~busy & ~np.isnan(away)]
            if len(fit) > 1:
                scores = np.where(busy, away - median_of(fit), scores)
        return np.asarray(scores[stray])
