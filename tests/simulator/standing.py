"""Hybrid-parallel ranks that run until nobody can go on; the truth is who was made to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from paceline.vocabulary import Op

ROW = tuple[int, int, int, int, int, int, int, int]


@dataclass(kw_only=True)
class Standing:
    """``stops`` says before which of its operations a rank stops for ever.

    Every rank runs the same program: per step two all-gathers of its tensor group, two
    all-reduces of its data group, and a barrier of all every third step. Data-parallel ones are
    asynchronous: the rank goes on, and waits for them at the end of the step.
    """

    tensor: int = 4
    data: int = 4
    steps: int = 6
    stops: dict[int, int] = field(default_factory=dict)
    stuck_device: frozenset[int] = frozenset()
    """Of those, ranks that issue on, while their device finishes nothing from there."""

    @property
    def size(self) -> int:
        return self.tensor * self.data

    @property
    def groups(self) -> list[tuple[int, ...]]:
        tensor = [tuple(range(d * self.tensor, (d + 1) * self.tensor)) for d in range(self.data)]
        data = [tuple(range(t, self.size, self.tensor)) for t in range(self.tensor)]
        return [*tensor, *data, tuple(range(self.size))]

    def program(self, rank: int) -> list[tuple[int, Op, bool]]:
        tp, dp = rank // self.tensor, self.data + rank % self.tensor
        everyone = self.data + self.tensor
        out = []
        for step in range(self.steps):
            out += [(tp, Op.ALL_GATHER, True), (dp, Op.ALL_REDUCE, False)]
            out += [(tp, Op.ALL_GATHER, True), (dp, Op.ALL_REDUCE, False)]
            if step % 3 == 2:
                out.append((everyone, Op.BARRIER, True))
            out.append((-1, Op.UNKNOWN, True))  # the end of a step waits for all that is pending
        return out

    def run(self) -> tuple[list[ROW], np.ndarray]:
        """Return the pending rows, and counters as rows of (rank, group, issued, released)."""
        groups, size = self.groups, self.size
        programs = [self.program(rank) for rank in range(size)]
        at, issued = [0] * size, np.full((size, len(groups)), -1)
        waits: list[list[tuple[int, int, Op]]] = [[] for _ in range(size)]
        blocking = [False] * size
        moved = True
        while moved:
            moved = False
            least = [min(issued[m, g] for m in members) for g, members in enumerate(groups)]
            for rank in range(size):
                frozen = rank in self.stuck_device and at[rank] >= self.stops[rank]
                if not frozen:
                    waits[rank] = [one for one in waits[rank] if one[1] > least[one[0]]]
                if waits[rank] and (blocking[rank] or len(waits[rank]) > 8):
                    continue
                blocking[rank] = False
                stopped = rank in self.stops and at[rank] >= self.stops[rank]
                if at[rank] >= len(programs[rank]) or (stopped and rank not in self.stuck_device):
                    continue
                group, op, synchronous = programs[rank][at[rank]]
                if group >= 0:
                    issued[rank, group] += 1
                    waits[rank].append((group, int(issued[rank, group]), op))
                at[rank] += 1
                blocking[rank] = synchronous
                moved = True
        pending = [
            (rank, group, int(op), seq, 0, -1, 64, 10**12)
            for rank in range(size)
            for group, seq, op in waits[rank]
        ]
        came = []
        for rank in range(size):
            for group, members in enumerate(groups):
                if rank in members:
                    mine = [seq for g, seq, _ in waits[rank] if g == group]
                    released = min(mine) - 1 if mine else int(issued[rank, group])
                    came.append((rank, group, int(issued[rank, group]), released))
        return pending, np.array(came, dtype=np.int64)
