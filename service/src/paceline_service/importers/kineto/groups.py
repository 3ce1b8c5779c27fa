"""Which collectives of the ranks' traces belong together: process groups, then order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from paceline.dataclass import dataclass
from paceline.vocabulary import Op
from paceline_service.analysis.matching.align import Refused
from paceline_service.importers.kineto.calls import Label
from paceline_service.importers.kineto.members import Members, Named
from paceline_service.importers.kineto.order import GroupKey, Paired, pair_group
from paceline_service.importers.kineto.rank import RankTimeline

if TYPE_CHECKING:
    from paceline_service.importers.kineto.transfers import Clocks

_NOT_TOLD = "the trace has several process groups and does not say of which it is"
_NO_MEMBERS = "a process group whose members no trace names"
_STREAMS_DIFFER = (
    "no trace names process groups, and the ranks communicate on different numbers of streams"
)
_STREAMS_ALIKE = (
    "no trace names process groups, and several streams of a rank issue the same collectives, so "
    "nothing tells which belong together"
)
_NAMELESS_STREAMS = (
    "a process group without a name issues them on several streams, as two groups of the same "
    "ranks would"
)
_NO_PEER = "a send or recv whose other side the trace does not name"
_STRANGE_PEER = "a send or recv with a rank that is not in its process group"
_BATCH = (
    "a SendRecv kernel whose call the trace does not tell: it was launched before the trace began, "
    "or by a batch of sends and receives (batch_isend_irecv)"
)


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
    members = Members(timelines, world_size)
    named = {rank: _named(rank, t, members) for rank, t in timelines.items()}
    # Groups whose members also send to each other, each on its own count; and whether any might.
    transferring: set[Named] = set()
    untold = False
    problem = _streams_problem(timelines, named)
    for rank, timeline in sorted(timelines.items()):
        sorter = _Sorter(rank, timeline, world_size, named[rank], problem)
        for key, rows in sorter.rows().items():
            sequences[key][rank] = rows
        for reason, count in sorter.reasons.items():
            unpaired.append(Unpaired(name="", rank=rank, count=count, reason=reason))
        untold = untold or sorter.reasons[_BATCH] > 0
        untold = untold or any(label.exchange for label in timeline.calls.labels)
        transferring |= sorter.transferring
    pairs: list[Paired] = []
    clocks: Clocks | None = None
    # Sends and receives last: what all leave together tells how far the clocks are apart.
    for key, by_rank in sorted(sequences.items(), key=lambda item: item[0].source >= 0):
        if len(key.ranks) < 2 and key.source < 0:
            continue
        expected = set(key.ranks) if key.source < 0 else {key.source, key.destination}
        for rank in sorted(expected & timelines.keys()):
            by_rank.setdefault(rank, [])
        if len(by_rank) < 2:
            continue  # the others have no trace: nothing can be said about any of them
        counted = not untold and (key.name, key.ranks) not in transferring
        found = pair_group(key, by_rank, timelines, counted=counted)
        if key.source >= 0 and isinstance(found, Paired):
            from paceline_service.importers.kineto.transfers import Clocks, contradicted

            clocks = clocks or Clocks(pairs, timelines)
            found = contradicted(found, timelines, clocks) or found
        if isinstance(found, Refused):
            rank = next(iter(by_rank))
            count = sum(map(len, by_rank.values()))
            unpaired.append(Unpaired(name=key.name, rank=rank, count=count, reason=found.reason))
        else:
            pairs.append(found)
    return pairs, unpaired


def _named(rank: int, timeline: RankTimeline, members: Members) -> list[Named | None]:
    """Return the group of each call that the trace tells, also by what else its stream serves.

    A stream of communication alone serves one group. Calls of any group may run where kernels
    compute: torch since 2.8 runs those there that their caller waits for.
    """
    calls = timeline.calls
    known = [members.group_of(rank, label) for label in calls.labels]
    streams = calls.stream.tolist()
    of_stream: dict[int, set[Named]] = defaultdict(set)
    for stream, group, label in zip(streams, known, calls.labels, strict=True):
        if group is not None and not label.exchange:
            of_stream[stream].add(group)
    several = len(set().union(*of_stream.values())) > 1
    serves = {
        stream: next(iter(groups))
        for stream, groups in of_stream.items()
        if len(groups) == 1 and not (several and stream in timeline.trace.compute_streams)
    }
    return [
        serves.get(stream) if group is None else group
        for stream, group in zip(streams, known, strict=True)
    ]


def _bare_streams(timeline: RankTimeline, named: list[Named | None]) -> list[int]:
    """Return the streams of which no call names a group, ascending."""
    streams = timeline.calls.stream.tolist()
    told = {stream for stream, group in zip(streams, named, strict=True) if group is not None}
    return sorted(set(streams) - told)


def _streams_problem(
    timelines: Mapping[int, RankTimeline], named: Mapping[int, list[Named | None]]
) -> str:
    """Return why streams cannot stand for groups that no trace names; empty where they can.

    The k-th stream of a rank is taken for the k-th of the others. That is proved by the collectives
    on them only if no two streams of a rank issue the same ones.
    """
    bare = {
        rank: _bare_streams(timeline, named[rank])
        for rank, timeline in timelines.items()
        if timeline.trace.group_count != 1
    }
    if len({len(own) for own in bare.values()} - {0}) > 1:
        return _STREAMS_DIFFER
    for rank, own in bare.items():
        if len(own) < 2:
            continue
        calls = timelines[rank].calls
        issued: dict[int, set[tuple[str, int]]] = defaultdict(set)
        for stream, what, grid in zip(
            calls.stream.tolist(), calls.what, calls.grid.tolist(), strict=True
        ):
            issued[stream].add((what, grid))
        kinds = [frozenset(issued[stream]) for stream in own]
        if len(set(kinds)) < len(kinds):
            return _STREAMS_ALIKE
    return ""


class _Sorter:
    """Sorts the calls of one rank by group and direction; counts why the others have none."""

    def __init__(
        self,
        rank: int,
        timeline: RankTimeline,
        world_size: int,
        named: list[Named | None],
        problem: str,
    ) -> None:
        self.reasons: Counter[str] = Counter()
        self.transferring: set[Named] = set()
        self._rank, self._timeline, self._named = rank, timeline, named
        self._world = tuple(range(world_size))
        self._problem = problem
        self._bare = _bare_streams(timeline, named)

    def rows(self) -> dict[GroupKey, list[int]]:
        """Return the indices of the calls of each group."""
        found: dict[GroupKey, list[int]] = defaultdict(list)
        streams: dict[Named, set[int]] = defaultdict(set)
        for row, group in enumerate(self._named):
            if self._is_untold_transfer(row):
                self.reasons[_BATCH] += 1
                continue
            here = group or self._assumed(row)
            key = self._key(row, here) if isinstance(here, tuple) else here
            if isinstance(key, str):
                self.reasons[key] += 1
                continue
            found[key].append(row)
            if key.source >= 0:
                self.transferring.add((key.name, key.ranks))
            if group is not None and not group[0]:
                streams[group].add(int(self._timeline.calls.stream[row]))
        for (name, ranks), used in streams.items():
            if len(used) > 1:
                for key in [k for k in found if k.name == name and k.ranks == ranks]:
                    self.reasons[_NAMELESS_STREAMS] += len(found.pop(key))
        return found

    def _is_untold_transfer(self, row: int) -> bool:
        calls = self._timeline.calls
        return calls.op[row] == Op.UNKNOWN and "sendrecv" in calls.what[row].lower()

    def _assumed(self, row: int) -> Named | str:
        """Return the group of a call that names none, or why nobody can say."""
        calls, trace = self._timeline.calls, self._timeline.trace
        stream = int(calls.stream[row])
        if stream not in self._bare or trace.group_count > 1:
            return _NOT_TOLD
        if calls.labels[row].group_size not in (0, len(self._world)):
            return _NO_MEMBERS
        if trace.groups:
            return next(iter(trace.groups.items()))
        if self._problem:
            return self._problem
        several = len(self._bare) > 1
        return (f"stream {self._bare.index(stream)}" if several else "world"), self._world

    def _key(self, row: int, group: Named) -> GroupKey | str:
        calls = self._timeline.calls
        name, ranks = group
        op, label = Op(int(calls.op[row])), calls.labels[row]
        if op not in (Op.SEND, Op.RECV):
            return GroupKey(name=name, ranks=ranks)
        peer = _peer(self._rank, op, label, ranks)
        if peer is None:
            return _NO_PEER
        if peer not in ranks or peer == self._rank:
            return _STRANGE_PEER
        ends = (self._rank, peer) if op == Op.SEND else (peer, self._rank)
        return GroupKey(name=name, ranks=ranks, source=ends[0], destination=ends[1])


def _peer(rank: int, op: Op, label: Label, ranks: tuple[int, ...]) -> int | None:
    """Return the global rank at the other side, or None where it is not told."""
    told = label.destination if op == Op.SEND else label.source
    if told >= 0:
        return told
    own, peer = label.own_place, label.peer_place
    if 0 <= own < len(ranks) and 0 <= peer < len(ranks) and ranks[own] == rank:
        return ranks[peer]
    return None
