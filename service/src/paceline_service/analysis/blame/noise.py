"""How exactly releases are known: the noise below which a spread means nothing."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import BARRIER_LIKE_OPS
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.analysis.scores import MAD_TO_SD
from paceline_service.analysis.sets import distinct, one_of

UNKNOWN_NOISE_NS = 1_000_000
"""Assumed until measured: the largest release noise seen on real clusters (DETECTION section 2)."""
LEAST_INSTANCES = 8
MEMBERS = 8
"""So many members of a group are looked at: with 64 collectives their median is known to 5 %."""
MAX_VALUES = 1 << 24
"""Releases that are kept (128 MB). A job that makes more groups than fit is measured anew."""
_KEPT = 64
_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)


class ReleaseNoise:
    """Measures each group's release noise from the collectives themselves.

    All members of a barrier-like collective are released by one event. Less each rank's own
    clock offset (the median over collectives), what is left of the releases is noise. It is
    measured after 8, 16 and 32 steps with a collective of the group, and then every 64.
    """

    def __init__(self) -> None:
        self._assumed: dict[int, int] = {}
        self._forget()

    def assume(self, group: int, noise_ns: int) -> None:
        """Take a group's noise to be this until it was measured step by step."""
        self._assumed[group] = noise_ns

    def learn(self, matches: Matches) -> None:
        """Read the releases of one step: of the last collective of each group."""
        rows, first, size = matches.rows, matches.first, matches.size
        if not len(first):
            return
        usable = matches.complete & one_of(rows.code[first], _BARRIER_LIKE) & (size > 1)
        chosen = np.flatnonzero(usable & (np.minimum.reduceat(rows.end_ns, first) > 0))
        if not len(chosen):
            return
        group = rows.group[first[chosen]]
        newest = np.append(group[1:] != group[:-1], True)
        chosen, group = chosen[newest], group[newest]
        places = self._places(group, size[chosen])
        looked_at = np.minimum(size[chosen], MEMBERS)
        member = np.arange(MEMBERS)
        row = first[chosen][:, None] + member * size[chosen][:, None] // looked_at[:, None]
        row = np.minimum(row, first[chosen][:, None] + size[chosen][:, None] - 1)
        ends = rows.end_ns[row] - rows.end_ns[first[chosen]][:, None]
        self._releases[places, self._count[places] % _KEPT] = ends
        self._count[places] += 1
        count = self._count[places]
        for seen in distinct(count).tolist():
            if seen % _KEPT == 0 or seen in (8, 16, 32):
                self._measure(places[count == seen], min(seen, _KEPT))

    def noise_ns(self, groups: int) -> Int64Array:
        """Return the standard deviation of a release in each of ``groups`` groups, (G,), ns."""
        noise = np.full(groups, UNKNOWN_NOISE_NS, dtype=np.int64)
        for group, assumed_ns in self._assumed.items():
            noise[group] = assumed_ns
        measured = self._noise_ns >= 0
        noise[self._group[measured]] = self._noise_ns[measured]
        return noise

    def _forget(self) -> None:
        self._group = np.zeros(0, dtype=np.int64)
        """Group of each place, ascending."""
        self._size = np.zeros(0, dtype=np.int64)
        self._count = np.zeros(0, dtype=np.int64)
        self._noise_ns = np.zeros(0, dtype=np.int64)
        self._releases = np.zeros((0, _KEPT, MEMBERS), dtype=np.int64)

    def _places(self, group: Int64Array, size: Int64Array) -> Int64Array:
        """Return the place of each group, making it where there is none."""
        new = ~np.isin(group, self._group)
        if new.any():
            if (len(self._group) + int(new.sum())) * _KEPT * MEMBERS > MAX_VALUES:
                self._forget()
                new[:] = True
            order = np.argsort(np.append(self._group, group[new]))
            blank = np.zeros(int(new.sum()), dtype=np.int64)
            self._group = np.append(self._group, group[new])[order]
            self._size = np.append(self._size, size[new])[order]
            self._count = np.append(self._count, blank)[order]
            self._noise_ns = np.append(self._noise_ns, blank - 1)[order]
            more = np.zeros((len(blank), _KEPT, MEMBERS), dtype=np.int64)
            self._releases = np.concatenate([self._releases, more])[order]
        return np.searchsorted(self._group, group)

    def _measure(self, places: Int64Array, count: int) -> None:
        members = np.minimum(self._size[places], MEMBERS)
        for looked_at in distinct(members).tolist():
            here = places[members == looked_at]
            releases = self._releases[here, :count, :looked_at].astype(np.float64)
            self._noise_ns[here] = _noise_of_groups(releases)


def release_noise_ns(releases_CR: FloatArray) -> int:
    """Return the noise of one rank's release from C collectives by R ranks, ns.

    Args:
        releases_CR: (C, R) releases, each row relative to any instant of its own; a linear
            clock drift over the C collectives is removed with the offset.
    """
    return int(_noise_of_groups(releases_CR[None])[0])


def _noise_of_groups(releases_GCR: FloatArray) -> Int64Array:
    """Return (G,) the same for G groups at once."""
    centred = releases_GCR - median_of(releases_GCR, axis=2, keepdims=True)
    time = np.linspace(-1, 1, centred.shape[1])[:, None]
    offset = median_of(centred, axis=1, keepdims=True)
    slope = (time * (centred - offset)).sum(axis=1, keepdims=True) / (time**2).sum()
    residual = centred - offset - time * slope
    each = residual.reshape(len(residual), -1)
    centre = median_of(each, axis=1, keepdims=True)
    noise = MAD_TO_SD * median_of(np.abs(each - centre), axis=1)
    return np.asarray(noise, dtype=np.int64)
