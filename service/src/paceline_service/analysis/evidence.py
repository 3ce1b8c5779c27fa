"""Is a rank really slower, or is it chance? A test with a stated rate (docs/math/evidence.md).

Rank-based Shiryaev-Roberts e-detector (framework: Shin, Ramdas and Rinaldo, "E-detectors"):
within one step the order of healthy peers is exchangeable whatever the noise, so

    R_r(t) = (1 + R_r(t-1)) * w[j],    w[j] ~ exp(delta * Phi^-1((j - 1/2) / K)),  mean 1,

with j the rank's place among its K peers (K = slowest). (1/K) sum_r R_r(t) - t is a
martingale, so alarming at R >= K * gamma gives at least gamma steps between false alarms.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array

DELTAS = (0.5, 1.0, 2.0, 4.0)
"""Shifts in residual standard deviations that the mixture is tuned to; a mean of e-detectors
is an e-detector, so covering weak and strong faults costs at most ln 4 of evidence."""
_CEILING = 1e250


def place_weights(places: int, delta: float) -> FloatArray:
    """Return the betting weight of each place among ``places`` peers; (K,), mean 1, ascending."""
    normal = NormalDist()
    score = np.array([normal.inv_cdf((j + 0.5) / places) for j in range(places)])
    weight = np.exp(delta * (score - score.max()))
    return np.asarray(weight / weight.mean())


def betting_weights(
    values: FloatArray, weights: FloatArray, margin: FloatArray | float = 0.0
) -> FloatArray:
    """Return the weight of each value's place among the others, (K,).

    A value is placed as if it were ``margin`` smaller than it is (the others are not): what is
    known of it only to within ``margin`` bets on nothing smaller. Equal values share the mean
    of their places, because a sort that broke ties by position would favour the same rank.
    """
    ordered = np.sort(values)
    target = values - margin
    low = np.searchsorted(ordered, target, side="left")
    high = np.searchsorted(ordered, target, side="right") - (np.asarray(margin) == 0)
    summed = np.concatenate([[0.0], np.cumsum(weights)])
    return np.asarray((summed[high + 1] - summed[low]) / (high + 1 - low))


class EDetector:
    """The evidence against each rank of a job, peer group by peer group.

    Args:
        world_size: R; the evidence is kept for all ranks, (len(DELTAS), R).
    """

    def __init__(self, world_size: int) -> None:
        self._evidence = np.zeros((len(DELTAS), world_size))
        self._weights: dict[int, FloatArray] = {}

    def update(
        self, scores: FloatArray, peers: Int64Array, margin: FloatArray | None = None
    ) -> None:
        """Take one step's scores of the ranks in ``peers`` (larger is slower); NaN is absent.

        ``margin`` (R,) is how far each score may be off in a way that lasts (a learned offset).
        One score per rank and step, or the rate that is promised no longer holds.
        """
        present = peers[~np.isnan(scores[peers])]
        if len(present) < 2:
            return
        table = self._table(len(present))
        lasting = 0.0 if margin is None else margin[present]
        for row, weights in enumerate(table):
            weight = betting_weights(scores[present], weights, lasting)
            evidence = self._evidence[row, present]
            self._evidence[row, present] = np.minimum((1.0 + evidence) * weight, _CEILING)

    def values(self) -> FloatArray:
        """Return the evidence against each rank, (R,)."""
        return np.asarray(self._evidence.mean(axis=0))

    def reset(self, ranks: BoolArray | Int64Array) -> None:
        """Forget the evidence against ``ranks``, as after a finding has been closed."""
        self._evidence[:, ranks] = 0.0

    def _table(self, places: int) -> FloatArray:
        table = self._weights.get(places)
        if table is None:
            table = np.stack([place_weights(places, delta) for delta in DELTAS])
            self._weights[places] = table
        return table


def steps_between_false_alarms(
    false_namings_per_month: float, step_s: float, *, channels: int
) -> float:
    """Return gamma: how many steps must pass per false alarm of one of ``channels`` tests.

    Args:
        false_namings_per_month: allowed for the job in 30 days.
        step_s: duration of a step in seconds.
        channels: tests that may each raise one; they share the allowance.
    """
    month_s = 30 * 86_400.0
    return channels * month_s / max(step_s, 1e-6) / max(false_namings_per_month, 1e-9)


def least_steps(peers: int, ranks: int, gamma: float) -> int:
    """Return in how many steps the strongest possible fault can be named.

    ``ceil(ln(ranks * gamma) / ln(w_max))``, with w_max the mixture's best weight for a rank
    that is slowest in every step; about ln(K gamma) / ln K (DETECTION section 4).
    """
    if peers < 2:
        return 1 << 30
    best = max(float(place_weights(peers, delta)[-1]) for delta in DELTAS)
    return int(np.ceil(np.log(ranks * gamma * len(DELTAS)) / np.log(best)))


def least_shift(
    steps: int, *, peers: int, ranks: int, gamma: float, jitter: float, autocorrelation: float
) -> float:
    """Return the smallest lasting slowdown that ``steps`` steps would have shown, log units.

    A shift of D standard deviations adds about ``D^2/2 (1 - 1/K)`` to the logarithm of the
    evidence per step, which must reach ``ln(ranks * gamma)`` (and ln 4 for the mixture).

    Args:
        steps: judged steps; at least 1.
        peers: K, at least 2.
        ranks: all ranks of the job.
        gamma: steps between false alarms.
        jitter: standard deviation of a score, log units.
        autocorrelation: lag-1; whitening costs a lasting shift that much of its strength.
    """
    needed = np.log(ranks * gamma * len(DELTAS))
    deviations = np.sqrt(2 * needed / (max(steps, 1) * (1 - 1 / peers)))
    lasting = np.sqrt((1 + autocorrelation) / (1 - autocorrelation))
    return float(deviations * jitter * lasting)
