"""Is a rank really slower, or is it chance? A test with a stated rate (docs/math/evidence.md).

Shiryaev-Roberts e-detector (framework: Shin, Ramdas and Rinaldo, "E-detectors"): each step
offers a bet w >= 0 whose mean is at most 1 while nothing is wrong,

    R(t) = (1 + R(t-1)) * w(t).

Over N tests (1/N) sum R - t is then a supermartingale, so alarming at R >= N * gamma gives at
least gamma steps between false alarms. The bets are on places: within one step the order of
healthy peers is exchangeable whatever the noise, so that with j the place of a rank among its K
peers (K = slowest) ``w[j] ~ exp(delta * Phi^-1((j - 1/2) / K))``, scaled to mean 1, is fair.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from paceline_service.analysis.normal import normal_quantile
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array

DELTAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Shifts in residual standard deviations that are bet on. A bet tuned to twice or half the real
shift still grows at 0 or 3/4 of the best rate, so a grid of factor 2 loses a tenth at most."""
PRIOR = (0.08, 0.12, 0.2, 0.25, 0.2, 0.15)
"""Share of the stake on each of them: a mean of e-detectors is an e-detector, and a short
delay, of which ln(1 / share) is the larger part, is that of a strong fault."""
_CEILING = 1e250


@lru_cache(maxsize=64)
def normal_scores(places: int) -> FloatArray:
    """Return ``Phi^-1((j - 1/2) / K)`` of each of ``places`` places; (K,), ascending."""
    return np.array([normal_quantile((j + 0.5) / places) for j in range(places)])


def place_weights(places: int, delta: float) -> FloatArray:
    """Return the betting weight of each place among ``places`` peers; (K,), mean 1, ascending."""
    score = normal_scores(places)
    weight = np.exp(delta * (score - score.max()))
    return np.asarray(weight / weight.mean())


@lru_cache(maxsize=64)
def weight_table(places: int) -> FloatArray:
    """Return the weights of all places for each of DELTAS; (K, D)."""
    return np.stack([place_weights(places, delta) for delta in DELTAS], axis=1)


class EDetector:
    """The evidence in each of N tests that run side by side.

    Args:
        tests: N, for example the ranks of a job; the evidence is kept as (N, len(DELTAS)).
    """

    def __init__(self, tests: int) -> None:
        self._evidence = np.zeros((tests, len(DELTAS)))
        self._prior = np.array(PRIOR)
        self.values = np.zeros(tests)
        """Evidence in each test, (N,); under chance alone the number of steps on average."""

    def bet(self, tests: Int64Array, weights: FloatArray) -> None:
        """Take one step's bets: ``weights`` (n, D) of ``tests`` (n,), each at most once.

        One bet per test and step, or the rate that is promised no longer holds.
        """
        evidence = self._evidence[tests]
        evidence += 1.0
        evidence *= weights
        np.minimum(evidence, _CEILING, out=evidence)
        self._evidence[tests] = evidence
        self.values[tests] = evidence @ self._prior

    def reset(self, tests: BoolArray | Int64Array) -> None:
        """Forget the evidence in ``tests``, as after a finding has been closed."""
        self._evidence[tests] = 0.0
        self.values[tests] = 0.0


def doubt_factors(variance_ratio: FloatArray, needed: float) -> FloatArray:
    """Return what each bet is multiplied with because a rank's normal is known only so well.

    With an error e of the learned offset, in units of the jitter, a bet on delta grows by
    exp(delta e) a step without any fault. Averaged over e ~ N(0, v), and over the
    ``2 needed / delta^2`` steps in which a bet on delta wins, exp(-needed * v) a step undoes
    that, whatever delta (docs/math/evidence.md).

    Args:
        variance_ratio: v of each rank, variance of the offset's error over that of the jitter.
        needed: logarithm of the evidence that raises an alarm.
    """
    return np.asarray(np.exp(-needed * variance_ratio))


def steps_between_false_alarms(
    false_namings_per_month: float, step_s: float, *, channels: float
) -> float:
    """Return gamma: how many steps must pass per false alarm of one of ``channels`` tests.

    Args:
        false_namings_per_month: allowed for the job in 30 days.
        step_s: duration of a step in seconds.
        channels: tests that share the allowance; 1 / share of the one that is meant.
    """
    month_s = 30 * 86_400.0
    return channels * month_s / max(step_s, 1e-6) / max(false_namings_per_month, 1e-9)


def least_steps(peers: int, ranks: int, gamma: float) -> int:
    """Return in how many steps the strongest possible fault can be named.

    The steps that a rank needs which is slowest in every one of them; about
    ln(K gamma) / ln K (DETECTION section 4).
    """
    if peers < 2:
        return 1 << 30
    gain = np.log(weight_table(peers)[-1])
    needed = np.log(ranks * gamma) - np.log(PRIOR)
    return int(np.ceil((needed / np.maximum(gain, 1e-12)).min()))


def least_shift(
    steps: int,
    *,
    peers: int,
    ranks: int,
    gamma: float,
    jitter: float,
    autocorrelation: float,
    doubt: float = 0.0,
) -> float:
    """Return the smallest lasting slowdown that ``steps`` steps would have shown, log units.

    A shift of D standard deviations adds about ``D^2/2 (1 - 1/K)`` to the logarithm of the
    evidence per step, less ``needed * doubt``, and ``needed`` is to be reached.

    Args:
        steps: judged steps; at least 1.
        peers: K, at least 2.
        ranks: all ranks of the job.
        gamma: steps between false alarms.
        jitter: standard deviation of a score, log units.
        autocorrelation: lag-1; whitening costs a lasting shift that much of its strength.
        doubt: variance of a learned offset's error over that of the jitter.
    """
    needed = np.log(ranks * gamma) - np.log(max(PRIOR))
    deviations = np.sqrt(2 * needed * (1 / max(steps, 1) + doubt) / (1 - 1 / peers))
    lasting = np.sqrt((1 + autocorrelation) / (1 - autocorrelation))
    return float(deviations * jitter * lasting)
