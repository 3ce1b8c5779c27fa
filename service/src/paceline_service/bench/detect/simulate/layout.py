"""Who works with whom: ranks, parallel dimensions, groups and nodes of a simulated job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How ranks are divided: tensor-parallel ones are neighbours, stages are blocks of nodes.

    ``rank = (stage * dp + replica) * tp + shard``. ``expert`` and ``shard`` are the sizes of
    expert-parallel and of parameter-sharding groups within the data-parallel ones; 0 is none.
    ``live`` holds the global ranks when a data-parallel job runs on some of its ranks only.
    """

    dp: int
    tp: int = 1
    pp: int = 1
    expert: int = 0
    shard: int = 0
    node_size: int = 8
    live: tuple[int, ...] = ()

    @property
    def world_size(self) -> int:
        """How many ranks work."""
        return len(self.live) or self.dp * self.tp * self.pp

    @property
    def ranks(self) -> IntArray:
        """The ranks that work, ascending."""
        return np.array(self.live or range(self.world_size), dtype=np.int64)

    @property
    def name(self) -> str:
        """The dimensions in short, for example ``tp4 dp8``."""
        sizes = (("tp", self.tp), ("pp", self.pp), ("ep", self.expert), ("shard", self.shard))
        return " ".join([f"{n}{size}" for n, size in sizes if size > 1] + [f"dp{self.dp}"])

    def stage(self, number: int) -> IntArray:
        """Return the ranks of one pipeline stage."""
        return np.asarray(self.ranks.reshape(self.pp, -1)[number])

    def node_of(self, ranks: IntArray) -> IntArray:
        """Return the node of each rank; (R,)."""
        return ranks // self.node_size

    def members(self) -> dict[str, IntArray]:
        """Return the groups of each dimension as (groups, size) global ranks."""
        grid = self.ranks.reshape(self.pp, -1, self.tp)
        replicas = np.swapaxes(grid, 1, 2)
        found = {"dp": replicas.reshape(-1, grid.shape[1])}
        if self.tp > 1:
            found["tp"] = grid.reshape(-1, self.tp)
        if self.expert > 1:
            found["ep"] = replicas.reshape(-1, self.expert)
        if self.shard > 1:
            found["shard"] = replicas.reshape(-1, self.shard)
            across = replicas.reshape(self.pp * self.tp, -1, self.shard)
            found["dp"] = np.swapaxes(across, 1, 2).reshape(-1, across.shape[1])
        if self.pp > 1:
            found["pp"] = np.swapaxes(self.ranks.reshape(self.pp, -1), 0, 1)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClass:
    """The groups of one dimension.

    Attributes:
        members: (G, S) global ranks.
        index: (G,) the number that records name them by.
        nodes: (G, S) node of each member.
    """

    members: IntArray
    index: IntArray
    nodes: IntArray

    def part(self, number: int, parts: int) -> GroupClass:
        """Return the groups of one of ``parts`` pipeline stages; they lie stage by stage."""
        each = len(self.index) // parts
        chosen = slice(number * each, (number + 1) * each)
        return GroupClass(
            members=self.members[chosen], index=self.index[chosen], nodes=self.nodes[chosen]
        )

    def within(self, node: int) -> NDArray[np.bool_]:
        """Return (G,) which groups leave ``node``: they have members there and elsewhere."""
        here = self.nodes == node
        return np.asarray(here.any(axis=1) & ~here.all(axis=1))

    def joins(self, one: int, other: int) -> NDArray[np.bool_]:
        """Return (G,) which groups have members on both nodes."""
        return np.asarray((self.nodes == one).any(axis=1) & (self.nodes == other).any(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """What a job declares about one group."""

    name: str
    ranks: tuple[int, ...]
    epoch: int
    dimension: str


def make_groups(
    layout: Layout, first_index: int, epoch: int
) -> tuple[dict[str, GroupClass], list[GroupInfo]]:
    """Return the groups by dimension, and the same in the order of their numbers."""
    classes: dict[str, GroupClass] = {}
    infos: list[GroupInfo] = []
    for dimension, members in layout.members().items():
        if members.shape[1] < 2:
            continue
        index = first_index + len(infos) + np.arange(len(members))
        classes[dimension] = GroupClass(members=members, index=index, nodes=layout.node_of(members))
        infos += [
            GroupInfo(name=f"{dimension}{number}", ranks=tuple(map(int, ranks)), epoch=epoch,
                      dimension=dimension)
            for number, ranks in enumerate(members)
        ]  # fmt: skip
    return classes, infos
