"""How far the ranks' clocks are apart, with what uncertainty (docs/math/clocks.md).

For drawing timelines only: no verdict stands on it.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import BARRIER_LIKE_OPS, Flag
from paceline_service.analysis.matching.clock_fit import Releases, bounds_of, fit_offsets
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import one_of

MAX_ROWS = 1_000_000
"""Releases that are kept over all ranks: 32 MB, and a fit of about a second."""
MAX_STEPS = 128
LEAST_STEPS = 4
"""Kept however many ranks there are: one collective alone tells no noise."""
WINDOW_NS = 600 * 1_000_000_000
"""How far back releases count: over ten minutes a drift may be taken as constant."""
SYSTEMATIC_NS = 500_000
"""A rank that is always released a little later looks like an offset; up to this much was seen
on real clusters (DETECTION section 2)."""
ERRORS = 3.0
UNKNOWN = -1
_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)
_UNUSABLE = int(Flag.FAILED | Flag.PARTIAL | Flag.NOT_WAITED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffsets:
    """The clocks of R ranks against that of ``reference_rank``.

    ``time on the reference clock = time on the rank's clock - offset``, at the newest collective;
    earlier, the offset was smaller by ``drift`` times the time since.

    Attributes:
        reference_rank: (R,) lowest rank that each can be compared with; -1 unknown.
        offset_ns: (R,) at the newest collective, 0 where unknown.
        uncertainty_ns: (R,) the true offset lies within this of it; -1 unknown.
        drift_ns_per_s: (R,) how the offset grows, 0 where it cannot be told from noise.
        at_ns: (R,) time on each rank's clock for which ``offset_ns`` holds; 0 unknown.
    """

    reference_rank: Int64Array
    offset_ns: Int64Array
    uncertainty_ns: Int64Array
    drift_ns_per_s: FloatArray
    at_ns: Int64Array

    @property
    def known(self) -> BoolArray:
        """Which ranks have an offset, (R,)."""
        return np.asarray(self.uncertainty_ns != UNKNOWN)


class ClockWatch:
    """Keeps releases of barrier-like collectives: one per group and step, thinned as time goes."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._kept: deque[Releases] = deque()
        self._stride = 1
        self._steps = 0

    def see(self, matches: Matches) -> None:
        """Take one step's collectives."""
        self._steps += 1
        if (self._steps - 1) % self._stride:
            return
        releases = releases_of(matches)
        if releases is None:
            return
        self._kept.append(releases)
        rows = sum(len(kept.rank) for kept in self._kept)
        while len(self._kept) > 1 and (
            len(self._kept) > MAX_STEPS or (rows > MAX_ROWS and len(self._kept) > LEAST_STEPS)
        ):
            rows -= self._make_room()

    @property
    def kept_steps(self) -> int:
        """How many steps are kept."""
        return len(self._kept)

    def offsets(self, clock_of_rank: Int64Array) -> ClockOffsets:
        """Return the offsets of all ranks as far as they are known now.

        Args:
            clock_of_rank: (R,) number of each rank's clock, -1 where it has one of its own.
        """
        size = self._world_size
        own = np.where(clock_of_rank >= 0, clock_of_rank, size + np.arange(size))
        _, first_rank, clock = np.unique(own, return_index=True, return_inverse=True)
        fit = fit_offsets(list(self._kept), clock.reshape(-1), first_rank)
        low, high = bounds_of(list(self._kept), clock.reshape(-1), fit)
        error = ERRORS * fit.error_ns + SYSTEMATIC_NS
        # The farther end of the hard bounds can be no farther than the truth may be.
        hard = np.maximum(high - fit.offset_ns, fit.offset_ns - low)
        inside = (low <= fit.offset_ns) & (fit.offset_ns <= high)
        uncertainty = np.where(inside, np.minimum(error, hard), np.maximum(error, hard))
        uncertainty = np.where(fit.is_reference, 0.0, uncertainty)
        known = (fit.reference >= 0) & np.isfinite(uncertainty)
        uncertainty = np.where(known, np.ceil(np.where(known, uncertainty, 0)), UNKNOWN)
        of = clock.reshape(-1)
        return ClockOffsets(
            reference_rank=np.where(known, fit.reference, -1)[of],
            offset_ns=np.where(known, fit.base_ns + np.rint(fit.shift_ns).astype(np.int64), 0)[of],
            uncertainty_ns=uncertainty.astype(np.int64)[of],
            drift_ns_per_s=np.where(known, fit.drift * 1e9, 0.0)[of],
            at_ns=np.where(known, fit.at_ns, 0)[of],
        )

    def _make_room(self) -> int:
        """Drop kept steps, return how many rows they had: every second one, or the oldest."""
        span = _middle(self._kept[-1]) - _middle(self._kept[0])
        if span >= WINDOW_NS or len(self._kept) < 2 * LEAST_STEPS:
            return len(self._kept.popleft().rank)
        self._stride *= 2
        kept = list(self._kept)
        self._kept = deque(kept[1::2])
        return sum(len(releases.rank) for releases in kept[::2])


def releases_of(matches: Matches) -> Releases | None:
    """Return the releases of the newest barrier-like collective of each group; None without."""
    rows, first = matches.rows, matches.first
    if not len(first):
        return None
    usable = matches.complete & one_of(rows.code[first], _BARRIER_LIKE)
    usable &= np.minimum.reduceat(rows.end_ns, first) > 0
    usable &= ~np.logical_or.reduceat((rows.flags & _UNUSABLE) != 0, first)
    usable &= np.diff(np.append(first, len(rows))) > 1
    polled = np.logical_or.reduceat((rows.flags & Flag.RELEASE_POLLED) != 0, first)
    chosen = np.flatnonzero(usable)
    if not len(chosen):
        return None
    group = rows.group[first[chosen]]
    when = rows.end_ns[first[chosen]]
    # The newest of each group; one whose releases were not polled before any other.
    order = np.lexsort((when, ~polled[chosen], group))
    newest = order[np.append(np.diff(group[order]) != 0, True)]
    pick = np.zeros(len(first), dtype=np.bool_)
    pick[chosen[newest]] = True
    row: NDArray[np.intp] = np.flatnonzero(pick[matches.instance])
    _, instance = np.unique(matches.instance[row], return_inverse=True)
    return Releases(
        rank=rows.rank[row],
        instance=instance.reshape(-1),
        arrival_ns=rows.start_ns[row],
        release_ns=rows.end_ns[row],
    )


def _middle(releases: Releases) -> int:
    """Return the time of a step on the clock of its first row's rank."""
    return int(releases.release_ns[0])
