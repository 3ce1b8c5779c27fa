"""Lanes: what the telling ranks did within each step, in few rows, for drawing (``lanes``).

A lane is an interval in which a rank computed, waited for a last arriver, or was in communication
after it came. Joins of a step that lie together are one block of wait and communication, so that
the sums of a step are exact however few rows there may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from paceline_service.analysis.blame.timeline import StepDetail, StepRow
from paceline_service.analysis.records import Int64Array

ALL_RANKS = 64
"""Up to so many every rank has lanes, beyond only the flagged, slowest, median and fastest."""
MAX_FLAGGED = 16
SLOWEST = 4
ROWS_PER_S = 500
"""Of one attempt. First the blocks of a step become fewer, then whole steps are left out."""
MAX_BLOCKS = 16
"""Blocks of a rank and step: joins of one sixteenth of a step are drawn together."""
_PARTS = 3
COMPUTE, WAIT, COMMUNICATION = "compute", "wait", "communication"

LaneRow = tuple[int, int, int, int, str]
LANE_COLUMNS = ("start_wall_ns", "rank", "end_wall_ns", "step", "kind")
ToWall = Callable[[int, int], int]
"""Rank and time on its own clock to wall clock, -1 unknown."""


class Lanes:
    """Makes lanes of steps; it is told now and then who is slow."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._flagged: tuple[int, ...] = ()
        self._telling: tuple[int, ...] = ()
        self._allowance = float(ROWS_PER_S)
        self.left_out = 0
        """Steps without lanes, because there would have been too many."""

    def flag(self, ranks: Iterable[int]) -> None:
        """Take the ranks that the findings name."""
        self._flagged = tuple(sorted(set(ranks)))[:MAX_FLAGGED]

    def compare(self, self_ns: Int64Array) -> None:
        """Take self times (R,), -1 where unknown: who is slow, fast and in between."""
        known = np.flatnonzero(self_ns >= 0)
        order = known[np.argsort(self_ns[known], kind="stable")].tolist()
        if order:
            self._telling = (*order[-SLOWEST:], order[len(order) // 2], order[0])

    def ranks(self) -> list[int]:
        """Return who has lanes at present, ascending."""
        if self._world_size <= ALL_RANKS:
            return list(range(self._world_size))
        return sorted({*self._flagged, *self._telling})

    def of_step(self, row: StepRow, detail: StepDetail, to_wall: ToWall) -> list[LaneRow]:
        """Return the lanes of a step, none where it has to be left out."""
        if not self._telling:
            self.compare(row.self_ns)
        ranks = [rank for rank in self.ranks() if row.self_ns[rank] >= 0]
        # Who makes one step in ten seconds may have ten seconds' rows for it.
        self._allowance += ROWS_PER_S * row.duration_ns / 1e9
        blocks = min(int(self._allowance / max(_PARTS * len(ranks), 1) / 2), MAX_BLOCKS)
        self._allowance = min(self._allowance, float(10 * ROWS_PER_S))
        if blocks < 1:
            self.left_out += 1
            return []
        rows: list[LaneRow] = []
        for rank in ranks:
            start_wall_ns = to_wall(rank, int(row.start_ns[rank]))
            if start_wall_ns >= 0:
                rows += _of_rank(row, detail, rank, start_wall_ns, blocks)
        self._allowance -= len(rows)
        return rows


def _of_rank(
    row: StepRow, detail: StepDetail, rank: int, start_wall_ns: int, blocks: int
) -> list[LaneRow]:
    first, last = np.searchsorted(detail.rank, (rank, rank + 1))
    wait_ns, comm_ns = detail.wait_ns[first:last], detail.comm_ns[first:last]
    position_ns = detail.position_ns[first:last]
    length_ns = int(row.self_ns[rank] + row.wait_ns[rank] + row.comm_ns[rank])
    block = position_ns * blocks // max(length_ns, 1)
    begins = np.flatnonzero(np.append(True, block[1:] != block[:-1])[: len(block)])
    rows: list[LaneRow] = []
    at_ns = 0

    def add(until_ns: int, kind: str) -> None:
        nonlocal at_ns
        if until_ns > at_ns:
            start_ns, end_ns = start_wall_ns + at_ns, start_wall_ns + until_ns
            rows.append((start_ns, rank, end_ns, row.step, kind))
            at_ns = until_ns

    for begin, end in zip(begins, np.append(begins[1:], len(block)), strict=False):
        waited_ns, moved_ns = int(wait_ns[begin:end].sum()), int(comm_ns[begin:end].sum())
        resumed_ns = int(position_ns[end - 1] + wait_ns[end - 1] + comm_ns[end - 1])
        add(resumed_ns - waited_ns - moved_ns, COMPUTE)
        add(resumed_ns - moved_ns, WAIT)
        add(resumed_ns, COMMUNICATION)
    add(length_ns, COMPUTE)
    return rows
