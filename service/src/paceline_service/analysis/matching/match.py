"""Which records of different ranks are one collective (docs/math/matching.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import BARRIER_LIKE_OPS, P2P_OPS, Flag, Op, RecordKind
from paceline_service.analysis.matching.groups import Members
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import one_of

IMPOSSIBLE_NS = 1_000_000
"""No member of a barrier-like collective leaves before the last has come. On one clock a release
this much earlier means that the records are of different collectives; device times are mapped to
the host's clock within a tenth of it."""
_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)
_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)
_EQUAL_PAYLOAD = np.array([Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE], dtype=np.int64)
_RADIX_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """N collective records in instance order, and I instances.

    Attributes:
        rows: the records, (N,), those of one instance together and by rank.
        instance: (N,) instance of each row.
        first: (I,) first row of each instance.
        size: (I,) how many rows each has.
        complete: (I,) every member is there once, and all tell of the same operation.
        written: (N,) the rows rank by rank, in the order in which each rank wrote them.
        duplicates: records dropped because their rank had already reported the instance.
        incomplete: instances with missing members.
        mismatched: instances whose members contradict each other: operations, payloads of an
            operation that needs equal ones, ranks that are no members, or times that cannot be.
    """

    rows: Table
    instance: NDArray[np.intp]
    first: NDArray[np.intp]
    size: Int64Array
    complete: BoolArray
    written: NDArray[np.intp]
    duplicates: int
    incomplete: int
    mismatched: int


def match(table: Table, members: Members, clock_of_rank: Int64Array | None = None) -> Matches:
    """Join the collective records of one step across ranks.

    The key is (group, seq); for send and recv (group, source, destination, seq). Nothing
    is ever paired by time or by order alone.

    Args:
        table: records of the step; those of other kinds are passed over.
        members: who belongs to each group.
        clock_of_rank: (R,) number of each rank's clock, -1 when it shares none; without it
            times are not checked.

    Returns:
        The instances. Incomplete and mismatched ones are kept, marked, and used for
        nobody's blame.
    """
    chosen = np.flatnonzero(table.kind == RecordKind.COLLECTIVE)
    groupless = len(chosen) if not len(members.sizes) else 0
    chosen = chosen[groupless:]  # of a job without groups nothing can be matched
    by_rank = table.rank[chosen]
    if (by_rank[1:] < by_rank[:-1]).any():
        chosen = chosen[np.argsort(by_rank, kind="stable")]
    key = _instance_keys(table, chosen, len(members.sizes))
    order = _stable_order(key)
    key = key[order]
    rank = table.rank[chosen[order]]
    new = np.ones(len(key), dtype=np.bool_)
    new[1:] = key[1:] != key[:-1]
    again = np.zeros(len(key), dtype=np.bool_)
    again[1:] = ~new[1:] & (rank[1:] == rank[:-1])
    duplicates = int(again.sum())
    if duplicates:
        order, new = order[~again], new[~again]
    rows = table.take(chosen[order])
    first = np.flatnonzero(new)
    instance = np.cumsum(new) - 1
    place = np.full(len(chosen), -1, dtype=np.intp)
    place[order] = np.arange(len(order))
    size = np.diff(np.append(first, len(rows)))
    whole, agreeing = np.zeros((2, len(first)), dtype=np.bool_)
    if len(first):
        pair = one_of(rows.code[first], _P2P)
        whole = size == np.where(pair, 2, members.sizes[rows.group[first]])
        agreeing = _same_operation(rows, first, pair)
        agreeing &= ~(whole & ~pair) | _by_members(rows, first, instance, members)
        if clock_of_rank is not None:
            agreeing &= _possible(rows, first, clock_of_rank)
    return Matches(
        rows=rows,
        instance=instance,
        first=first,
        size=size,
        complete=whole & agreeing,
        written=place[place >= 0],
        duplicates=duplicates,
        incomplete=int((~whole).sum()) + groupless,
        mismatched=int((~agreeing).sum()),
    )


def _instance_keys(table: Table, chosen: NDArray[np.intp], channels: int) -> Int64Array:
    """Return (N,) a number for each chosen row, equal where they are one instance, and small."""
    channel, seq = table.group[chosen], table.seq[chosen]
    pairs = np.flatnonzero(one_of(table.code[chosen], _P2P))
    if len(pairs):
        rank, peer = table.rank[chosen[pairs]], table.peer[chosen[pairs]]
        sends = table.code[chosen[pairs]] == Op.SEND
        source, destination = np.where(sends, rank, peer), np.where(sends, peer, rank)
        ends = np.stack([channel[pairs], source, destination])
        order = np.lexsort(ends[::-1])
        new = np.append(False, (ends[:, order[1:]] != ends[:, order[:-1]]).any(axis=0))
        channel[pairs[order]] = channels + np.cumsum(new)
        channels += int(new.sum()) + 1
    lowest = np.full(channels, np.iinfo(np.int64).max)
    np.minimum.at(lowest, channel, seq)
    highest = np.full(channels, np.iinfo(np.int64).min)
    np.maximum.at(highest, channel, seq)
    used = highest >= lowest
    with np.errstate(over="ignore"):
        span = np.where(used, highest.astype(np.float64) - lowest + 1, 0.0)
    if span.sum() < 1 << 62:
        base = np.cumsum(span.astype(np.int64)) - span.astype(np.int64)
        return np.asarray(base[channel] + (seq - lowest[channel]))
    order = np.lexsort((seq, channel))
    key = np.zeros(len(seq), dtype=np.int64)
    ordered_seq, ordered_channel = seq[order], channel[order]
    new = (ordered_seq[1:] != ordered_seq[:-1]) | (ordered_channel[1:] != ordered_channel[:-1])
    key[order] = np.append(0, np.cumsum(new))[: len(seq)]
    return key


def _stable_order(key: Int64Array) -> NDArray[np.intp]:
    """Return ``np.argsort(key, kind="stable")`` for keys that are not negative.

    Sorting 16 bits at a time is several times as fast, because numpy then counts.
    """
    highest = int(key.max(initial=0))
    if highest >= 1 << (2 * _RADIX_BITS):
        return np.argsort(key, kind="stable")
    order = np.argsort((key & 0xFFFF).astype(np.uint16), kind="stable")
    if highest >> _RADIX_BITS:
        high = (key >> _RADIX_BITS).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order


def _same_operation(rows: Table, first: NDArray[np.intp], pair: BoolArray) -> BoolArray:
    lowest = np.minimum.reduceat(rows.code, first)
    highest = np.maximum.reduceat(rows.code, first)
    same = (lowest == highest) | (pair & (lowest == Op.SEND) & (highest == Op.RECV))
    least = np.minimum.reduceat(rows.payload_bytes, first)
    equal = (least == np.maximum.reduceat(rows.payload_bytes, first)) | (least <= 0)
    return np.asarray(same & (equal | ~one_of(lowest, _EQUAL_PAYLOAD)))


def _by_members(
    rows: Table, first: NDArray[np.intp], instance: NDArray[np.intp], members: Members
) -> BoolArray:
    """Which whole instances are reported by the members of their group and by nobody else."""
    place = members.first[rows.group] + np.arange(len(rows)) - first[instance]
    expected = np.append(members.ranks, -1)[np.minimum(place, len(members.ranks))]
    return np.asarray(np.logical_and.reduceat(rows.rank == expected, first))


def _possible(rows: Table, first: NDArray[np.intp], clock_of_rank: Int64Array) -> BoolArray:
    """Which instances could have happened: on one clock, and where all are held to the last."""
    timed = (rows.end_ns > 0) & ((rows.flags & (Flag.PARTIAL | Flag.FAILED)) == 0)
    backwards = (rows.end_ns > 0) & (rows.end_ns < rows.start_ns)
    earliest_end = np.minimum.reduceat(np.where(timed, rows.end_ns, np.iinfo(np.int64).max), first)
    latest_start = np.maximum.reduceat(rows.start_ns, first)
    clock = clock_of_rank[rows.rank]
    lowest = np.minimum.reduceat(clock, first)
    shared = (lowest >= 0) & (lowest == np.maximum.reduceat(clock, first))
    held = shared & one_of(rows.code[first], _BARRIER_LIKE)
    left_early = held & (earliest_end < latest_start - IMPOSSIBLE_NS)
    return np.asarray(~(left_early | np.logical_or.reduceat(backwards, first)))
