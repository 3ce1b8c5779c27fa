"""One rank of a job that may stand still, as its newest frame tells of it."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.records import Int64Array


@dataclass(slots=True)
class RankNow:
    """One rank as its newest frame tells of it; times of the rank's own clock unless named so."""

    pending: Int64Array = field(default_factory=lambda: np.zeros((0, 7), dtype=np.int64))
    """(N, 7): group, op, seq, step, peer, payload bytes, start."""
    now_ns: int = 0
    heard_wall_ns: int = 0
    step: int = -1
    step_since_ns: int = 0
    checkpoint_ns: int = 0
    """Since when it has been saving a checkpoint; 0: it does not."""
    written_ns: int = 0
    """The end of its newest record."""
    ended_wall_ns: int = 0
    stack: tuple[str, ...] = ()
    stack_ns: int = 0

    @property
    def in_step_ns(self) -> int:
        """For how long it has been in its step."""
        return self.now_ns - self.step_since_ns

    def pending_with_age(self) -> list[tuple[list[int], int]]:
        """Return the rows of what is pending, each with its age in ns, -1 where not known."""
        return [
            (row, self.now_ns - row[6] if self.now_ns > row[6] else -1)
            for row in self.pending.tolist()
        ]
