"""How long each collective's transfer took, and how far that is known (docs/math/network.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import P2P_OPS, Flag, Op
from paceline_service.analysis.blame.waits import Waits
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import one_of

JOIN_FLOOR_NS = 20_000
"""A caller that waited less than this may have found the operation done long before: a hook and
a wake-up cost as much. Its release is then when it looked, not when the transfer ended."""
_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)
_UNUSABLE = int(Flag.FAILED | Flag.PARTIAL | Flag.NOT_WAITED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """The T complete collectives of a step with a transfer, and what of them was exposed.

    Attributes:
        group, op: (T,) index of the group; number of the operation, SEND for a pair.
        source, destination: (T,) global ranks of a pair, -1 of a collective.
        payload_bytes: (T,) largest payload that a member told.
        members: (T,) ranks that took part.
        transfer_ns: (T,) release less last arrival, at least 1.
        exact: (T,) every member's release is known, so the transfer may be compared.
        polled: (T,) a release was seen by polling: the transfer is an upper bound.
        on_device: (T,) all members measured on the device's timeline.
        row: (N,) rows of ``Matches`` that belong to them.
        of_row: (N,) index of each row's transfer.
        exposed_ns: (N,) time the row's rank stood still for the transfer itself.
    """

    group: Int64Array
    op: Int64Array
    source: Int64Array
    destination: Int64Array
    payload_bytes: Int64Array
    members: Int64Array
    transfer_ns: Int64Array
    exact: BoolArray
    polled: BoolArray
    on_device: BoolArray
    row: NDArray[np.intp]
    of_row: NDArray[np.intp]
    exposed_ns: Int64Array

    def __len__(self) -> int:
        """Return T."""
        return len(self.group)


def transfers_of(matches: Matches, waits: Waits) -> Transfers | None:
    """Return the transfers of one step; None where it has none.

    The transfer of a pair is the shorter of its two durations, since the later of the two waits
    for nobody; so it is exact when the end of that one is known. Pairs of one rank that end
    at one instant are left inexact: a fused send and receive ends when the slower partner does,
    which says nothing about the other link.
    """
    rows, first = matches.rows, matches.first
    if not len(first):
        return None
    pair = one_of(rows.code[first], _P2P)
    duration = rows.end_ns - rows.start_ns
    released = np.minimum.reduceat(rows.end_ns, first) > 0
    shortest = np.minimum.reduceat(duration, first)
    transfer = np.where(pair, np.where(released, shortest, -1), waits.transfer_ns)
    kept = matches.complete & (transfer > 0)
    if not kept.any():
        return None
    unclear = _unclear(rows)
    later = np.minimum(first + (duration[first] != shortest), len(rows) - 1)  # of a pair
    fused = np.logical_or.reduceat(_fused_pairs(rows), first)
    exact = ~np.where(pair, unclear[later] | fused, np.logical_or.reduceat(unclear, first))
    polled = np.logical_or.reduceat((rows.flags & Flag.RELEASE_POLLED) != 0, first)
    on_device = np.logical_and.reduceat((rows.flags & Flag.GPU_TIME) != 0, first)
    sends = rows.code[first] == Op.SEND
    own, other = rows.rank[first], rows.peer[first]
    number = np.cumsum(kept) - 1
    row = np.flatnonzero(kept[matches.instance])
    of_row = number[matches.instance[row]]
    transfer = transfer[kept]
    communicated = np.maximum(waits.exposed_ns[row] - waits.wait_ns[row], 0)
    return Transfers(
        group=rows.group[first][kept],
        op=np.where(pair, int(Op.SEND), rows.code[first])[kept],
        source=np.where(pair, np.where(sends, own, other), -1)[kept],
        destination=np.where(pair, np.where(sends, other, own), -1)[kept],
        payload_bytes=np.maximum.reduceat(rows.payload_bytes, first)[kept],
        members=np.diff(np.append(first, len(rows)))[kept],
        transfer_ns=transfer,
        exact=exact[kept],
        polled=polled[kept],
        on_device=on_device[kept],
        row=row,
        of_row=of_row,
        # A wait too short to tell from noise was left in the communication: it is no transfer.
        exposed_ns=np.minimum(communicated, transfer[of_row]),
    )


def _unclear(rows: Table) -> BoolArray:
    """Return (N,) which rows do not tell when they were released."""
    on_device = (rows.flags & Flag.GPU_TIME) != 0
    seen_late = (rows.flags & (Flag.ASYNC | Flag.RELEASE_POLLED)) != 0
    waited_ns = rows.end_ns - np.maximum(rows.join_ns, rows.start_ns)
    joined = (rows.join_ns > 0) & (waited_ns > JOIN_FLOOR_NS)
    unusable = (rows.flags & _UNUSABLE) != 0
    return np.asarray(unusable | (seen_late & ~on_device & ~joined))


def _fused_pairs(rows: Table) -> BoolArray:
    """Return (N,) which sends and receives end with another one of the same rank."""
    fused = np.zeros(len(rows), dtype=np.bool_)
    pairs = np.flatnonzero(one_of(rows.code, _P2P))
    if len(pairs) < 2:
        return fused
    order = pairs[np.lexsort((rows.end_ns[pairs], rows.rank[pairs]))]
    rank, end = rows.rank[order], rows.end_ns[order]
    same = (rank[1:] == rank[:-1]) & (end[1:] == end[:-1])
    fused[order[1:][same]] = True
    fused[order[:-1][same]] = True
    return fused
