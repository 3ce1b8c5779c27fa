"""How old the parameters are that an update was computed from, which the wall-clock does not show.

Two measures of the update that a rank makes in its step t:

steps    t minus the number of steps that every rank had made, and it had seen, when it began: the
         oldest step that its parameters lack. At most the bound s; 0 in bulk-synchronous steps.
updates  updates of other ranks that were applied between its reading and its own being applied:
         R - 1 on average in asynchronous steps; 0 where all updates of a step are applied as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from paceline_service.simulate.noise import Floats

MOST_LOOKED_AT = 250_000
Counts = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """The distribution over N updates; of very many not all are looked at.

    Attributes:
        steps: (N,) see the module.
        updates: (N,) likewise.
    """

    steps: Counts
    updates: Counts

    def steps_histogram(self) -> list[int]:
        """Return how many updates lacked 0, 1, 2, ... steps."""
        return [int(count) for count in np.bincount(self.steps)] if len(self.steps) else []


def staleness(start_s: Floats, ready_s: Floats, wall_s: float, *, together: bool) -> Staleness:
    """Return the staleness of every update that was applied until ``wall_s``.

    Args:
        start_s: (T, R) when each step began, and read the parameters.
        ready_s: (T, R) when its update was applied, ascending in T.
        wall_s: the end.
        together: all updates of a step are applied as one, at the barrier.
    """
    applied = ready_s <= wall_s
    begun, done = start_s[applied], ready_s[applied]
    step = np.broadcast_to(np.arange(len(ready_s))[:, None], ready_s.shape)[applied]
    looked_at = slice(None, None, _stride(len(done), ready_s.shape[1]))
    every = np.sort(done)
    begun, done, step = begun[looked_at], done[looked_at], step[looked_at]
    slowest_s = ready_s.max(axis=1)
    missing = np.maximum(step - np.searchsorted(slowest_s, begun, side="right"), 0)
    if together:
        return Staleness(steps=missing, updates=np.zeros_like(missing))
    between = np.searchsorted(every, done) - np.searchsorted(every, begun, side="right")
    return Staleness(steps=missing, updates=np.maximum(between, 0))


def _stride(updates: int, ranks: int) -> int:
    """Return every which update is looked at: so that all ranks have their turn."""
    stride = max(updates // MOST_LOOKED_AT, 1)
    while math.gcd(stride, ranks) > 1:
        stride += 1
    return stride
