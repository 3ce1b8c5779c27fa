"""In which order delays are charged that pass waits on (docs/math/blame.md).

An instance whose leader had itself been waiting passes its charge on to those earlier waits, so it
must be charged before them. Instances that depend on none of each other form a level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.sets import distinct

IndexArray = NDArray[np.intp]
MAX_FORCED = 64
"""Contradictions (ranks that tell of different orders) that are broken one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Instances that may be charged together.

    Attributes:
        instances: (D',) which.
        waiters: their waiters, those of one instance together.
        first: (D',) first of them of each instance.
        targets: exposures that they pass on to and that are charged later.
        count: (D',) how many of these each instance has.
    """

    instances: IndexArray
    waiters: IndexArray
    first: IndexArray
    targets: IndexArray
    count: Int64Array


def expand(begin: IndexArray, count: Int64Array) -> IndexArray:
    """Return the indexes ``begin[i] .. begin[i] + count[i]`` of all ranges, one after the other."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begin - (ends - count), count) + np.arange(total)


def find_levels(
    passing: IndexArray,
    *,
    waiter: IndexArray,
    first: IndexArray,
    count: Int64Array,
    leader: IndexArray,
    begin: IndexArray,
    end: IndexArray,
    rank: Int64Array,
) -> list[Level]:
    """Return the instances that pass waits on, the latest first.

    Args:
        passing: which of D instances do.
        waiter: (W,) exposure of each waiter.
        first: (D,) first waiter of each instance.
        count: (D,) how many it has.
        leader: (D,) exposure of each leader.
        begin: (D,) first exposure that each passes on to.
        end: (D,) the one after the last.
        rank: (E,) rank of each exposure, ascending, exposures in time order.
    """
    if not len(passing):
        return []
    waiters = expand(first[passing], count[passing])
    involved = distinct(waiter[waiters])  # exposures whose charge others may add to
    low = np.searchsorted(involved, begin[passing])
    high = np.maximum(np.searchsorted(involved, end[passing]), low)
    levels = []
    for chosen in _by_order(passing, waiter[waiters], count[passing], leader[passing], rank):
        instances = passing[chosen]
        targets = expand(low[chosen], high[chosen] - low[chosen])
        levels.append(
            Level(
                instances=instances,
                waiters=expand(first[instances], count[instances]),
                first=np.cumsum(count[instances]) - count[instances],
                targets=involved[targets],
                count=high[chosen] - low[chosen],
            )
        )
    return levels


def _by_order(
    passing: IndexArray,
    waiters: IndexArray,
    count: Int64Array,
    leader: IndexArray,
    rank: Int64Array,
) -> list[IndexArray]:
    """Return positions in ``passing``, level by level, what any rank joined last first (Kahn).

    Clocks of different ranks are never compared. Where records contradict each other, what
    remains is taken from the end of the step on.
    """
    size = len(passing)
    instance = np.append(np.repeat(np.arange(size), count), np.arange(size))
    exposure = np.append(waiters, leader)
    order = np.argsort(exposure, kind="stable")
    instance, exposure = instance[order], exposure[order]
    same_rank = rank[exposure[1:]] == rank[exposure[:-1]]
    follows = np.append(same_rank, False)  # a later one of the same rank comes first
    precedes = np.append(False, same_rank)
    blockers = np.bincount(instance[follows], minlength=size)
    own = np.argsort(instance, kind="stable")
    of_instance = np.bincount(instance, minlength=size)
    own_first = np.cumsum(of_instance) - of_instance
    done = np.zeros(size, dtype=np.bool_)
    levels: list[IndexArray] = []
    ready = np.flatnonzero(blockers == 0)
    forced = 0
    while True:
        if not len(ready):
            left = np.flatnonzero(~done)
            if not len(left):
                return levels
            forced += 1
            ready = left if forced > MAX_FORCED else left[[int(np.argmax(leader[left]))]]
        done[ready] = True
        levels.append(ready)
        joins = own[expand(own_first[ready], of_instance[ready])]
        before = instance[joins[precedes[joins]] - 1]
        np.subtract.at(blockers, before, 1)
        ready = distinct(before[(blockers[before] <= 0) & ~done[before]])
