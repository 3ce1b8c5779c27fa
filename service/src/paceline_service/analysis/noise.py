"""How exactly releases are known: the noise below which a spread means nothing."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from paceline.vocabulary import BARRIER_LIKE_OPS
from paceline_service.analysis.matching import Matches
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.analysis.scores import MAD_TO_SD

UNKNOWN_NOISE_NS = 1_000_000
"""Assumed until measured: the largest release noise seen on real clusters (DETECTION section 2)."""
LEAST_INSTANCES = 8
_KEPT = 64
_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)


class ReleaseNoise:
    """Measures each group's release noise from the collectives themselves.

    All members of a barrier-like collective are released by one event. Less each rank's own
    clock offset (the median over collectives), what is left of the releases is noise.
    """

    def __init__(self) -> None:
        self._releases: dict[int, deque[FloatArray]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._assumed: dict[int, int] = {}

    def assume(self, group: int, noise_ns: int) -> None:
        """Take a group's noise to be this until it was measured step by step."""
        self._assumed[group] = noise_ns

    def learn(self, matches: Matches) -> None:
        """Read the releases of one step."""
        rows, first = matches.rows, matches.first
        bounds = np.append(first, len(rows))
        usable = matches.complete & np.isin(rows.code[first], _BARRIER_LIKE)
        chosen = np.flatnonzero(usable)
        last_of_group = dict(zip(rows.group[first[chosen]].tolist(), chosen.tolist(), strict=True))
        for group, instance in last_of_group.items():
            ends = rows.end_ns[bounds[instance] : bounds[instance + 1]]
            if (ends > 0).all() and len(ends) > 1:
                self._releases[group].append((ends - ends[0]).astype(np.float64))

    def noise_ns(self, groups: int) -> Int64Array:
        """Return the standard deviation of a release in each of ``groups`` groups, (G,), ns."""
        noise = np.full(groups, UNKNOWN_NOISE_NS, dtype=np.int64)
        for group, assumed_ns in self._assumed.items():
            noise[group] = assumed_ns
        for group, kept in self._releases.items():
            if len(kept) >= LEAST_INSTANCES:
                noise[group] = release_noise_ns(np.stack(kept))
        return noise


def release_noise_ns(releases_CR: FloatArray) -> int:
    """Return the noise of one rank's release from C collectives by R ranks, ns.

    Args:
        releases_CR: (C, R) releases, each row relative to any instant of its own; a linear
            clock drift over the C collectives is removed with the offset.
    """
    centred = releases_CR - np.median(releases_CR, axis=1, keepdims=True)
    time = np.linspace(-1, 1, len(centred))[:, None]
    offset = np.median(centred, axis=0)
    slope = (time * (centred - offset)).sum(axis=0) / (time**2).sum()
    residual = centred - offset - time * slope
    return int(MAD_TO_SD * np.median(np.abs(residual - np.median(residual))))
