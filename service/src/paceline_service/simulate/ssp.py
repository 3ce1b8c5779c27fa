"""Stale-synchronous steps: a rank may be up to ``s`` steps ahead of the slowest, then it waits.

With s = 0 it is bulk-synchronous, without a bound asynchronous. The work is the same whatever the
bound: R x S updates, whoever makes them. (Ho et al., NeurIPS 2013; docs/math/execution.md.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paceline.errors import ConfigError
from paceline_service.simulate.noise import Floats
from paceline_service.simulate.profile import Ranks
from paceline_service.simulate.staleness import Staleness, staleness

MOST_TIMES = 10_000_000
"""Step times held at once; of each some ten numbers of 8 bytes are needed in between."""


class Steps:
    """Step times of all ranks, drawn as far as they are needed and the same for every bound."""

    def __init__(self, ranks: Ranks, rng: np.random.Generator) -> None:
        self._ranks, self._rng = ranks, rng
        self._parts: list[Floats] = []
        self._count = 0
        self.world_size = len(ranks.expected_s)

    def rows(self, count: int) -> Floats:
        """Return the first ``count`` steps (count, R), s.

        Raises:
            ConfigError: they would not fit into memory.
        """
        if count * self.world_size > MOST_TIMES:
            raise ConfigError(
                f"{count:,} steps of {self.world_size:,} ranks are more than {MOST_TIMES:,} step "
                "times: give fewer --steps or --ranks, or bounds that keep ranks closer together"
            )
        if count > self._count:
            missing = count - self._count
            self._parts.append(self._ranks.draw(self._rng, missing))
            self._count = count
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0][:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class SspRun:
    """What a bound costs and gives.

    Attributes:
        bound: s; ``inf`` is asynchronous.
        wall_clock_s: until R x S updates are made.
        every_rank_done_s: until every rank has made S of them itself.
        idle_s: waiting of all ranks until then.
        idle_ratio: as a share of all ranks' time.
        updates: (R,), how many each rank made.
        staleness: of these updates.
    """

    bound: float
    wall_clock_s: float
    every_rank_done_s: float
    idle_s: float
    idle_ratio: float
    updates: np.ndarray[tuple[int], np.dtype[np.intp]]
    staleness: Staleness


def ssp(steps: Steps, communication_s: float, count: int, bound: float) -> SspRun:
    """Return ``count`` steps a rank under a bound.

    Args:
        steps: of the ranks.
        communication_s: that each update takes until all others see it; its rank waits for it.
        count: S.
        bound: how many steps a rank may be ahead of the slowest one; ``inf`` for any.

    Raises:
        ConfigError: a bound is no whole number from 0, or there are too many step times.
    """
    if not bound >= 0 or (bound != math.inf and bound != int(bound)):
        raise ConfigError(f"--bounds {bound:g}: give whole numbers of steps from 0, or inf")
    wanted = count * steps.world_size
    further = _further(steps, communication_s, count, bound)
    start_s, ready_s = next(further)
    while ready_s[-1].min() < (wall_s := _nth(ready_s, wanted)):
        start_s, ready_s = next(further)
    before_s = np.vstack([np.zeros(steps.world_size), ready_s])
    idle_s = float((np.minimum(start_s, wall_s) - np.minimum(before_s, wall_s)).sum())
    return SspRun(
        bound=bound,
        wall_clock_s=wall_s,
        every_rank_done_s=float(ready_s[count - 1].max()),
        idle_s=idle_s,
        idle_ratio=idle_s / (steps.world_size * wall_s),
        updates=(ready_s <= wall_s).sum(axis=0),
        staleness=staleness(start_s[:-1], ready_s, wall_s, together=bound == 0),
    )


def first_steps(
    steps: Steps, communication_s: float, count: int, bound: float
) -> tuple[Floats, Floats]:
    """Return when the first steps begin (T + 1, R) and when their updates are seen (T, R)."""
    return next(_further(steps, communication_s, count, bound))


def _nth(ready_s: Floats, count: int) -> float:
    """Return when ``count`` updates have been made, by ranks that are followed so far."""
    return float(np.partition(ready_s.ravel(), count - 1)[count - 1])


def _further(
    steps: Steps, communication_s: float, count: int, bound: float
) -> Iterator[tuple[Floats, Floats]]:
    """Give when steps start (T + 1, R) and when their updates are seen (T, R), T growing."""
    ranks, have = steps.world_size, 0
    start_s, ready_s = np.zeros((1, ranks)), np.zeros((0, ranks))
    slowest_s: list[float] = []
    wanted = count
    while True:
        taken_s = steps.rows(wanted)[have:] + communication_s
        starts, readies = np.empty_like(taken_s), np.empty_like(taken_s)
        at = start_s[-1]
        if bound == math.inf:
            readies = at + taken_s.cumsum(axis=0)
            starts = readies
        else:
            for row, taken in enumerate(taken_s):
                ready = at + taken
                readies[row] = ready
                slowest_s.append(float(ready.max()))
                gate = have + row - int(bound)
                at = np.maximum(ready, slowest_s[gate]) if gate >= 0 else ready
                starts[row] = at
        start_s, ready_s = np.vstack([start_s, starts]), np.vstack([ready_s, readies])
        have = wanted
        yield start_s, ready_s
        # A bound needs a few steps more, ranks that are much faster need many.
        wanted = have + (max(count // 8, 1) if have == count else have // 2 + 1)
