"""Where a series changes its level for good (docs/math/level-shift.md).

The series is of one number per report, such as the time of an iteration, and may be short. What is
asked is whether its values before and after some place are of one kind; ranks answer that for any
distribution, so single slow iterations do not matter.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.normal import normal_cdf
from paceline_service.analysis.records import BoolArray, FloatArray
from paceline_service.analysis.scores import spread

LEAST_SHIFT = 0.03
"""Log units: the speed of a healthy job wanders by 1 to 3 % (DETECTION section 4)."""
SPREADS = 2.0
"""A shift must also be twice what the series spreads by around its levels."""
CHANCE = 1e-3
"""Of a shift in a series without one, over all places at which it could be."""
LEAST_SIDE = 5
"""Values on each side."""
MOST_SHIFTS = 8
MOST_VALUES = 1024
"""Longer series are thinned by medians first; then the places are looked for exactly."""
MAX_AUTOCORRELATION = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelShift:
    """The series changes at ``index``, the first of its new values."""

    index: int
    before: float
    """Median from the shift before to this one."""
    after: float
    """Median from this one to the next."""
    chance: float

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after / self.before


def level_shifts(values: FloatArray) -> list[LevelShift]:
    """Return the places where ``values`` change their level, in order.

    Args:
        values: (N,) positive, in time order.
    """
    if len(values) < 2 * LEAST_SIDE:
        return []
    logs = np.asarray(np.log(values), dtype=np.float64)
    each = -(-len(logs) // MOST_VALUES)
    found: dict[int, float] = {}
    _split(_thinned(logs, each), 0, found)
    # Among values that are alike the place is uncertain by some; the nearest level decides.
    around = max(each, LEAST_SIDE)
    found = {_refined(logs, cut * each, around): chance for cut, chance in found.items()}
    while True:
        cuts = sorted(found)
        bounds = [0, *cuts, len(values)]
        levels = [median_of(values[a:b]) for a, b in pairwise(bounds)]
        # Cuts are found one in another; a later one may leave an earlier one without a step.
        weak = [
            cut
            for cut, before, after in zip(cuts, levels, levels[1:], strict=False)
            if abs(np.log(after / before)) < LEAST_SHIFT
        ]
        if not weak:
            break
        del found[weak[0]]
    return [
        LevelShift(index=cut, before=before, after=after, chance=found[cut])
        for cut, before, after in zip(cuts, levels, levels[1:], strict=False)
    ]


def _thinned(logs: FloatArray, each: int) -> FloatArray:
    """Return medians of ``each`` values in a row, the last few with those before them."""
    if each < 2:
        return logs
    whole = len(logs) // each
    thin = median_of(logs[: whole * each].reshape(whole, each), axis=1)
    return np.asarray(thin, dtype=np.float64)


def _refined(logs: FloatArray, cut: int, each: int) -> int:
    """Return where near ``cut`` the values go from the level before it to that after it."""
    low, high = max(cut - 2 * each, 1), min(cut + 2 * each, len(logs) - 1)
    before = median_of(logs[max(cut - 4 * each, 0) : cut])
    after = median_of(logs[cut : cut + 4 * each])
    nearer_after = np.abs(logs[low:high] - before) - np.abs(logs[low:high] - after)
    return low + int(np.argmin(np.append(0.0, np.cumsum(nearer_after))))


def _split(logs: FloatArray, offset: int, found: dict[int, float]) -> None:
    if len(logs) < 2 * LEAST_SIDE or len(found) >= MOST_SHIFTS:
        return
    ranks = _ranks(logs)
    for candidate in (_one_cut, _two_cuts):
        cuts = candidate(logs, ranks)
        if cuts is None:
            continue
        begin, end = cuts
        inside = np.zeros(len(logs), dtype=np.bool_)
        inside[begin:end] = True
        shift, rest = _shift(logs, inside)
        if abs(shift) < max(LEAST_SHIFT, SPREADS * spread(rest)):
            continue
        chance = _chance(ranks, inside, rest, places=len(logs) if end == len(logs) else
                         len(logs) ** 2 / 2)  # fmt: skip
        if chance > CHANCE:
            continue
        bounds = [0, begin, *([end] if end < len(logs) else []), len(logs)]
        found.update({offset + cut: chance for cut in bounds[1:-1]})
        for low, high in pairwise(bounds):
            _split(logs[low:high], offset + low, found)
        return


def _ranks(logs: FloatArray) -> FloatArray:
    """Return (N,) the ranks of values less their mean; equal ones share theirs."""
    _, inverse, counts = np.unique(logs, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts - 1) / 2
    return np.asarray(mean[inverse.reshape(-1)] - (len(logs) + 1) / 2, dtype=np.float64)


def _one_cut(logs: FloatArray, ranks: FloatArray) -> tuple[int, int] | None:
    """Return the place from which on the values differ most."""
    count = len(logs)
    place = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    z = np.abs(np.cumsum(ranks)[place - 1]) / np.sqrt(place * (count - place))
    return int(place[np.argmax(z)]), count


def _two_cuts(logs: FloatArray, ranks: FloatArray) -> tuple[int, int] | None:
    """Return the stretch in the midst of the series that differs most from all others."""
    count = len(logs)
    if count < 3 * LEAST_SIDE:
        return None
    sums = np.append(0.0, np.cumsum(ranks))
    best, found = 0.0, None
    for begin in range(LEAST_SIDE, count - 2 * LEAST_SIDE + 1):
        end = np.arange(begin + LEAST_SIDE, count - LEAST_SIDE + 1)
        length = end - begin
        z = np.abs(sums[end] - sums[begin]) / np.sqrt(length * (count - length))
        at = int(np.argmax(z))
        if z[at] > best:
            best, found = float(z[at]), (begin, int(end[at]))
    return found


def _shift(logs: FloatArray, inside: BoolArray) -> tuple[float, FloatArray]:
    """Return by how much the values inside are higher, and what they vary around their levels."""
    here, there = median_of(logs[inside]), median_of(logs[~inside])
    return here - there, np.asarray(logs - np.where(inside, here, there), dtype=np.float64)


def _chance(ranks: FloatArray, inside: BoolArray, rest: FloatArray, places: float) -> float:
    """Return the chance of ranks as uneven at any of ``places`` (Mann and Whitney's test).

    Values that resemble those before them count as fewer.
    """
    count, here = len(ranks), int(inside.sum())
    sd = np.sqrt(here * (count - here) * (count + 1) / 12)
    rho = _autocorrelation(rest)
    telling = abs(float(ranks[inside].sum())) / sd * np.sqrt((1 - rho) / (1 + rho))
    return min(2 * normal_cdf(-telling) * places, 1.0)


def _autocorrelation(rest: FloatArray) -> float:
    """Return the lag-1 autocorrelation by signs, which a few large values do not rule."""
    signs = np.sign(rest)
    if len(signs) < 3:
        return 0.0
    return float(np.clip(np.mean(signs[1:] * signs[:-1]), 0.0, MAX_AUTOCORRELATION))
