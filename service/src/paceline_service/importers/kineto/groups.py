"""Which collectives of the ranks' traces belong together: process groups, then order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.vocabulary import Op
from paceline_service.analysis.matching.align import Refused
from paceline_service.importers.kineto.calls import Label
from paceline_service.importers.kineto.order import GroupKey, Paired, pair_group
from paceline_service.importers.kineto.rank import RankTimeline


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
        found = pair_group(key, by_rank, timelines)
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
        if here is None and calls.labels[row].group_size not in (0, world_size):
            reasons["a process group whose members no trace names"] += 1
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
