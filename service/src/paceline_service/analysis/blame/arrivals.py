"""Who arrived last and what that cost, from durations alone (docs/math/align.md)."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.blame.waits import SHARED_CLOCK_FLOOR_NS
from paceline_service.analysis.records import Int64Array

HOST_LATE_NS = 30_000
"""A kernel that starts this soon after its launch found its stream idle: it waited for the host.
Launches take 2 to 10 us to reach an idle GPU, and 10 to 50 us behind one short kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastArrivals:
    """Sums by global rank, arrays of shape (R,).

    ``caused_ns`` counts all waits of the collectives in which a rank arrived last; ``last`` counts
    these collectives, and ``host_late`` and ``gpu_busy`` those of them whose launch is known.
    """

    total_ns: int
    collectives: int
    caused_ns: Int64Array
    last: Int64Array
    host_late: Int64Array
    gpu_busy: Int64Array

    def __add__(self, other: LastArrivals) -> LastArrivals:
        """Return the sums of two sets of collectives."""
        return LastArrivals(
            total_ns=self.total_ns + other.total_ns,
            collectives=self.collectives + other.collectives,
            caused_ns=self.caused_ns + other.caused_ns,
            last=self.last + other.last,
            host_late=self.host_late + other.host_late,
            gpu_busy=self.gpu_busy + other.gpu_busy,
        )


def nobody(world_size: int) -> LastArrivals:
    """Return sums of no collectives."""
    zeros = np.zeros(world_size, dtype=np.int64)
    return LastArrivals(total_ns=0, collectives=0, caused_ns=zeros, last=zeros, host_late=zeros,
                        gpu_busy=zeros)  # fmt: skip


def last_arrivals(
    ranks: Int64Array, duration_ns: Int64Array, queue_ns: Int64Array, world_size: int
) -> LastArrivals:
    """Sum waits by who arrived last, over barrier-like collectives of one group.

    The last arriver is the one with the shortest duration; where all waited less than the floor of
    the waits (50 us) nobody arrived last.

    Args:
        ranks: (M,) global ranks of the members.
        duration_ns: (C, M).
        queue_ns: (C, M) from launch to start, -1 where the launch is unknown.
        world_size: R.
    """
    sums = nobody(world_size)
    if not duration_ns.size or len(ranks) < 2:
        return sums
    wait_ns = duration_ns - duration_ns.min(axis=1, keepdims=True)
    counts = wait_ns.max(axis=1) >= SHARED_CLOCK_FLOOR_NS
    member = np.argmin(duration_ns, axis=1)[counts]
    last = ranks[member]
    queue = queue_ns[np.flatnonzero(counts), member]
    caused = np.zeros(world_size, dtype=np.int64)
    np.add.at(caused, last, wait_ns[counts].sum(axis=1))
    return LastArrivals(
        total_ns=int(wait_ns.sum()),
        collectives=len(wait_ns),
        caused_ns=caused,
        last=_count(last, world_size),
        host_late=_count(last[(queue >= 0) & (queue < HOST_LATE_NS)], world_size),
        gpu_busy=_count(last[queue >= HOST_LATE_NS], world_size),
    )


def _count(ranks: Int64Array, world_size: int) -> Int64Array:
    return np.bincount(ranks, minlength=world_size).astype(np.int64)
