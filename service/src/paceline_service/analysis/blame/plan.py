"""The delays of one step, ready to be charged; charging is linear, so it may be done again.

Everything is flat: D delayed instances with a leader each, and W waiters, those of one instance
together. Indexes of exposures are those of ``timeline.Exposures``.
"""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.blame.levels import IndexArray, Level
from paceline_service.analysis.records import FloatArray, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the waits of a step, or a part of them, come to.

    Attributes:
        by_row_ns: (P, R) charged to each rank by each row of ``Plan.excess_ns``.
        schedule_ns: charged to nobody, because the leader's peers take as long: a bubble.
        share: (D,) how many times each leader's delay and earlier waits were charged.
        unattributed_ns: what is neither explained nor inherited from an earlier step.
    """

    by_row_ns: FloatArray
    schedule_ns: float
    share: FloatArray
    unattributed_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The delays of one step.

    Attributes:
        ranks: R.
        wait_ns: (E,) wait of each exposure.
        rank_end: (R,) the exposure after each rank's last.
        waiter: (W,) exposure of each waiter.
        first: (D,) first waiter of each instance.
        leader: (D,) rank of the last arriver.
        delay_ns: (W,) how much longer the leader took than the waiter.
        excess_ns: (P, W) the part of that in which it was slower than its own peers.
        used: the rows of ``excess_ns`` that may hold something else than 0.
        explained_ns: (W,) the delays and the leader's own waits together; 0 where that is noise.
        begin: (D,) first exposure of the leader since the last sync.
        end: (D,) its exposure at this instance.
        earlier_ns: (D,) the leader's waits since the last sync that lie in earlier steps.
        since: (D,) the leader's first exposure after that sync in the step before, or -1 where
            the sync was earlier still.
        levels: instances that pass waits on, in the order in which they are charged.
    """

    ranks: int
    wait_ns: Int64Array
    rank_end: IndexArray
    waiter: IndexArray
    first: IndexArray
    leader: Int64Array
    delay_ns: Int64Array
    excess_ns: FloatArray
    used: list[int]
    explained_ns: FloatArray
    begin: IndexArray
    end: IndexArray
    earlier_ns: FloatArray
    since: IndexArray
    levels: list[Level]

    def caused_ns(self) -> Int64Array:
        """Return (R,) the waits at instances in which each rank was the last arriver."""
        waited = _sum(self.wait_ns[self.waiter].astype(np.float64), self.first)
        return np.bincount(self.leader, waited, minlength=self.ranks).astype(np.int64)

    def distribute(self, factor: FloatArray) -> Charge:
        """Charge ``factor`` (E,) times each wait to whom it is due."""
        wait = self.wait_ns[self.waiter].astype(np.float64)
        # A delay cannot explain a wait that is longer than itself.
        owed = np.maximum(self.explained_ns, wait)
        price = np.divide(wait, owed, out=np.zeros_like(wait), where=self.explained_ns > 0)
        times, final = self._pass_on(factor, price)
        paid = price * times
        share = _sum(paid, self.first)
        charged = np.zeros((len(self.excess_ns), self.ranks))
        for row in self.used:
            due = _sum(paid * self.excess_ns[row], self.first)
            charged[row] = np.bincount(self.leader, due, minlength=self.ranks)
        delays_ns = dot(paid, self.delay_ns)
        everything = dot(self.wait_ns, final)
        return Charge(
            by_row_ns=charged,
            schedule_ns=delays_ns - float(charged.sum()),
            share=share,
            unattributed_ns=everything - dot(paid, self.explained_ns),
        )

    def _pass_on(self, factor: FloatArray, price: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (W,) how many times each waiter is charged and (E,) how many times each wait is.

        The two differ only where records contradict each other about the order.
        """
        if not self.levels:
            return factor[self.waiter], factor
        scale = factor.copy()
        times = np.full(len(self.waiter), -1.0)
        shares = np.zeros(len(self.first))
        for level in self.levels:
            times[level.waiters] = scale[self.waiter[level.waiters]]
            share = _sum(price[level.waiters] * times[level.waiters], level.first)
            np.add.at(scale, level.targets, np.repeat(share, level.count))
            shares[level.instances] = share
        final = factor + spread_over(self.begin, self.end, shares, len(factor))
        return np.where(times < 0, final[self.waiter], times), final

    def inherit(self, later: Plan, share: FloatArray) -> tuple[FloatArray, float]:
        """Return how many times the waits of this step are inherited by the ``later`` one.

        Args:
            later: the plan of the next step.
            share: (D,) from charging it.

        Returns:
            (E,) a factor for ``distribute``, and what was inherited from before this step, ns.
        """
        inherits = np.flatnonzero((later.earlier_ns > 0) & (share > 0))
        leader = later.leader[inherits]
        end = self.rank_end[leader]
        first = np.append(0, self.rank_end)[leader]
        begin = np.where(later.since[inherits] < 0, first, later.since[inherits])
        factor = spread_over(begin, end, share[inherits], len(self.wait_ns))
        total = dot(later.earlier_ns[inherits], share[inherits])
        return factor, total - dot(self.wait_ns, factor)


def spread_over(begin: IndexArray, end: IndexArray, value: FloatArray, size: int) -> FloatArray:
    """Return (size,) the sum of the values whose range [begin, end) covers each index."""
    steps = np.zeros(size + 1)
    np.add.at(steps, begin, value)
    np.subtract.at(steps, np.maximum(end, begin), value)
    # What cancels leaves rounding behind; less than nothing is nothing.
    return np.maximum(np.cumsum(steps)[:-1], 0.0)


def dot(left: FloatArray | Int64Array, right: FloatArray | Int64Array) -> float:
    """Return the sum of products: the same on any number of cores, which BLAS does not promise.

    BLAS also wakes a thread per core for it, which costs more than the sum.
    """
    return float((left * right).sum())


def _sum(values: FloatArray, first: IndexArray) -> FloatArray:
    return np.add.reduceat(values, first) if len(first) else np.zeros(0)
