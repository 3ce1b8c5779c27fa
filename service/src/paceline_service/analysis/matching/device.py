"""One timeline a rank where some of its records are on the device's (docs/math/device.md).

A rank that timed its steps on the device is taken on that timeline; any other stays on the
host's, and what it knows of the device is moved to where the host issued it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.vocabulary import Flag, Phase, RecordKind
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import one_of

_HOST_ONLY = [
    int(phase) for phase in (Phase.INPUT, Phase.COPY, Phase.CHECKPOINT, Phase.GC, Phase.STARVED)
]
_STEP_LIMIT_NS = 1 << 40
"""Of longer steps (18 minutes) what comes later counts as at the end."""
LAUNCHED_LATE_NS = 200_000
"""A kernel that starts this soon after its launch found an idle stream: launching takes 5 to 50 us,
and a queue of work that keeps a stream busy is milliseconds long."""


def one_timeline(table: Table, world_size: int) -> tuple[Table, BoolArray]:
    """Return the records of a step with one set of steps and phases a rank, and joins filled in.

    Args:
        table: all records of a step.
        world_size: R.

    Returns:
        The records, those of the other timeline left out, and (R,) which ranks are on the device's.
        A collective on the device without a join gets one where its stream must have stood still:
        at its start when it was synchronous, and for the newest of a backward, which ends by
        waiting for it (docs/adr/0032-where-ddp-waits.md).
    """
    timed = (table.flags & Flag.GPU_TIME) != 0
    on_device = np.zeros(world_size, dtype=np.bool_)
    if not timed.any():
        return table, on_device
    on_device[table.rank[timed & (table.kind == RecordKind.STEP)]] = True
    joined = replace(table, join_ns=_joins(table, timed))
    collective = table.kind == RecordKind.COLLECTIVE
    # What the host alone does is known from the host also where the device's timeline counts.
    host_only = (table.kind == RecordKind.PHASE) & one_of(table.code, _HOST_ONLY) & ~timed
    kept = joined.take(collective | host_only | (timed == on_device[table.rank]))
    return kept, on_device


def behind_host_ns(rows: Table, on_device: BoolArray) -> Int64Array:
    """Return (N,) how far each collective lies behind the timeline that its rank is taken on.

    0 for a rank on the device's timeline, and where nothing was timed on the device.
    """
    timed = (rows.flags & Flag.GPU_TIME) != 0
    moved = timed & ~on_device[rows.rank] & (rows.issue_ns > 0)
    return np.where(moved, rows.start_ns - rows.issue_ns, 0)


def launch_lag_ns(table: Table, world_size: int) -> FloatArray:
    """Return (R,) mean time from launch to start of a step's collectives; NaN where unknown."""
    chosen = np.flatnonzero(
        (table.kind == RecordKind.COLLECTIVE)
        & ((table.flags & Flag.GPU_TIME) != 0)
        & (table.issue_ns > 0)
    )
    rank = table.rank[chosen]
    lag_ns = np.maximum(table.start_ns[chosen] - table.issue_ns[chosen], 0)
    count = np.bincount(rank, minlength=world_size).astype(np.float64)
    total_ns = np.bincount(rank, weights=lag_ns, minlength=world_size)
    mean_ns: FloatArray = np.full(world_size, np.nan)
    np.divide(total_ns, count, out=mean_ns, where=count > 0)
    return mean_ns


def _joins(table: Table, timed: BoolArray) -> Int64Array:
    join_ns = table.join_ns.copy()
    open_rows = timed & (table.kind == RecordKind.COLLECTIVE) & (join_ns == 0) & (table.end_ns > 0)
    waits = open_rows & ((table.flags & Flag.ASYNC) == 0)
    waits[_newest_of_backwards(table, np.flatnonzero(open_rows), timed)] = True
    join_ns[waits] = table.start_ns[waits]
    return join_ns


def _newest_of_backwards(
    table: Table, candidates: np.ndarray[tuple[int], np.dtype[np.intp]], timed: BoolArray
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the rows that were issued last within a backward of their rank's host."""
    backward = np.flatnonzero(
        (table.kind == RecordKind.PHASE) & (table.code == Phase.BACKWARD) & ~timed
    )
    if not len(backward) or not len(candidates):
        return np.zeros(0, dtype=np.intp)
    backward = backward[np.lexsort((table.start_ns[backward], table.rank[backward]))]
    order = np.lexsort((table.issue_ns[candidates], table.rank[candidates]))
    candidates = candidates[order]
    rank, phase_rank = table.rank[candidates], table.rank[backward]
    issued, began = table.issue_ns[candidates], table.start_ns[backward]
    # All ranks on one axis, each on a stretch of its own, so that one search serves them all.
    base = np.full(int(max(rank.max(), phase_rank.max())) + 1, np.iinfo(np.int64).max)
    np.minimum.at(base, rank, issued)
    np.minimum.at(base, phase_rank, began)
    places = np.clip(issued - base[rank], 0, _STEP_LIMIT_NS) + rank * (_STEP_LIMIT_NS + 1)
    ended = np.clip(table.end_ns[backward] - base[phase_rank], 0, _STEP_LIMIT_NS)
    last = np.searchsorted(places, ended + phase_rank * (_STEP_LIMIT_NS + 1), side="right") - 1
    found = (last >= 0) & (rank[last] == phase_rank) & (issued[last] >= began)
    return np.asarray(candidates[last[found]])
