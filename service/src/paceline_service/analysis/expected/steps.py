"""A few figures of steps, spread evenly over the whole job: what its typical step is read from."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import distinct

KEPT = 1024
"""Most steps that are kept; when there are more, every other one goes, and half as many come."""
MAX_RANKS = 256
"""So many ranks, evenly spread, tell what a typical rank needs in a step."""


class StepSample:
    """Keeps every 2^k-th step; after the first 1024 it costs nothing in most steps.

    Args:
        world_size: R.
        settling_steps: steps at the beginning that do not count.
    """

    def __init__(self, world_size: int, settling_steps: int) -> None:
        self._ranks = distinct(
            np.linspace(0, world_size - 1, min(world_size, MAX_RANKS)).astype(np.int64)
        )
        self._settling_steps = settling_steps
        self._step = np.zeros(KEPT, dtype=np.int64)
        self._values = np.zeros((3, KEPT))
        self._count = 0
        self._every = 1
        self._seen = 0

    def see(self, row: StepRow) -> None:
        """Take the next step."""
        self._seen += 1
        number = self._seen - self._settling_steps - 1
        if number < 0 or number % self._every:
            return
        own = row.self_ns[self._ranks]
        own = own[own >= 0]
        if not len(own):
            return
        if self._count == KEPT:
            half = KEPT // 2
            self._step[:half] = self._step[::2]
            self._values[:, :half] = self._values[:, ::2]
            self._count = half
            self._every *= 2
            if number % self._every:
                return
        at = self._count
        self._count += 1
        self._step[at] = row.step
        middle = len(own) // 2
        self._values[0, at] = np.partition(own, middle)[middle]
        # Absent ranks have -1, and are few.
        present = max(int(np.count_nonzero(row.wait_ns >= 0)), 1)
        absent = len(row.wait_ns) - present
        self._values[1, at] = (int(row.wait_ns.sum()) + absent) / present
        self._values[2, at] = (int(row.comm_ns.sum()) + absent) / present

    @property
    def step(self) -> Int64Array:
        """Numbers of the steps that are kept, (n,)."""
        return self._step[: self._count]

    @property
    def self_ns(self) -> FloatArray:
        """Median own time of the ranks, (n,)."""
        return self._values[0, : self._count]

    @property
    def wait_ns(self) -> FloatArray:
        """Mean wait of the ranks, (n,)."""
        return self._values[1, : self._count]

    @property
    def comm_ns(self) -> FloatArray:
        """Mean exposed communication of the ranks, (n,)."""
        return self._values[2, : self._count]

    def within(self, spans: list[tuple[int, int]]) -> BoolArray:
        """Return which steps lie in one of ``spans``, first and last step each, (n,)."""
        inside = np.zeros(self._count, dtype=np.bool_)
        for first, last in spans:
            inside |= (self.step >= first) & (self.step <= last)
        return inside
