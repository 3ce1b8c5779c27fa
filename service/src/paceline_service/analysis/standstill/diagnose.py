"""Who keeps a job standing: from what every rank waits in to the ranks that are missing there.

Pure: counters and pending collectives in, culprits out (docs/math/standstill.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import BARRIER_LIKE_OPS, P2P_OPS, Op
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import distinct, one_of
from paceline_service.analysis.standstill.edges import Edges, explained_by, mutual
from paceline_service.analysis.standstill.stuck import stuck_rows
from paceline_service.analysis.standstill.waiting import Came, MessageKey, Waiting

_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)
_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)
_SAME_SIZE = np.array(sorted((Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE)), dtype=np.int64)
"""Operations whose payload is of one size on all ranks; others may be uneven on purpose."""
NEVER_ISSUED, NEVER_FINISHED, ALONE, MUTUAL, DIFFERENT, STUCK = (
    "never_issued", "never_finished", "alone", "mutual", "different", "stuck",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprits:
    """Ranks that one trouble is about.

    Attributes:
        manner: one of the constants above.
        ranks: who, ascending; nobody where a collective stands that all have entered.
        row: the pending collective that tells most: its oldest waiter's, as a row of ``Waiting``.
        waiters: how many ranks wait for them, directly or through others.
        waited_ns: the sum of the ages of the oldest pending collective of each of those.
        lags: for each rank the newest number that it issued (or finished) in that group.
    """

    manner: str
    ranks: list[int]
    row: int
    waiters: int
    waited_ns: int
    lags: dict[int, int] = field(default_factory=dict)


def diagnose(
    waiting: Waiting,
    came: Came,
    members: list[Int64Array],
    world_size: int,
    threshold_ns: int,
    messages: Mapping[MessageKey, int] | None = None,
) -> list[Culprits]:
    """Return who is to blame that ranks wait, the manner that explains most first.

    Args:
        waiting: everything that is pending, also what is young.
        came: counters; a member that has no row has issued nothing yet.
        members: ranks of each group.
        world_size: R.
        threshold_ns: nobody is named for a wait that is younger; 0 names also where the age is
            not known.
        messages: newest send or recv that a rank is known to have issued, of each pair.
    """
    if not len(waiting):
        return []
    old = waiting.age_ns >= threshold_ns if threshold_ns > 0 else np.ones(len(waiting), np.bool_)
    if not old.any():
        return []
    found = _different(waiting, old)
    edges, laggards, held_rows = _edges(waiting, came, members, world_size, old, messages or {})
    oldest_of = _oldest_rows(waiting, world_size)
    targets, waits = edges.targets(), edges.waits()
    waits[laggards] = False  # a rank that holds up what its peers have left is guilty by itself
    stuck = stuck_rows(waiting, members, old, edges) if threshold_ns > 0 else waiting.rank[:0]
    waits[waiting.rank[stuck]] = True  # who is in what nobody leaves comes nowhere else
    guilty = targets & ~waits & edges.targets_of_old()
    if found:
        # What differs is what everybody waits for in the end; who is missing elsewhere follows.
        disagreeing = np.zeros(world_size, dtype=np.bool_)
        disagreeing[[rank for culprits in found for rank in culprits.ranks]] = True
        guilty &= ~disagreeing
    elif len(stuck):
        found = [_stuck(stuck, waiting, edges, oldest_of)]
    for manner, who in (
        (NEVER_FINISHED, guilty & laggards),
        (NEVER_ISSUED, guilty & ~laggards),
    ):
        if who.any():
            ranks = np.flatnonzero(who)
            if manner == NEVER_ISSUED:
                alone, ranks = _alone(ranks, waiting, came, members, edges)
                found += (
                    [_culprits(ALONE, alone, waiting, edges, oldest_of, held_rows)]
                    if len(alone)
                    else []
                )
            if len(ranks):
                found.append(_culprits(manner, ranks, waiting, edges, oldest_of, held_rows))
    if not found:
        core = mutual(edges, np.zeros(world_size, dtype=np.bool_))
        if core.any():
            ranks = np.flatnonzero(core)
            found.append(_culprits(MUTUAL, ranks, waiting, edges, oldest_of, held_rows))
    return sorted(found, key=lambda culprits: -culprits.waiters)


def _edges(
    waiting: Waiting,
    came: Came,
    members: list[Int64Array],
    world_size: int,
    old: BoolArray,
    messages: Mapping[MessageKey, int],
) -> tuple[Edges, BoolArray, Int64Array]:
    """Return who waits for whom, who did not finish what others left, and in which rows."""
    p2p = one_of(waiting.op, _P2P)
    size = world_size
    key = came.group * size + came.rank
    order = np.argsort(key, kind="stable")
    key, issued, released = key[order], came.issued[order], came.released[order]
    laggards = np.zeros(size, dtype=np.bool_)
    held_rows: list[Int64Array] = []
    waiter_rows: list[Int64Array] = []
    waiter_nodes: list[Int64Array] = []
    missing_ranks: list[Int64Array] = []
    missing_nodes: list[Int64Array] = []
    node = 0
    rows_by_group = np.flatnonzero(~p2p)
    rows_by_group = rows_by_group[np.argsort(waiting.group[rows_by_group], kind="stable")]
    groups, first = np.unique(waiting.group[rows_by_group], return_index=True)
    ends = np.append(first, len(rows_by_group))[1:]
    for group, begin, end in zip(groups.tolist(), first.tolist(), ends.tolist(), strict=True):
        rows = rows_by_group[begin:end]
        if not 0 <= group < len(members) or len(members[group]) < 2:
            continue
        there = members[group]
        came_issued = _lookup(key, issued, group * size + there)
        came_released = _lookup(key, released, group * size + there)
        pending = waiting.seq[rows]
        # What is pending was issued, whatever the counters of another moment say.
        place = np.searchsorted(np.sort(there), waiting.rank[rows])
        slots = np.argsort(there, kind="stable")[np.minimum(place, len(there) - 1)]
        np.maximum.at(came_issued, slots, pending)
        held = (pending <= came_released.max()) & one_of(waiting.op[rows], _BARRIER_LIKE)
        if held.any():
            behind = distinct(waiting.rank[rows[held]])
            laggards[behind] = True
            held_rows.append(rows[held])
            on = rows[~np.isin(waiting.rank[rows], behind)]
            if not len(on):  # nobody else is pending here: its peers went on and wait elsewhere
                on = rows[held]
            waiter_rows.append(on)
            waiter_nodes.append(np.full(len(on), node))
            missing_ranks.append(behind)
            missing_nodes.append(np.full(len(behind), node))
            node += 1
        blocked = pending > came_issued.min()
        if blocked.any():
            number = int(pending[blocked].min())
            absent = there[came_issued < number]
            on = rows[pending >= number]
            waiter_rows.append(on)
            waiter_nodes.append(np.full(len(on), node))
            missing_ranks.append(absent)
            missing_nodes.append(np.full(len(absent), node))
            node += 1
    for row, peer in _unanswered(waiting, p2p, messages):
        waiter_rows.append(np.array([row]))
        waiter_nodes.append(np.array([node]))
        missing_ranks.append(np.array([peer]))
        missing_nodes.append(np.array([node]))
        node += 1
    edges = Edges(
        world_size=size,
        nodes=node,
        waiter_row=_joined(waiter_rows),
        waiter_rank=waiting.rank[_joined(waiter_rows)],
        waiter_node=_joined(waiter_nodes),
        missing_rank=_joined(missing_ranks),
        missing_node=_joined(missing_nodes),
        old_row=old,
    )
    return edges, laggards, _joined(held_rows)


def _unanswered(
    waiting: Waiting, p2p: BoolArray, messages: Mapping[MessageKey, int]
) -> list[tuple[int, int]]:
    """Return the row and the peer of each send or recv whose other side is not there."""
    rows = np.flatnonzero(p2p)
    if not len(rows):
        return []
    part = waiting.take(rows)
    sends = part.op == Op.SEND
    source = np.where(sends, part.rank, part.peer)
    target = np.where(sends, part.peer, part.rank)
    keys = list(zip(part.group.tolist(), source.tolist(), target.tolist(), part.seq.tolist(),
                    sends.tolist(), strict=True))  # fmt: skip
    there = set(keys)
    return [
        (int(row), int(peer))
        for row, peer, (group, a, b, seq, send) in zip(rows, part.peer, keys, strict=True)
        if peer >= 0
        and (group, a, b, seq, not send) not in there
        and messages.get((group, a, b, not send), -1) < seq
    ]


def _different(waiting: Waiting, old: BoolArray) -> list[Culprits]:
    """Return the ranks whose operation or size under one number is not that of most others."""
    rows = np.flatnonzero(~one_of(waiting.op, _P2P) & (waiting.op != Op.UNKNOWN))
    if len(rows) < 2:
        return []
    sized = np.where(
        one_of(waiting.op[rows], _SAME_SIZE), np.maximum(waiting.payload_bytes[rows], 0), 0
    )
    order = np.lexsort((sized, waiting.op[rows], waiting.seq[rows], waiting.group[rows]))
    rows, sized = rows[order], sized[order]
    same = np.zeros(len(rows), dtype=np.bool_)
    same[1:] = (waiting.group[rows[1:]] == waiting.group[rows[:-1]]) & (
        waiting.seq[rows[1:]] == waiting.seq[rows[:-1]]
    )
    equal_op = np.ones(len(rows), dtype=np.bool_)
    equal_op[1:] = waiting.op[rows[1:]] == waiting.op[rows[:-1]]
    # A size of 0 is not known.
    equal_size = np.ones(len(rows), dtype=np.bool_)
    equal_size[1:] = (sized[1:] == sized[:-1]) | (sized[:-1] == 0) | (sized[1:] == 0)
    breaks = same & ~(equal_op & equal_size)
    if not breaks.any():
        return []
    instance = np.cumsum(~same) - 1
    for number in distinct(instance[breaks]).tolist():
        mine = np.flatnonzero(instance == number)
        if not old[rows[mine]].any():
            continue
        kinds = np.stack([waiting.op[rows[mine]], sized[mine]], axis=1)
        _, which, counts = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
        odd = counts[which.ravel()] < counts.max()
        who = rows[mine[odd]] if odd.any() else rows[mine]
        ranks = distinct(waiting.rank[who]).tolist()
        row = int(who[np.argmax(waiting.age_ns[who])])
        ages = np.maximum(waiting.age_ns[rows[mine]], 0)
        return [
            Culprits(manner=DIFFERENT, ranks=ranks, row=row, waited_ns=int(ages.sum()),
                     waiters=len(distinct(waiting.rank[rows[mine]])) - len(ranks))
        ]  # fmt: skip
    return []


def _alone(
    ranks: Int64Array, waiting: Waiting, came: Came, members: list[Int64Array], edges: Edges
) -> tuple[Int64Array, Int64Array]:
    """Return the waiters that issued what most of their group did not, and the ranks left over.

    One of eight ranks that waits for seven is the one that does something else.
    """
    for node in range(edges.nodes):
        missing = edges.missing_rank[edges.missing_node == node]
        rows = edges.waiter_row[edges.waiter_node == node]
        there = distinct(waiting.rank[rows])
        if len(missing) > 2 * len(there) and np.isin(missing, ranks).all():
            left = ranks[~np.isin(ranks, missing)]
            return there, left
    return np.zeros(0, dtype=np.int64), ranks


def _culprits(
    manner: str,
    ranks: Int64Array,
    waiting: Waiting,
    edges: Edges,
    oldest_of: Int64Array,
    held_rows: Int64Array,
) -> Culprits:
    start = np.zeros(edges.world_size, dtype=np.bool_)
    start[ranks] = True
    behind = explained_by(edges, start) & ~start
    waiters = np.flatnonzero(behind & (oldest_of >= 0))
    shared = np.zeros(edges.nodes, dtype=np.int64)
    np.add.at(shared, edges.missing_node[start[edges.missing_rank]], 1)
    if manner == NEVER_FINISHED:
        direct = held_rows[start[waiting.rank[held_rows]]]
        weight = np.zeros(len(direct), dtype=np.int64)
    else:
        mine = start[edges.waiter_rank] if manner in (ALONE, MUTUAL) else (
            shared[edges.waiter_node] > 0
        )  # fmt: skip
        direct, weight = edges.waiter_row[mine], shared[edges.waiter_node[mine]]
    # The oldest; where nobody knows an age, the collective that most of them are missing in.
    order = np.lexsort((waiting.seq[direct], -weight, -waiting.age_ns[direct]))
    direct = direct[order]
    ages = np.maximum(waiting.age_ns[oldest_of[waiters]], 0)
    return Culprits(
        manner=manner,
        ranks=sorted(int(rank) for rank in ranks),
        row=int(direct[0]),
        waiters=len(waiters),
        waited_ns=int(ages.sum()),
    )


def _stuck(rows: Int64Array, waiting: Waiting, edges: Edges, oldest_of: Int64Array) -> Culprits:
    inside = np.zeros(edges.world_size, dtype=np.bool_)
    inside[waiting.rank[rows]] = True
    waiters = np.flatnonzero(explained_by(edges, inside) & (oldest_of >= 0))
    ages = np.maximum(waiting.age_ns[oldest_of[waiters]], 0)
    return Culprits(
        manner=STUCK, ranks=[], row=int(rows[np.argmax(waiting.age_ns[rows])]),
        waiters=len(waiters), waited_ns=int(ages.sum()),
    )  # fmt: skip


def _oldest_rows(waiting: Waiting, world_size: int) -> Int64Array:
    """Return for each rank the row of its oldest pending collective, -1 where it has none."""
    oldest = np.full(world_size, -1, dtype=np.int64)
    order = np.lexsort((waiting.age_ns, waiting.rank))
    oldest[waiting.rank[order]] = order
    return oldest


def _lookup(keys: Int64Array, values: Int64Array, wanted: Int64Array) -> Int64Array:
    """Return the value of each wanted key, -1 where there is none; ``keys`` ascend."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], -1)


def _joined(parts: list[Int64Array]) -> Int64Array:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
