"""Which collectives of the ranks' traces belong together: process groups, then order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import BARRIER_LIKE_OPS, Op
from paceline_service.analysis.align import Aligned, Refused, align, implausible
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.kineto.calls import Label
from paceline_service.importers.kineto.rank import RankTimeline

_BARRIER_LIKE = np.array(sorted(BARRIER_LIKE_OPS), dtype=np.int64)
_UNEVEN = frozenset({Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.UNKNOWN})
"""Operations whose ranks may move different amounts, and so launch different grids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """A group, and in it one direction of point-to-point transfers (-1: collectives)."""

    name: str
    ranks: tuple[int, ...]
    source: int = -1
    destination: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """C collectives of one group on M members.

    Attributes:
        members: (M,) global ranks that have a trace.
        rows: (C, M) index into each member's calls.
        op: (C,) the operation; UNKNOWN where no member tells it.
        assumed: whether the members were assumed, because no trace names groups.
        note: what a reader should know of the pairing; may be empty.
    """

    key: GroupKey
    members: Int64Array
    rows: NDArray[np.intp]
    op: Int64Array
    left_out: dict[int, int]
    assumed: bool
    note: str = ""

    @property
    def barrier_like(self) -> NDArray[np.bool_]:
        """(C,) which of them no rank can leave before every rank has arrived."""
        return np.isin(self.op, _BARRIER_LIKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """Collectives of a group that nobody's counterpart was found for."""

    name: str
    rank: int
    count: int
    reason: str


def pair(
    timelines: Mapping[int, RankTimeline], world_size: int
) -> tuple[list[Paired], list[Unpaired]]:
    """Pair the collectives of one window of all ranks.

    Args:
        timelines: by rank.
        world_size: of the job.
    """
    sequences: dict[GroupKey, dict[int, list[int]]] = defaultdict(dict)
    unpaired: list[Unpaired] = []
    sizes = _members_by_name(timelines)
    for rank, timeline in sorted(timelines.items()):
        for key, rows in _by_group(rank, timeline, world_size, sizes, unpaired).items():
            sequences[key][rank] = rows
    pairs = []
    for key, by_rank in sequences.items():
        if len(key.ranks) < 2 and key.source < 0:
            continue
        expected = set(key.ranks) if key.source < 0 else {key.source, key.destination}
        for rank in sorted(expected & timelines.keys()):
            by_rank.setdefault(rank, [])
        if len(by_rank) < 2:
            continue  # the others have no trace: nothing can be said about any of them
        found = _pair_group(key, by_rank, timelines)
        if isinstance(found, Refused):
            rank = next(iter(by_rank))
            count = sum(map(len, by_rank.values()))
            unpaired.append(Unpaired(name=key.name, rank=rank, count=count, reason=found.reason))
        else:
            pairs.append(found)
    return pairs, unpaired


def _by_group(
    rank: int,
    timeline: RankTimeline,
    world_size: int,
    members: Mapping[str, tuple[int, ...]],
    unpaired: list[Unpaired],
) -> dict[GroupKey, list[int]]:
    calls, trace = timeline.calls, timeline.trace
    keys = [_labelled(label, timeline, world_size, members) for label in calls.labels]
    of_stream: dict[int, set[tuple[str, tuple[int, ...]]]] = defaultdict(set)
    for stream, known in zip(calls.stream.tolist(), keys, strict=True):
        if known is not None:
            of_stream[stream].add(known)
    bare = sorted({s for s in calls.stream.tolist() if not of_stream[s]})
    found: dict[GroupKey, list[int]] = defaultdict(list)
    reasons: Counter[str] = Counter()
    for row, (stream, known) in enumerate(zip(calls.stream.tolist(), keys, strict=True)):
        here = known
        if here is None and len(of_stream[stream]) == 1:
            here = next(iter(of_stream[stream]))
        if here is None and (of_stream[stream] or trace.group_count > 1):
            reasons["the trace has several process groups and does not say of which it is"] += 1
            continue
        if here is None:
            name = f"stream {bare.index(stream)}" if len(bare) > 1 else "world"
            only = next(iter(trace.groups.items()), None)
            here = only or (name, tuple(range(world_size)))
        op, label = Op(int(calls.op[row])), calls.labels[row]
        if op in (Op.SEND, Op.RECV):
            peer = label.destination if op == Op.SEND else label.source
            if not 0 <= peer < len(here[1]):
                reasons["a send or recv whose other side the trace does not name"] += 1
                continue
            ends = (rank, here[1][peer]) if op == Op.SEND else (here[1][peer], rank)
            key = GroupKey(name=here[0], ranks=here[1], source=ends[0], destination=ends[1])
        elif op == Op.UNKNOWN and "sendrecv" in calls.what[row].lower():
            reasons["a SendRecv kernel launched before the trace began, or by an unknown call"] += 1
            continue
        else:
            key = GroupKey(name=here[0], ranks=here[1])
        found[key].append(row)
    for reason, count in reasons.items():
        unpaired.append(Unpaired(name="", rank=rank, count=count, reason=reason))
    return found


def _labelled(
    label: Label,
    timeline: RankTimeline,
    world_size: int,
    members: Mapping[str, tuple[int, ...]],
) -> tuple[str, tuple[int, ...]] | None:
    """Return name and members of the group that a label names, or None."""
    if not label.group_name:
        return None
    ranks = label.group_ranks
    if not ranks or (label.group_size and len(ranks) != label.group_size):
        ranks = timeline.trace.groups.get(label.group_name, ())
    if not ranks and label.group_size == world_size:
        ranks = tuple(range(world_size))
    if not ranks and len(members.get(label.group_name, ())) == label.group_size:
        ranks = members[label.group_name]
    if not ranks or max(ranks) >= world_size:
        return None
    return label.group_name, ranks


def _members_by_name(timelines: Mapping[int, RankTimeline]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = defaultdict(set)
    for rank, timeline in timelines.items():
        for name in {label.group_name for label in timeline.calls.labels}:
            found[name].add(rank)
    return {name: tuple(sorted(ranks)) for name, ranks in found.items()}


def _pair_group(
    key: GroupKey, by_rank: Mapping[int, list[int]], timelines: Mapping[int, RankTimeline]
) -> Paired | Refused:
    ranks = sorted(by_rank)
    rows = [np.array(by_rank[rank], dtype=np.intp) for rank in ranks]
    found = _aligned(key, ranks, rows, timelines)
    if isinstance(found, Refused):
        return found
    first, length = found.first, found.length
    table = np.stack([r[f : f + length] for r, f in zip(rows, first.tolist(), strict=True)], axis=1)
    ops = np.stack([timelines[rank].calls.op[table[:, i]] for i, rank in enumerate(ranks)], axis=1)
    op = ops.max(axis=1)
    contradicting = (ops != op[:, None]) & (ops != Op.UNKNOWN)
    if key.source < 0 and contradicting.any():
        position, member = (int(x) for x in np.argwhere(contradicting)[0])
        other = int(np.argmax(ops[position]))
        return Refused(
            reason=f"the calls disagree: position {position} is {_op(ops[position, member])} on "
            f"rank {ranks[member]} and {_op(op[position])} on rank {ranks[other]}"
        )
    start = np.stack(
        [timelines[r].calls.start_ns[table[:, i]] for i, r in enumerate(ranks)], axis=1
    )
    end = np.stack([timelines[r].calls.end_ns[table[:, i]] for i, r in enumerate(ranks)], axis=1)
    barrier = np.isin(op, _BARRIER_LIKE)
    problem = implausible(ranks, start[barrier], end[barrier])
    if problem is not None:
        return problem
    assumed = not any(
        timelines[r].trace.groups or timelines[r].calls.labels[int(table[0, i])].group_name
        for i, r in enumerate(ranks)
    )
    note = ""
    if not found.unique:
        note = (
            "the order repeats itself, so a window that began later by a whole repetition on one "
            "rank would look the same; as all have equally many, all are taken to begin together"
        )
    return Paired(
        key=key, members=np.array(ranks, dtype=np.int64), rows=table, op=op, assumed=assumed,
        left_out={r: int(n) for r, n in zip(ranks, found.left_out, strict=True) if n}, note=note,
    )  # fmt: skip


def _aligned(
    key: GroupKey,
    ranks: list[int],
    rows: list[NDArray[np.intp]],
    timelines: Mapping[int, RankTimeline],
) -> Aligned | Refused:
    """Align by signature and step number, then by signature alone where the numbers disagree."""
    views = [timelines[rank] for rank in ranks]
    labels = [[view.calls.labels[i] for i in r] for view, r in zip(views, rows, strict=True)]
    counted = all(label.elements >= 0 for own in labels for label in own)
    numbered = all(view.numbered for view in views)
    plain: list[list[str]] = []
    anchors: list[list[str]] = []
    for view, mine, own in zip(views, rows, labels, strict=True):
        texts = [_signature(view, int(i), label, key, counted) for i, label in
                 zip(mine, own, strict=True)]  # fmt: skip
        plain.append(texts)
        step = view.call_step[mine]
        number = np.where(step >= 0, view.steps[np.maximum(step, 0)], -1)
        anchors.append([f"{t} of step {n}" for t, n in zip(texts, number.tolist(), strict=True)])
    if numbered:
        found = _align_texts(ranks, anchors)
        if isinstance(found, Aligned):
            return found
    return _align_texts(ranks, plain)


def _align_texts(ranks: list[int], texts: list[list[str]]) -> Aligned | Refused:
    numbers: dict[str, int] = {}
    sequences = [
        np.array([numbers.setdefault(text, len(numbers)) for text in own], dtype=np.int64)
        for own in texts
    ]
    return align(ranks, sequences, {number: text for text, number in numbers.items()})


def _signature(view: RankTimeline, row: int, label: Label, key: GroupKey, counted: bool) -> str:
    """Return what must be the same on every rank; only what every rank tells takes part."""
    calls = view.calls
    if key.source >= 0:
        return f"transfer of {label.elements} elements" if counted else "transfer"
    text = calls.what[row]
    uneven = Op(int(calls.op[row])) in _UNEVEN or "sendrecv" in text.lower()
    if not uneven and calls.grid[row] >= 0:
        text += f" of {int(calls.grid[row])} blocks"
    if not uneven and counted:
        text += f" of {label.elements} {label.dtype}"
    return text


def _op(op: int) -> str:
    return Op(int(op)).name.lower()
