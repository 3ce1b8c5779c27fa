"""Sorting rows by rank and time, which they nearly are already."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.records import Int64Array


def time_order(rank: Int64Array, time_ns: Int64Array) -> NDArray[np.intp]:
    """Return ``np.lexsort((time_ns, rank))`` of (N,) ranks and times.

    That sorts by time first, across all ranks, whatever order rows come in. Here rows that are in
    order cost one look, and those that are nearly so one pass.
    """
    same = rank[1:] == rank[:-1]
    wrong = (rank[1:] < rank[:-1]) | (same & (time_ns[1:] < time_ns[:-1]))
    if not wrong.any():
        return np.arange(len(rank))
    first_ns = int(time_ns.min())
    span = int(time_ns.max()) - first_ns + 1
    lowest = int(rank.min())
    if (int(rank.max()) - lowest + 1) * span >= 1 << 62:
        return np.lexsort((time_ns, rank))
    return np.argsort((rank - lowest) * span + (time_ns - first_ns), kind="stable")
