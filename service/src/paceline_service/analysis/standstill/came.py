"""How far ranks have come, from the records that a job that stands still has left behind."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import BARRIER_LIKE_OPS, P2P_OPS, Op, RecordKind
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.sets import distinct, one_of
from paceline_service.analysis.standstill.waiting import Came, MessageKey, Waiting

_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)
_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)


def came_in(
    waiting: Waiting, held: Table, members: list[Int64Array], whole: Int64Array, world_size: int
) -> Came:
    """Return how far the members of the groups that somebody waits in have come.

    Args:
        waiting: what is pending.
        held: records of the steps that are not judged yet.
        members: ranks of each group.
        whole: newest number that was complete in the judged steps, of each group.
        world_size: R.

    What all members of a group have left, none of them still has to enter. That also holds
    for those whose own records are lost or were never sent.
    """
    groups = distinct(waiting.group)
    groups = groups[(groups >= 0) & (groups < len(members))]
    rows = held.take(
        (held.kind == RecordKind.COLLECTIVE)
        & ~one_of(held.code, _P2P)
        & np.isin(held.group, groups)
    )
    sizes = [len(members[group]) for group in groups.tolist()]
    group = np.repeat(groups, sizes)
    everyone = [members[one] for one in groups.tolist()]
    rank = np.concatenate(everyone) if everyone else np.zeros(0, dtype=np.int64)
    order = np.lexsort((rank, group))
    group, rank = group[order], rank[order]
    floor = np.full(len(groups), -1, dtype=np.int64)
    known = groups < len(whole)
    floor[known] = whole[groups[known]]
    left = rows.end_ns > 0
    synchronous = left & one_of(rows.code, _BARRIER_LIKE)
    at = np.searchsorted(groups, rows.group[synchronous])
    np.maximum.at(floor, at, rows.seq[synchronous])
    issued = floor[np.searchsorted(groups, group)] if len(groups) else floor
    released = np.full(len(group), -1, dtype=np.int64)
    key = group * world_size + rank
    wanted = rows.group * world_size + rows.rank
    if len(key):
        slot = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        member = key[slot] == wanted
        np.maximum.at(issued, slot[member], rows.seq[member])
        done = member & left
        np.maximum.at(released, slot[done], rows.seq[done])
    return Came(rank=rank, group=group, issued=issued, released=released)


def messages_of(waiting: Waiting, held: Table) -> dict[MessageKey, int]:
    """Return the newest send or recv that is recorded, of the pairs that somebody waits in."""
    peers = distinct(waiting.peer[one_of(waiting.op, _P2P)])
    if not len(peers):
        return {}
    rows = held.take(
        (held.kind == RecordKind.COLLECTIVE) & one_of(held.code, _P2P) & np.isin(held.rank, peers)
    )
    newest: dict[MessageKey, int] = {}
    columns = (rows.group, rows.rank, rows.peer, rows.seq, rows.code == Op.SEND)
    for group, rank, peer, seq, sent in zip(*(c.tolist() for c in columns), strict=True):
        pair = (rank, peer) if sent else (peer, rank)
        key = (group, *pair, sent)
        newest[key] = max(newest.get(key, -1), seq)
    return newest
