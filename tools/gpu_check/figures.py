"""The arithmetic of the check: pure, so that it is tested where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, sqrt
from statistics import fmean, median, stdev

T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t, two-sided 95 %, for 1 to 9 degrees of freedom."""


def tick_ns(stamps: Sequence[int]) -> int:
    """Return the largest step that all differences of ``stamps`` are multiples of; 0: none seen."""
    step = 0
    for before, after in pairwise(stamps):
        step = gcd(step, abs(after - before))
    return step


def smallest_step_ns(stamps: Sequence[int]) -> int:
    """Return the smallest difference that is not 0, 0 where there is none."""
    return min((b - a for a, b in pairwise(stamps) if b > a), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """Bounds of ``host time - GPU time``; a stamp lies between two readings of the host."""

    low_ns: int
    high_ns: int

    @property
    def width_ns(self) -> int:
        """How much is unknown; the plugin takes the upper end."""
        return self.high_ns - self.low_ns


def offset(rounds: Iterable[tuple[int, int, int]]) -> Offset:
    """Return what all of ``rounds`` (host before, GPU stamp, host after) allow, ns."""
    seen = list(rounds)
    return Offset(
        low_ns=max(before - stamp for before, stamp, _ in seen),
        high_ns=min(after - stamp for _, stamp, after in seen),
    )


def drift_ppm(early: Offset, late: Offset, apart_ns: int) -> float:
    """Return how fast the clocks part, from the middles of two offsets."""
    middle = (late.low_ns + late.high_ns - early.low_ns - early.high_ns) / 2
    return middle / apart_ns * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What the durations say of a rank that was delayed."""

    found: int
    """Collectives of which it had the shortest duration, by ``least_ns``."""
    of: int
    waited_ns: float
    """How much longer the others were in the collective, median."""


def find_late(
    durations_ns: Mapping[int, Mapping[int, int]], keys: Sequence[int], rank: int, least_ns: int
) -> Late:
    """Compare the delayed ``rank`` with the others.

    Args:
        durations_ns: of each rank, by a key that all ranks share.
        keys: of the collectives before which it was delayed.
        rank: the delayed one.
        least_ns: by how much the others must have been longer.
    """
    waited = [
        min(mine[key] for other, mine in durations_ns.items() if other != rank)
        - durations_ns[rank][key]
        for key in keys
        if all(key in mine for mine in durations_ns.values())
    ]
    return Late(
        found=sum(gap >= least_ns for gap in waited),
        of=len(keys),
        waited_ns=median(waited) if waited else 0.0,
    )


def compare(left: Mapping[int, float], right: Mapping[int, float]) -> dict[str, float]:
    """Return how two ways of measuring the same collectives differ (us) and relate."""
    both = sorted(left.keys() & right.keys())
    if not both:
        return {"collectives": 0}
    differences = sorted((left[key] - right[key]) / 1e3 for key in both)
    return {
        "collectives": len(both),
        "median_us": round(median(differences), 2),
        "smallest_us": round(differences[0], 2),
        "largest_us": round(differences[-1], 2),
        "ratio": round(median(left[key] / right[key] for key in both if right[key]), 4),
    }


def paired_ratio(treated: Sequence[float], control: Sequence[float]) -> dict[str, float]:
    """Return the mean of ``treated / control`` over rounds, with its 95 % interval."""
    ratios = [a / b for a, b in zip(treated, control, strict=True)]
    mean = fmean(ratios)
    if len(ratios) < 2:
        return {"rounds": len(ratios), "mean": round(mean, 4)}
    freedom = min(len(ratios) - 1, len(T_95))
    half = T_95[freedom - 1] * stdev(ratios) / sqrt(len(ratios))
    return {
        "rounds": len(ratios),
        "mean": round(mean, 4),
        "low": round(mean - half, 4),
        "high": round(mean + half, 4),
    }
