"""Sends and receives: time in which a rank did not work, of which nothing more is known.

Their numbers count on one process alone, so nothing says which send belongs to which receive, and
nobody can be blamed in them. But a rank that waits for its neighbour in a pipeline does no work
meanwhile: left out, that time would count as its own, and whoever waits for a slow neighbour would
be named beside him.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import Flag
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.nccl_inspector.moments import Moments
from paceline_service.importers.nccl_inspector.records import Recorded
from paceline_service.importers.nccl_inspector.steps import Steps

FLAGS = int(Flag.PARTIAL)
"""They are no measure of a link: the wait is inside, and no other side is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """K stretches in which a rank was in sends and receives.

    Attributes:
        rank: (K,) global rank, ascending.
        step: (K,) step.
        begin_ns: (K,) on the axis of the collectives.
        end_ns: (K,) likewise.
    """

    rank: Int64Array
    step: Int64Array
    begin_ns: Int64Array
    end_ns: Int64Array


def traced_stays(
    recorded: Recorded, rank_of_row: Int64Array, steps: Steps, moments: Moments
) -> Stays:
    """Return each send and receive where the host's clock tells its times."""
    rows = _rows(recorded, rank_of_row)
    rank = rank_of_row[rows]
    end = recorded.column("end_us")[rows] * 1000
    step = _step_of(rank, moments.around_ns[rows], steps)
    begin = np.minimum(recorded.column("begin_us")[rows] * 1000, end)
    order = np.argsort(rank, kind="stable")
    return Stays(rank=rank[order], step=step[order], begin_ns=begin[order], end_ns=end[order])


def most_per_step(
    recorded: Recorded, rank_of_row: Int64Array, steps: Steps, moments: Moments
) -> Int64Array:
    """Return (S,) the longest that any rank was in them in each step."""
    key, spent, count = _spent(recorded, rank_of_row, steps, moments)
    most = np.zeros(count, dtype=np.int64)
    np.maximum.at(most, key % count, spent)
    return most


def laid_stays(
    recorded: Recorded,
    rank_of_row: Int64Array,
    steps: Steps,
    moments: Moments,
    free: Sequence[Int64Array],
) -> Stays:
    """Return what each rank spent in them in each step, at the step's beginning.

    Args:
        recorded: all records.
        rank_of_row: (N,) global rank of each.
        steps: the steps.
        moments: when each record ended.
        free: rank, step, begin and end, (F,) each: what lies before a rank's first collective
            of a step. No more is taken than that.
    """
    keys, spent, count = _spent(recorded, rank_of_row, steps, moments)
    free_key = free[0] * count + free[1]
    order = np.argsort(free_key)
    at = np.minimum(np.searchsorted(free_key[order], keys), len(order) - 1)
    found = free_key[order][at] == keys
    place = order[at[found]]
    begin = free[2][place]
    end = np.minimum(begin + spent[found], free[3][place])
    kept = end > begin
    key = keys[found][kept]
    return Stays(rank=key // count, step=key % count, begin_ns=begin[kept], end_ns=end[kept])


def _spent(
    recorded: Recorded, rank_of_row: Int64Array, steps: Steps, moments: Moments
) -> tuple[Int64Array, Int64Array, int]:
    """Return keys rank * S + step, ascending, the time spent in each, and S."""
    rows = _rows(recorded, rank_of_row)
    rank, count = rank_of_row[rows], len(steps.end_ns)
    step = _step_of(rank, moments.around_ns[rows], steps)
    keys, of_key = np.unique(rank * count + step, return_inverse=True)
    spent = np.bincount(of_key.reshape(-1), weights=recorded.column("exec_ns")[rows])
    return keys, spent.astype(np.int64), count


def _rows(recorded: Recorded, rank_of_row: Int64Array) -> NDArray[np.intp]:
    return np.flatnonzero((recorded.column("peer") >= 0) & (rank_of_row >= 0))


def _step_of(rank: Int64Array, around_ns: Int64Array, steps: Steps) -> Int64Array:
    """Return the step in which each ended, by the clock of its rank."""
    step = np.zeros(len(rank), dtype=np.int64)
    for one in np.unique(rank).tolist():
        mine = rank == one
        ends = steps.own_end_ns.get(one, steps.end_ns)
        step[mine] = np.searchsorted(ends, around_ns[mine], side="left")
    return np.minimum(step, len(steps.end_ns) - 1)
