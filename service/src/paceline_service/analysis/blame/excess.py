"""How much of what a rank spends is more than its peers spend (docs/math/blame.md)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paceline_service.analysis.blame.levels import IndexArray
from paceline_service.analysis.records import FloatArray, Int64Array


class Excess:
    """Compares each rank's step with its peers', phase by phase.

    Args:
        phase_self_ns: (R, 7), -1 where a rank has no data.
        comm_ns: (R,) exposed communication, -1 likewise.
        peer_groups: ranks that do the same work.
    """

    def __init__(
        self, phase_self_ns: Int64Array, comm_ns: Int64Array, peer_groups: list[Int64Array]
    ) -> None:
        spent = np.concatenate([phase_self_ns.T, comm_ns[None]]).astype(np.float64)
        self._ratio = np.ones_like(spent)
        """(P, R) share of each rank's time that is more than the typical peer's; 1 without any."""
        self._role = np.full(len(comm_ns), -1, dtype=np.int64)
        for number, ranks in enumerate(peer_groups):
            self._role[ranks] = number
            here = ranks[comm_ns[ranks] >= 0]
            if len(here) < 2 or len(peer_groups) == 1:
                continue
            low = (len(here) - 1) // 2  # of two peers the faster is typical
            typical = np.partition(spent[:, here], low, axis=1)[:, low, None]
            more = np.maximum(spent[:, here] - typical, 0.0)
            self._ratio[:, here] = more / np.maximum(spent[:, here], 1.0)

    def of(
        self,
        delays_ns: Int64Array,
        spent_ns: Int64Array,
        number: IndexArray,
        leader: Int64Array,
        waiter: Int64Array,
        used: Iterable[int],
    ) -> FloatArray:
        """Return (P, W) the part of each delay that is the leader's own.

        Against a peer all of it is. A rank of another role was bound to be elsewhere in its work:
        there only what the leader spends beyond its peers counts.

        Args:
            delays_ns: (P, W) how much longer each leader took than each waiter.
            spent_ns: (P, D) what each leader spent in that time.
            number: (W,) which of D instances each waiter is of.
            leader: (D,) rank of each leader.
            waiter: (W,) rank of each waiter.
            used: the rows of ``delays_ns`` that may hold something else than 0.
        """
        excess = np.zeros(delays_ns.shape)
        for row in used:
            excess[row] = delays_ns[row]
        other = np.flatnonzero(self._role[leader][number] != self._role[waiter])
        if len(other):
            own = spent_ns * self._ratio[:, leader]
            excess[:, other] = np.minimum(excess[:, other], own[:, number[other]])
        return excess
