"""Which process group a collective is of, as far as traces tell, alike on all of its members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from paceline_service.importers.kineto.calls import Label
from paceline_service.importers.kineto.rank import RankTimeline

MAX_MEMBERS = 4_000_000
"""Of all groups that the labels of one rank name, together: more are no job's."""

Named = tuple[str, tuple[int, ...]]
"""A group: what it is called, and its members."""
_Key = tuple[str, tuple[int, ...], int, int, int]


class Members:
    """Resolves the labels of all ranks of a window to groups."""

    def __init__(self, timelines: Mapping[int, RankTimeline], world_size: int) -> None:
        self._world_size = world_size
        self._named_by = _ranks_by_name(timelines)
        resolved = {rank: self._resolve(timeline) for rank, timeline in sorted(timelines.items())}
        self._renamed = _common_names(resolved)
        self._resolved = resolved

    def group_of(self, rank: int, label: Label) -> Named | None:
        """Return the group that a label of a rank names, or None."""
        named = self._resolved[rank].get(_key(label))
        return named if named is None else self._renamed.get((rank, named), named)

    def _resolve(self, timeline: RankTimeline) -> dict[_Key, Named]:
        found: dict[_Key, Named] = {}
        left = MAX_MEMBERS
        for key, label in {_key(label): label for label in timeline.calls.labels}.items():
            ranks = self._ranks(label, timeline) if left > 0 else ()
            left -= len(ranks)
            if ranks:
                found[key] = (label.group_name, ranks)
        return found

    def _ranks(self, label: Label, timeline: RankTimeline) -> tuple[int, ...]:
        size = label.group_size
        ranks = label.group_ranks
        if not ranks or (size and len(ranks) != size):
            ranks = timeline.trace.groups.get(label.group_name, ())
        if not ranks and label.first_rank >= 0 and label.rank_stride and size > 0:
            last = label.first_rank + label.rank_stride * (size - 1)
            if last < self._world_size:
                ranks = tuple(range(label.first_rank, last + 1, label.rank_stride))
        if not ranks and label.group_name and size:
            named = self._named_by[label.group_name]
            if size == self._world_size:
                ranks = tuple(range(self._world_size))
            elif len(named) == size:
                ranks = named
        if not ranks or max(ranks) >= self._world_size or len(set(ranks)) != len(ranks):
            return ()
        return ranks


def _key(label: Label) -> _Key:
    return (
        label.group_name, label.group_ranks, label.group_size, label.first_rank, label.rank_stride
    )  # fmt: skip


def _ranks_by_name(timelines: Mapping[int, RankTimeline]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = defaultdict(set)
    for rank, timeline in timelines.items():
        for name in {label.group_name for label in timeline.calls.labels}:
            found[name].add(rank)
    return defaultdict(tuple, {name: tuple(sorted(ranks)) for name, ranks in found.items()})


def _common_names(
    resolved: Mapping[int, Mapping[_Key, Named]],
) -> dict[tuple[int, Named], Named]:
    """Return other names for groups that each member calls by a name of its own.

    Names may count the groups that a rank has made, and then differ between the members of one
    group. Where every member knows exactly one group of these ranks it is that one, whatever they
    call it; of several nobody can say which is which.
    """
    names: dict[tuple[int, ...], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for rank, groups in resolved.items():
        for name, ranks in groups.values():
            names[ranks][rank].add(name)
    renamed: dict[tuple[int, Named], Named] = {}
    for ranks, by_rank in names.items():
        own = list(by_rank.values())
        if all(called == own[0] for called in own) or any(len(called) > 1 for called in own):
            continue
        common = min(min(called) for called in own)
        for rank, (called,) in ((rank, tuple(called)) for rank, called in by_rank.items()):
            renamed[rank, (called, ranks)] = (common, ranks)
    return renamed
