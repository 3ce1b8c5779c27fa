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
_KINDS = ("compute", "wait", "communication")

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
        starts = {rank: to_wall(rank, int(row.start_ns[rank])) for rank in ranks}
        shown = np.array([rank for rank in ranks if starts[rank] >= 0], dtype=np.int64)
        rows = _drawn(row, detail, shown, [starts[rank] for rank in shown.tolist()], blocks)
        self._allowance -= len(rows)
        return rows


def _drawn(
    row: StepRow, detail: StepDetail, ranks: Int64Array, start_wall_ns: list[int], blocks: int
) -> list[LaneRow]:
    """Return the lanes of ``ranks`` (n,), ascending, whose steps begin at ``start_wall_ns``."""
    if not len(ranks):
        return []
    place = np.full(len(row.self_ns), -1, dtype=np.int64)
    place[ranks] = np.arange(len(ranks))
    joins = np.flatnonzero(place[detail.rank] >= 0)
    of = place[detail.rank[joins]]
    wait_ns, comm_ns = detail.wait_ns[joins], detail.comm_ns[joins]
    position_ns = detail.position_ns[joins]
    length_ns = row.self_ns[ranks] + row.wait_ns[ranks] + row.comm_ns[ranks]
    block = position_ns * blocks // np.maximum(length_ns, 1)[of]
    begins = np.flatnonzero(
        np.append(True, (block[1:] != block[:-1]) | (of[1:] != of[:-1]))[: len(block)]
    )
    waited_ns, moved_ns, resumed_ns = begins, begins, begins
    if len(begins):
        waited_ns, moved_ns = np.add.reduceat(wait_ns, begins), np.add.reduceat(comm_ns, begins)
        lasts = np.append(begins[1:], len(block)) - 1
        resumed_ns = position_ns[lasts] + wait_ns[lasts] + comm_ns[lasts]
    # Each rank: from 0 through its blocks to its end; sorting by rank keeps that order.
    ends = np.concatenate([
        np.zeros(len(ranks), dtype=np.int64),
        np.stack([resumed_ns - waited_ns - moved_ns, resumed_ns - moved_ns, resumed_ns], 1).ravel(),
        length_ns,
    ])  # fmt: skip
    whose = np.concatenate([
        np.arange(len(ranks)), np.repeat(of[begins], _PARTS), np.arange(len(ranks))
    ])  # fmt: skip
    kind = np.concatenate([
        np.full(len(ranks), -1), np.tile(np.arange(_PARTS), len(begins)), np.zeros(len(ranks))
    ]).astype(np.int64)  # fmt: skip
    order = np.argsort(whose, kind="stable")
    ends, whose, kind = np.maximum(ends[order], 0), whose[order], kind[order]
    apart = int(ends.max()) + 1
    reached = np.maximum.accumulate(ends + whose * apart) - whose * apart
    longer = np.flatnonzero((kind >= 0) & (reached > np.append(0, reached[:-1])))
    begin_ns, end_ns, whose = reached[longer - 1], reached[longer], whose[longer]
    wall_ns = np.array(start_wall_ns, dtype=np.int64)[whose]
    return [
        (start, rank, end, row.step, _KINDS[which])
        for start, rank, end, which in zip(
            (wall_ns + begin_ns).tolist(), ranks[whose].tolist(), (wall_ns + end_ns).tolist(),
            kind[longer].tolist(), strict=True,
        )
    ]  # fmt: skip
