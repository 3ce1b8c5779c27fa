"""What is normal for each rank: its persistent offset, its jitter, and how jitter lasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline_service.analysis.records import BoolArray, FloatArray
from paceline_service.analysis.scores import spread

MAX_AUTOCORRELATION = 0.9
HEALTHY_SPREAD = 0.017
"""Persistent differences of healthy ranks: 0.2-1.7 % on real clusters (DETECTION section 4)."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, sqrt(pi / 2), for normal values."""
CLIP = 3.0
"""Standard deviations at which a value is clipped before it is averaged: costs 1 % of the
precision of a mean where jitter is normal, and spikes do not move it."""
FAULT_IN_LEARNING = 0.2
"""A fault that begins while learning looks like jitter that lasts: a correlation that jumps by
more than its own error (0.1 at 30 steps of 4 ranks) is not believed."""
MOVED = 2.5
"""Standard errors between two epochs beyond which a rank keeps its older offset: one healthy rank
in 160 then learns an epoch later, and a fault that is too weak to be named yet is not learned."""
SCALE_STEPS = 60.0
"""A rank's own jitter is believed as far as it was seen in more steps than this; before that it
is taken to be that of its peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was learned from the steps of a job so far.

    Attributes:
        jitter: residual standard deviation, log units, pooled over the ranks.
        autocorrelation: lag-1, pooled; 0 when there is none.
        offset: (R,) persistent score of each rank, log units, shrunk towards none at all as
            far as it is uncertain; 0 where unknown.
        score_offset: (R,) the same for the scores that measure.
        scale: (R,) jitter of each rank over the pooled one.
        steps: (R,) from how many steps its offset was learned.
        doubt: (R,) variance of the offset's error over that of the jitter, both whitened.
    """

    jitter: float
    autocorrelation: float
    offset: FloatArray
    score_offset: FloatArray
    scale: FloatArray
    steps: FloatArray
    doubt: FloatArray


class Learner:
    """Learns in epochs: the first ``learning_steps``, then 2, 4, ... times as many.

    After each epoch the offsets are those of all steps so far, for ranks that were calm; after
    the last they are frozen. State is (R,) but for the first epoch.
    """

    def __init__(self, world_size: int, learning_steps: int, relearnings: int) -> None:
        self._size = world_size
        self._first = learning_steps
        self._next = learning_steps
        self._until = learning_steps << relearnings
        self._steps = 0
        self._rows: list[FloatArray] = []
        self._location = np.zeros((2, world_size))
        self._learned = np.zeros(world_size)
        self._squares = np.zeros(world_size)
        self._squared = np.zeros(world_size)
        self._sum = np.zeros((2, world_size))
        self._count = np.zeros(world_size)
        self._lagged = np.zeros((2, world_size))
        self._lags = np.zeros((2, world_size))
        self._before = np.full(world_size, np.nan)
        self.baseline: Baseline | None = None

    @property
    def done(self) -> bool:
        """Whether the offsets are frozen."""
        return self._steps >= self._until

    def add(self, common: FloatArray, scores: FloatArray) -> bool:
        """Take one step, both (R,), NaN absent; returns whether an epoch is complete."""
        if self.done:
            return False
        self._steps += 1
        both = np.stack([common, scores])
        if self.baseline is None:
            self._rows.append(both)
        else:
            limit = CLIP * self.baseline.jitter * self.baseline.scale
            limit[limit == 0] = np.inf
            self._accumulate(both, limit)
        return self._steps == self._next

    def learn(self, calm: BoolArray) -> Baseline:
        """End an epoch: take over what was learned of the ranks that are ``calm``, (R,)."""
        if self.baseline is None:
            calm = np.ones(self._size, dtype=np.bool_)
            self._begin()
        fresh = calm & (self._count > 0) & ~self._moved()
        known, more = self._learned[fresh], self._count[fresh]
        self._location[:, fresh] += self._sum[:, fresh] / (known + more)
        self._learned[fresh] += more
        self._squares[fresh] += self._squared[fresh]
        self._lagged[:, fresh] += self._lags[:, fresh]
        self.baseline = self._baseline()
        for sums in (self._sum, self._count, self._squared, self._lags):
            sums[:] = 0.0
        self._next *= 2
        return self.baseline

    def _moved(self) -> BoolArray:
        """Return which ranks changed in this epoch beyond chance: nothing to learn from."""
        before = self.baseline
        if before is None:
            return np.zeros(self._size, dtype=np.bool_)
        rho = before.autocorrelation
        count, known = np.maximum(self._count, 1), np.maximum(self._learned, 1)
        error = before.jitter * before.scale * np.sqrt((1 + rho) / (1 - rho))
        limit = MOVED * error * np.sqrt(1 / count + 1 / known)
        return np.asarray((self._learned > 0) & (np.abs(self._sum[0]) / count > limit))

    def adopt(self, ranks: BoolArray, steps: int) -> None:
        """Take ``ranks``, whose scores came to be 0 on average, as learned from ``steps``."""
        self._learned[ranks] = steps
        if self.baseline is not None:
            self.baseline = self._baseline()

    def _begin(self) -> None:
        rows = np.stack(self._rows)
        self._rows.clear()
        self._location = np.stack([median_by_rank(rows[:, 0]), median_by_rank(rows[:, 1])])
        residual = rows[:, 0] - self._location[0]
        flat = residual[~np.isnan(residual)]
        limit = np.full(self._size, CLIP * spread(flat) if len(flat) else 0.0)
        limit[limit == 0] = np.inf
        for row in rows:
            self._accumulate(row, limit)

    def _accumulate(self, both: FloatArray, limit: FloatArray) -> None:
        deviation = np.clip(both - self._location, -limit, limit)
        known = ~np.isnan(deviation[0])
        self._count += known
        lagged = deviation[0] * self._before
        pairs = ~np.isnan(lagged)
        self._before = deviation[0].copy()
        if not known.all():
            deviation[:, ~known] = 0.0
        self._sum += deviation
        square = deviation[0] ** 2
        self._squared += square
        self._lags[0] += np.where(pairs, lagged, 0.0)
        self._lags[1] += square * pairs

    def _baseline(self) -> Baseline:
        steps = np.maximum(self._learned, 1.0)
        total = float(self._learned.sum())
        # A location was taken from each rank's values: that many degrees of freedom less.
        free = max(total - float(np.count_nonzero(self._learned)), 1.0)
        jitter = float(np.sqrt(self._squares.sum() / free)) if total else 0.0
        rho = self._autocorrelation(total)
        before = self.baseline
        if before and rho > before.autocorrelation + FAULT_IN_LEARNING:
            rho = before.autocorrelation
        variance = (self._squares + SCALE_STEPS * jitter**2) / (self._learned + SCALE_STEPS)
        scale = np.sqrt(variance) / jitter if jitter > 0 else np.ones(self._size)
        error = jitter * scale * np.sqrt((1 + rho) / (1 - rho) / steps)
        seen = self._learned > 0
        typical = spread(self._location[0][seen]) if seen.any() else 0.0
        usual_error = float(np.median(error[seen])) if seen.any() else 0.0
        healthy = max(HEALTHY_SPREAD**2, typical**2 - usual_error**2)
        kept = healthy / (healthy + error**2)
        doubt = kept / steps
        doubt[~seen] = 1.0
        return Baseline(
            jitter=jitter,
            autocorrelation=rho,
            offset=self._location[0] * kept,
            score_offset=self._location[1] * kept,
            scale=scale,
            steps=self._learned.copy(),
            doubt=doubt,
        )

    def _autocorrelation(self, total: float) -> float:
        lagged, squares = self._lagged.sum(axis=1)
        if total < 8 or squares <= 0:
            return 0.0
        rho = float(lagged / squares)
        # Residuals about a mean of the same n steps lean towards -1/n (Marriott and Pope 1954).
        span = total / max(int(np.count_nonzero(self._learned)), 1)
        return float(np.clip(rho + (1 + 3 * rho) / span, 0.0, MAX_AUTOCORRELATION))


def median_error(jitter: float, count: int, autocorrelation: float) -> float:
    """Return the standard error of the median of ``count`` values with AR(1) noise."""
    lasting = (1 + autocorrelation) / (1 - autocorrelation)
    return MEDIAN_ERROR * jitter * float(np.sqrt(lasting / count))


def median_by_rank(scores_TR: FloatArray) -> FloatArray:
    """Return the median of each rank's known scores, 0 where it has none; (R,)."""
    known = ~np.isnan(scores_TR).all(axis=0)
    medians = np.zeros(scores_TR.shape[1])
    medians[known] = np.nanmedian(scores_TR[:, known], axis=0)
    return medians
