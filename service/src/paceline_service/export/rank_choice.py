"""Which ranks of a job have series of their own: all of them, or beyond a limit the costliest.

A rank that was chosen stays chosen. If it came and went with its place among the costliest, its
counters would look as if it had stood still and then leapt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

COSTLIEST_PART = 4
"""At every choice the costliest quarter of the limit is in, until three quarters are full; the
last one is for ranks that findings name, so that a late straggler has series, too."""


class RankChoice:
    """The chosen ranks of one attempt.

    Args:
        world_size: R.
        limit: most ranks that are chosen.
    """

    def __init__(self, world_size: int, limit: int) -> None:
        self._everybody = world_size <= limit
        self.limit = limit
        self._part = max(limit // COSTLIEST_PART, 1)
        self._chosen: set[int] = set()

    def choose(self, cost_ns: Mapping[int, float], named: Iterable[int]) -> list[int]:
        """Return the chosen ranks, ascending.

        Args:
            cost_ns: wait that is blamed on each rank that was seen.
            named: ranks of the findings, the costliest finding first.
        """
        if self._everybody:
            self._chosen.update(cost_ns)
            return sorted(self._chosen)
        self._add((rank for rank in named if rank in cost_ns), self.limit)
        costliest = heapq.nsmallest(self._part, cost_ns, key=lambda rank: (-cost_ns[rank], rank))
        self._add(costliest, max(self.limit - self._part, self._part))
        return sorted(self._chosen)

    def _add(self, ranks: Iterable[int], limit: int) -> None:
        for rank in ranks:
            if len(self._chosen) >= limit:
                return
            self._chosen.add(rank)
