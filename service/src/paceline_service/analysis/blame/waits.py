"""Who waited for whom at each collective; no clock need be shared (docs/math/waits.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import Op
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import one_of

SHARED_CLOCK_FLOOR_NS = 50_000
"""Arrivals on one clock that differ by less are equal: a hook and a scheduler tick cost that."""
NOISE_MULTIPLE = 5
"""A spread counts when it exceeds this many times the release noise (DETECTION section 1)."""

_SOURCE_OPS = np.array([Op.BROADCAST, Op.SCATTER], dtype=np.int64)
_SINK_OPS = np.array([Op.REDUCE, Op.GATHER], dtype=np.int64)
_PAIR_OPS = np.array([Op.SEND, Op.RECV], dtype=np.int64)
_NEVER = np.iinfo(np.int64).max
_ALWAYS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What each of N rows (in the order of ``Matches``) and I instances means.

    Attributes:
        exposed_start_ns: (N,) when the rank stopped computing for this collective; equal to
            ``end_ns`` where it never did.
        exposed_ns: (N,) time from there to the release.
        wait_ns: (N,) the part of it before the last arrival; 0 where not significant.
        late_by_ns: (I,) spread of the arrivals.
        last_rank: (I,) the rank that arrived last, -1 where that is not significant.
        last_row: (I,) its row, -1 likewise.
        transfer_ns: (I,) release minus last arrival, -1 where unknown.
    """

    exposed_start_ns: Int64Array
    exposed_ns: Int64Array
    wait_ns: Int64Array
    late_by_ns: Int64Array
    last_rank: Int64Array
    last_row: NDArray[np.intp]
    transfer_ns: Int64Array


def measure_waits(matches: Matches, clock_of_rank: Int64Array, noise_ns: Int64Array) -> Waits:
    """Compute arrivals, waits and exposure of one step.

    Where all members of an instance share a clock their arrivals are compared directly; else
    the last arriver is the one with the shortest duration, and the last arrival on a rank's
    own clock is its release minus that duration (DETECTION section 1).

    Args:
        matches: matched collectives; times in ns, 0 unknown.
        clock_of_rank: (R,) number of each rank's clock, -1 when it shares none.
        noise_ns: (G,) measured release noise of each group.
    """
    rows, first, instance = matches.rows, matches.first, matches.instance
    exposed_start, exposed = expose(matches)
    if not len(first):
        none = np.zeros(0, dtype=np.int64)
        return Waits(exposed_start_ns=exposed_start, exposed_ns=exposed, wait_ns=none.copy(),
                     late_by_ns=none, last_rank=none, last_row=np.zeros(0, dtype=np.intp),
                     transfer_ns=none)  # fmt: skip
    op = rows.code[first]
    clock = clock_of_rank[rows.rank]
    lowest = np.minimum.reduceat(clock, first)
    shared = (lowest >= 0) & (lowest == np.maximum.reduceat(clock, first))
    released = np.minimum.reduceat(rows.end_ns, first) > 0
    duration = rows.end_ns - rows.start_ns
    shortest = np.minimum.reduceat(duration, first)
    # How late each row is: larger is later. On one clock its arrival, else minus its duration.
    lateness = np.where(shared[instance], rows.start_ns, -duration)
    source, sink, pair = (np.isin(op, ops) for ops in (_SOURCE_OPS, _SINK_OPS, _PAIR_OPS))
    is_root = rows.rank == rows.peer
    awaited = _awaited(rows.code, is_root)
    waits_for_others = np.where(source[instance], ~is_root, np.where(sink[instance], is_root, True))
    latest = np.maximum.reduceat(np.where(awaited, lateness, _ALWAYS), first)
    known = (shared | released) & (latest != _ALWAYS) & matches.complete
    last_arrival = np.where(shared[instance], latest[instance], rows.end_ns - shortest[instance])
    wait = np.clip(np.minimum(last_arrival, rows.end_ns) - exposed_start, 0, np.maximum(exposed, 0))
    late_by = np.where(known, latest - _earliest(lateness, waits_for_others, first), 0)
    late_by = np.maximum(late_by, 0)
    gate = np.where(
        shared,
        SHARED_CLOCK_FLOOR_NS,
        np.maximum(NOISE_MULTIPLE * noise_ns[rows.group[first]], SHARED_CLOCK_FLOOR_NS),
    )
    significant = known & (late_by > gate)
    wait = np.where(significant[instance] & waits_for_others, wait, 0)
    last_row = _first_true(awaited & (lateness == latest[instance]), first, len(rows))
    last_row = np.where(significant, last_row, -1)
    wait[last_row[last_row >= 0]] = 0
    transfer = np.where(shared, np.minimum.reduceat(rows.end_ns, first) - latest, shortest)
    return Waits(
        exposed_start_ns=exposed_start,
        exposed_ns=exposed,
        wait_ns=wait,
        late_by_ns=late_by,
        last_rank=np.where(last_row >= 0, rows.rank[last_row], -1),
        last_row=last_row,
        transfer_ns=np.where(known & released & ~pair, np.maximum(transfer, 0), -1),
    )


def expose(matches: Matches) -> tuple[Int64Array, Int64Array]:
    """Return when each row's caller stopped for it, and for how long (both (N,), ns).

    Only a join counts: a collective nobody waited for overlaps with compute. Joins of one
    rank that overlap (nested waits) are cut so that no time counts twice. Who joins a collective
    that is still queued behind others waits for those too.
    """
    rows = matches.rows
    join_ns = _with_queued_joins(matches)
    stopped = (join_ns > 0) & (rows.end_ns > join_ns)
    begin = np.where(stopped, np.maximum(join_ns, rows.start_ns), rows.end_ns)
    order = matches.written[stopped[matches.written]]
    rank, start, end = rows.rank[order], begin[order], rows.end_ns[order]
    if ((start[1:] < start[:-1]) & (rank[1:] == rank[:-1])).any():
        again = np.lexsort((end, start, rank))
        order, rank, start, end = order[again], rank[again], start[again], end[again]
    if len(order) > 1:
        # A running maximum per rank: shift the ranks' times apart, then take one over all.
        offset = np.cumsum(np.append(0, rank[1:] != rank[:-1]))
        span = int(end.max() - start.min()) + 1
        shifted = end - start.min() + offset * span
        reached = np.maximum.accumulate(shifted)
        before = np.append(_ALWAYS, reached[:-1]) - offset * span + start.min()
        before[np.append(True, rank[1:] != rank[:-1])] = _ALWAYS
        start = np.minimum(np.maximum(start, before), end)
        begin[order] = start
    return begin, np.where(stopped, rows.end_ns - begin, 0)


def _with_queued_joins(matches: Matches) -> Int64Array:
    """Return (N,) joins; what ran before a collective that was joined in the queue is joined too.

    A collective that starts only after its caller joined it waited for its stream, where the
    earlier ones of its group ran: each of those that ended after the join held the caller up.
    """
    rows = matches.rows
    queued = (rows.join_ns > 0) & (rows.start_ns > rows.join_ns)
    if not queued.any():
        return rows.join_ns
    order = np.lexsort((rows.start_ns, rows.group, rows.rank))
    rank, group = rows.rank[order], rows.group[order]
    stream = np.cumsum(np.append(0, (rank[1:] != rank[:-1]) | (group[1:] != group[:-1])))
    first_ns = int(rows.join_ns[queued].min())
    span = int(rows.join_ns[queued].max()) - first_ns + 2
    never = span - 1
    join = np.where(queued[order], rows.join_ns[order] - first_ns, never)
    # A running minimum from behind, each stream shifted apart from the next.
    reached = np.minimum.accumulate((join + stream * span)[::-1])[::-1] - stream * span
    implied = np.full(len(rows), 0, dtype=np.int64)
    implied[order] = np.where(reached < never, reached + first_ns, 0)
    held = (rows.join_ns == 0) & (implied > 0) & (rows.end_ns > implied)
    return np.asarray(np.where(held, implied, rows.join_ns))


def _awaited(op: Int64Array, is_root: BoolArray) -> BoolArray:
    """Return which rows others wait for: the root of a broadcast, all but the root of a reduce."""
    source = one_of(op, _SOURCE_OPS)
    sink = one_of(op, _SINK_OPS)
    return np.where(source, is_root, np.where(sink, ~is_root, True))


def _earliest(lateness: Int64Array, waiting: BoolArray, first: NDArray[np.intp]) -> Int64Array:
    earliest = np.minimum.reduceat(np.where(waiting, lateness, _NEVER), first)
    return np.where(earliest == _NEVER, np.minimum.reduceat(lateness, first), earliest)


def _first_true(mask: BoolArray, first: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Return the first row of each instance where ``mask`` holds; ``size`` - 1 where none does."""
    index = np.where(mask, np.arange(size), size - 1)
    return np.minimum.reduceat(index, first)
