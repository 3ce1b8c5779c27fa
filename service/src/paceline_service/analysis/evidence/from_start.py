"""Ranks that were slow from their first step: told by how far they stand apart (evidence.md)."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from paceline_service.analysis.evidence.baseline import (
    HEALTHY_SPREAD,
    MEDIAN_ERROR,
    Baseline,
    median_by_rank,
)
from paceline_service.analysis.evidence.edetector import EDetector
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.normal import normal_quantile
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import BoolArray, FloatArray
from paceline_service.analysis.scores import MAD_TO_SD, spread
from paceline_service.analysis.sets import distinct

CHANCE = 1e-3
"""Chance that the persistent difference of any healthy rank of a job, or the error of its
measurement, is beyond the limit."""
BLOCK_STEPS = 16
"""A rank's place is a mean of medians of this many steps: spikes do not move it, and a fault that
began while learning does at once."""
BLOCKS = 16
"""How many of them are kept."""
_MANY = 32


class StartWatch:
    """Bets on scores as they are, without any learned offset.

    Healthy ranks differ for good by a percent or two, which this evidence cannot tell from a
    fault: a rank must besides stand apart by more than healthy ranks do.
    """

    def __init__(self, world_size: int, options: Options) -> None:
        self.detector = EDetector(world_size)
        self.limit = options.slow_from_start_ratio
        self._least = options.slow_from_start_ratio
        self._rows: list[FloatArray] = []
        self._blocks: deque[FloatArray] = deque(maxlen=BLOCKS)
        self._steps = 0

    def see(self, fresh: FloatArray, common: FloatArray, plan: PeerPlan) -> None:
        """Take one step's whitened scores and the scores themselves, (R,), NaN absent."""
        placed = plan.place(fresh)
        weights, _ = placed.bets()
        self.detector.bet(placed.ranks, weights)
        self._steps += 1
        self._rows.append(common)
        if len(self._rows) == BLOCK_STEPS:
            self._blocks.append(median_by_rank(np.stack(self._rows)))
            self._rows.clear()

    def stand_apart(self, among: BoolArray, plan: PeerPlan, baseline: Baseline | None) -> BoolArray:
        """Return which of the ranks ``among`` (R,) are further apart than healthy ranks, (R,)."""
        result = np.zeros_like(among)
        if self._blocks and self._rows:
            return result
        where, error = self._places(baseline)
        for group in distinct(plan.group[among & (plan.group >= 0)]):
            peers = np.flatnonzero(plan.group == group)
            centre = median_of(where[peers])
            # Of many peers only the outer ones are worth a closer look.
            usual = spread(where[peers]) if len(peers) > _MANY else 0.0
            far = among[peers] & (where[peers] - centre > 2 * usual)
            for rank in peers[far]:
                others = where[peers[peers != rank]]
                limit = max(healthy_limit(others), self._least)
                doubt = normal_quantile(1 - CHANCE / len(peers)) * error[rank]
                result[rank] = where[rank] - median_of(others) - doubt > limit
                self.limit = limit
        return result

    def _places(self, baseline: Baseline | None) -> tuple[FloatArray, FloatArray]:
        """Return where each rank stands and the standard error of that, both (R,)."""
        if self._blocks:
            where = np.mean(np.stack(self._blocks), axis=0)
            known = float(BLOCK_STEPS * len(self._blocks))
        else:
            where, known = median_by_rank(np.stack(self._rows)), float(len(self._rows))
        if baseline is not None:
            rho = baseline.autocorrelation
            size = baseline.jitter * baseline.scale * np.sqrt((1 + rho) / (1 - rho))
        else:
            rows = np.stack(self._rows) if self._rows else np.stack(self._blocks)
            size = MAD_TO_SD * median_by_rank(np.abs(rows - where))
            size *= 1.0 if self._rows else np.sqrt(BLOCK_STEPS)
        return where, MEDIAN_ERROR * size / np.sqrt(known)


def healthy_limit(others: FloatArray) -> float:
    """Return how far from its K - 1 peers a healthy rank may persistently be, log units.

    The smaller of two limits, each exceeded by any of K healthy ranks once in 1000 jobs: what
    the peers themselves show (Student's t, as their spread is known from K - 1 values), and what
    healthy clusters show, 1.7 % or more where the peers' spread is surely more.
    """
    count = len(others)
    chance = CHANCE / (count + 1)
    wider = math.sqrt(1 + 1 / max(count, 1))
    # Not a robust spread: of seven values it is far too small too often for Student's t.
    shown = float(np.std(others, ddof=1)) if count > 1 else 0.0
    sure = max(1 - 2 / math.sqrt(2 * max(count - 1, 1)), 0.0) * shown
    known = normal_quantile(1 - chance) * wider * max(HEALTHY_SPREAD, sure)
    if count < 4:
        return known
    return min(known, student_quantile(1 - chance, count - 1) * wider * shown)


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t (Hill 1970, Algorithm 396), far tails within 1 %."""
    n = float(freedom)
    two_sided = 2 * (1 - probability)
    a = 1 / (n - 0.5)
    b = (48 / a) / a
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    x = d * two_sided
    y = x ** (2 / n)
    if y > 0.05 + a:
        x = normal_quantile(two_sided / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)
