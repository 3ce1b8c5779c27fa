"""What is normal for each rank: its persistent offset, its jitter, and how jitter lasts."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of
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
GROWTH = 1.1
"""How often is learned: what is known then lacks a fifth of the steps at most."""
MOVED = 2.0
"""Standard errors between two epochs beyond which a rank keeps its older offset: one healthy rank
in 20 then learns an epoch later, and a fault that is too weak to be named yet is not learned."""
SCALE_STEPS = 150.0
"""A rank's own jitter is believed as far as it was seen in more steps than this; before that it
is taken to be that of its peers: as if healthy ranks differed in it by 6 %, 1 / sqrt(2 * 150)."""


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
    """Learns in epochs that each end when ``GROWTH`` times as many steps were seen.

    After each epoch the offsets are those of all steps up to the epoch *before*: what the newest
    one shows is learned only when it is clear that it was no fault. After ``learning_steps <<
    relearnings`` steps they are frozen. State is (R,) but for the first epoch.
    """

    def __init__(self, world_size: int, learning_steps: int, relearnings: int) -> None:
        self._size = world_size
        self._next = learning_steps
        self._until = learning_steps << relearnings
        self._steps = 0
        self._rows: list[FloatArray] = []
        self._location = np.zeros((2, world_size))
        self._known = _Sums(world_size)
        self._pending = _Sums(world_size)
        self._newest = _Sums(world_size)
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
            self._begin()
            self._known.take(self._newest, np.ones(self._size, dtype=np.bool_))
            self._recentre(self._known)
        else:
            taken = calm & ~self._moved()
            self._known.take(self._pending, taken)
            self._pending.take(self._newest, np.ones(self._size, dtype=np.bool_))
            self._recentre(self._known)
        self.baseline = self._baseline()
        self._next = min(max(self._next + 1, round(self._next * GROWTH)), self._until)
        return self.baseline

    def adopt(self, ranks: BoolArray, steps: int, variance: float) -> None:
        """Take ``ranks``, the medians of whose scores over ``steps`` came to be 0, as learned.

        A median of so many steps is as exact as a mean of two thirds of them.
        """
        worth = steps / MEDIAN_ERROR**2
        self._known.count[ranks] = worth
        self._known.squares[:, ranks] = worth * variance
        if self.baseline is not None:
            self.baseline = self._baseline()

    def _moved(self) -> BoolArray:
        """Return which ranks changed since what is known, beyond chance: nothing to learn from."""
        before = self.baseline
        if before is None or before.jitter <= 0:  # nothing known yet of what chance does
            return np.zeros(self._size, dtype=np.bool_)
        rho = before.autocorrelation
        recent = self._pending.count + self._newest.count
        away = (self._pending.total[0] + self._newest.total[0]) / np.maximum(recent, 1)
        error = before.jitter * before.scale * np.sqrt((1 + rho) / (1 - rho))
        known = np.maximum(self._known.count, 1)
        limit = MOVED * error * np.sqrt(1 / np.maximum(recent, 1) + 1 / known)
        return np.asarray((self._known.count > 0) & (np.abs(away) > limit))

    def _begin(self) -> None:
        rows = np.stack(self._rows)
        self._rows.clear()
        self._location = np.stack([median_by_rank(rows[:, 0]), median_by_rank(rows[:, 1])])
        residual = rows[:, 0] - self._location[0]
        flat = residual[~np.isnan(residual)]
        limit = np.full(self._size, CLIP * spread(flat))
        limit[limit == 0] = np.inf
        for row in rows:
            self._accumulate(row, limit)

    def _accumulate(self, both: FloatArray, limit: FloatArray) -> None:
        deviation = np.clip(both - self._location, -limit, limit)
        lagged = deviation[0] * self._before
        self._before = deviation[0].copy()
        known = ~np.isnan(deviation[0])
        if not known.all():
            deviation[:, ~known] = 0.0
        pairs = ~np.isnan(lagged)
        if not pairs.all():
            lagged[~pairs] = 0.0
        newest, square = self._newest, deviation**2
        newest.count += known
        newest.total += deviation
        newest.squares += square
        newest.lags[0] += lagged
        newest.lags[1] += square[0] * pairs

    def _recentre(self, known: _Sums) -> None:
        """Move the locations to the mean of all that is known, and every sum with them."""
        shift = known.total / np.maximum(known.count, 1)
        self._location += shift
        for sums in (self._known, self._pending, self._newest):
            sums.total -= sums.count * shift

    def _baseline(self) -> Baseline:
        known = self._known
        seen = known.count > 0
        steps = np.maximum(known.count, 1.0)
        total = float(known.count.sum())
        # A location was taken from each rank's values: that many degrees of freedom less.
        free = max(total - float(np.count_nonzero(seen)), 1.0)
        jitter, measured = np.sqrt(known.squares.sum(axis=1) / free) if total else np.zeros(2)
        rho = self._autocorrelation(total)
        before = self.baseline
        if before and rho > before.autocorrelation + FAULT_IN_LEARNING:
            rho = before.autocorrelation
        # Scores, not differences from the common median: a rank that often is the median itself
        # would seem calm.
        variance = (known.squares[1] + SCALE_STEPS * measured**2) / (known.count + SCALE_STEPS)
        scale = np.sqrt(variance) / measured if measured > 0 else np.ones(self._size)
        error = jitter * scale * np.sqrt((1 + rho) / (1 - rho) / steps)
        healthy = healthy_variance(self._location[0][seen], error[seen])
        kept = healthy / (healthy + error**2 + 1e-30)
        doubt = kept / steps
        doubt[~seen] = 1.0
        return Baseline(
            jitter=float(jitter),
            autocorrelation=rho,
            offset=self._location[0] * kept,
            score_offset=self._location[1] * kept,
            scale=scale,
            steps=known.count.copy(),
            doubt=doubt,
        )

    def _autocorrelation(self, total: float) -> float:
        lagged, squares = self._known.lags.sum(axis=1)
        if total < 8 or squares <= 0:
            return 0.0
        rho = float(lagged / squares)
        # Residuals about a mean of the same n steps lean towards -1/n (Marriott and Pope 1954).
        span = total / max(int(np.count_nonzero(self._known.count)), 1)
        return float(np.clip(rho + (1 + 3 * rho) / span, 0.0, MAX_AUTOCORRELATION))


class _Sums:
    """Sums of clipped deviations of R ranks over some steps."""

    def __init__(self, world_size: int) -> None:
        self.count = np.zeros(world_size)
        self.total = np.zeros((2, world_size))
        self.squares = np.zeros((2, world_size))
        self.lags = np.zeros((2, world_size))

    def take(self, other: _Sums, ranks: BoolArray) -> None:
        """Move what ``other`` has of ``ranks`` here."""
        for name in ("count", "total", "squares", "lags"):
            mine, its = getattr(self, name), getattr(other, name)
            mine[..., ranks] += its[..., ranks]
            its[..., ranks] = 0.0


def healthy_variance(locations: FloatArray, errors: FloatArray) -> float:
    """Return the variance by which ranks may persistently differ, log units squared.

    What the locations show beyond their errors, but at least ``HEALTHY_SPREAD``; unless there
    are ranks enough to show that they differ by less: then the upper limit of what they show.
    """
    count = len(locations)
    if count < 2:
        return HEALTHY_SPREAD**2
    limit = 4 * spread(locations)
    tame = np.clip(locations - median_of(locations), -limit, limit)
    shown, by_chance = float(np.mean(tame**2)), median_of(errors) ** 2
    usual = max(HEALTHY_SPREAD**2, shown - by_chance)
    most = shown * (1 + 2 * np.sqrt(2 / (count - 1))) - by_chance
    return float(np.clip(most, 0.01 * by_chance, usual))


def median_error(jitter: float, count: int, autocorrelation: float) -> float:
    """Return the standard error of the median of ``count`` values with AR(1) noise."""
    lasting = (1 + autocorrelation) / (1 - autocorrelation)
    return MEDIAN_ERROR * jitter * float(np.sqrt(lasting / count))


def median_by_rank(scores_TR: FloatArray) -> FloatArray:
    """Return the median of each rank's known scores, 0 where it has none; (R,)."""
    known = ~np.isnan(scores_TR).all(axis=0)
    medians = np.zeros(scores_TR.shape[1])
    values = scores_TR[:, known]
    # Masked arrays, which nanmedian goes by, take longer to import than this takes.
    complete = not np.isnan(values).any()
    medians[known] = median_of(values, axis=0) if complete else np.nanmedian(values, axis=0)
    return medians
