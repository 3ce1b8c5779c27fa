"""Ratios of paired blocks, with an interval (docs/bench.md).

A machine drifts: another process starts, a clock boosts. Two conditions that
are measured one after the other differ by that drift. Here every round
measures each condition once, in a shuffled order, and only ratios within a
round are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and the bounds that hold the true one with probability ``CONFIDENCE``."""

    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """Return it for JSON."""
        return {
            "mean": round(self.mean, 5), "low": round(self.low, 5), "high": round(self.high, 5),
        }  # fmt: skip


def ratio(treated: Sequence[float], control: Sequence[float]) -> Interval:
    """Return the geometric mean of ``treated / control`` over rounds, with its interval.

    Raises:
        ValueError: fewer than two rounds, or rounds without a partner.
    """
    logs = [log(t / c) for t, c in zip(treated, control, strict=True)]
    interval = _bootstrap(logs)
    return Interval(mean=exp(interval.mean), low=exp(interval.low), high=exp(interval.high))


def difference(treated: Sequence[float], control: Sequence[float]) -> Interval:
    """Return the mean of ``treated - control`` over rounds, with its interval."""
    return _bootstrap([t - c for t, c in zip(treated, control, strict=True)])


def shuffled_rounds(conditions: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """Return the order of the conditions in each round: the same for every rank."""
    rng = np.random.default_rng(seed)
    return [[conditions[i] for i in rng.permutation(len(conditions))] for _ in range(rounds)]


def against(
    values: Mapping[str, Sequence[float]], treated: str, control: str
) -> dict[str, dict[str, float]]:
    """Return ratio and difference of two conditions for JSON."""
    return {
        "ratio": ratio(values[treated], values[control]).to_dict(),
        "difference": difference(values[treated], values[control]).to_dict(),
    }


def _bootstrap(samples: Sequence[float]) -> Interval:
    if len(samples) < 2:
        raise ValueError(f"{len(samples)} round gives no interval; measure two or more")
    values = np.asarray(samples, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = values[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(mean=float(values.mean()), low=float(low), high=float(high))
