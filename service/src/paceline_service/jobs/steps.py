"""Steps as the API and the store hold them: per-rank arrays, and as columns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from paceline_service.analysis.records import Int64Array
from paceline_service.export.step_blob import PHASE_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step over all R ranks.

    ``per_rank`` is (10, R): self, wait, communication, and self time in the seven phases; ns, -1
    where a rank has no data. Read back without the phases it is (3, R).
    """

    step: int
    start_wall_ns: int
    duration_ns: int
    slowest_rank: int
    per_rank: Int64Array

    @property
    def wait_total_ns(self) -> int:
        """Wait of all ranks together."""
        wait_ns = self.per_rank[1]
        return int(wait_ns[wait_ns > 0].sum())


class RecentSteps:
    """The newest steps of one attempt, bounded in memory; written by one thread, read by others."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._steps: deque[Step] = deque(maxlen=limit)
        self._lock = threading.Lock()

    def extend(self, steps: Iterable[Step]) -> None:
        """Add newer steps."""
        with self._lock:
            self._steps.extend(steps)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last step held, or None."""
        with self._lock:
            return (self._steps[0].step, self._steps[-1].step) if self._steps else None

    def between(self, first: int, last: int) -> list[Step]:
        """Return the steps from ``first`` to ``last``, both included."""
        with self._lock:
            return [step for step in self._steps if first <= step.step <= last]

    def newest(self, count: int, after: int = -1) -> list[Step]:
        """Return up to ``count`` of the newest steps, in order, all later than ``after``."""
        with self._lock:
            tail = list(islice(reversed(self._steps), count))
        return [step for step in reversed(tail) if step.step > after]


def columns(
    job: str, attempt: int, steps: Sequence[Step], ranks: Sequence[int], *, phases: bool
) -> dict[str, Any]:
    """Return steps as the API's columnar object, for the given ranks."""
    everybody = steps and list(ranks) == list(range(steps[0].per_rank.shape[1]))
    index = slice(None) if everybody else np.array(ranks, dtype=np.intp)
    figures = [_nullable([step.per_rank[row, index] for step in steps]) for row in range(3)]
    out: dict[str, Any] = {
        "job": job,
        "attempt": attempt,
        "ranks": list(ranks),
        "phases": PHASE_NAMES,
        "steps": [step.step for step in steps],
        "start_wall_ns": [
            step.start_wall_ns if step.start_wall_ns >= 0 else None for step in steps
        ],
        "duration_ns": [step.duration_ns for step in steps],
        "slowest_rank": [step.slowest_rank if step.slowest_rank >= 0 else None for step in steps],
        "self_ns": figures[0],
        "wait_ns": figures[1],
        "comm_ns": figures[2],
    }
    if phases:
        out["phase_self_ns"] = [_nullable(step.per_rank[3:, index].T) for step in steps]
    return out


def _nullable(rows: Sequence[Int64Array] | Int64Array) -> list[list[int | None]]:
    """Return rows of numbers as lists, None for what is negative."""
    table = np.asarray(rows)
    plain: list[list[int | None]] = table.tolist()
    for number in np.flatnonzero((table < 0).any(axis=1)).tolist() if table.size else ():
        plain[number] = [None if value is None or value < 0 else value for value in plain[number]]
    return plain
