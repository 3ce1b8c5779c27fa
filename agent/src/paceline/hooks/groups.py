"""Process groups as this rank knows them: identity, global ranks, counters."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from paceline.ranks import format_ranks

MAX_GROUPS = 65535
"""The group index of a record has 16 bits."""
RECREATED = 1000
"""What each re-creation of a name within one world adds to the epoch."""


class GroupState:
    """One process group: its number on this rank, its global ranks, its counters."""

    __slots__ = ("index", "next_directed_seq", "next_seq", "rank", "ranks", "ref", "size")

    def __init__(self, pg: Any, index: int, ranks: tuple[int, ...], rank: int) -> None:
        self.ref = weakref.ref(pg)
        self.index = index
        self.ranks = ranks
        self.rank = rank
        self.size = len(ranks)
        self.next_seq: Callable[[], int] = itertools.count().__next__
        self.next_directed_seq: Callable[[int, int], int] = DirectedCounter().next_seq


class DirectedCounter:
    """Counts the messages of a group by source and destination, both global ranks."""

    def __init__(self) -> None:
        self._counters: dict[tuple[int, int], Callable[[], int]] = {}

    def next_seq(self, source: int, destination: int) -> int:
        """Return the number of the next message from ``source`` to ``destination``."""
        key = (source, destination)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters.setdefault(key, itertools.count().__next__)
        return counter()


class Groups:
    """Finds the state of a process group, and describes a group when it is first used.

    Args:
        c10d: the module ``torch.distributed.distributed_c10d``.
        describe: takes the metadata entry of a group that was not known.
    """

    def __init__(self, c10d: ModuleType, describe: Callable[[dict[str, object]], object]) -> None:
        self._c10d: Any = c10d
        self._describe = describe
        self._by_id: dict[int, GroupState] = {}
        self._worlds = 0
        self._created: dict[str, int] = {}
        self._next_index = itertools.count()
        self._rare = threading.RLock()
        self.registered: Callable[[Any, GroupState], object] | None = None
        """Told of every process group that gets a state; the native hook counts in its place."""
        self.forgotten: Callable[[], object] | None = None

    def world_began(self) -> None:
        """A default group was initialised: names and torch's own counters start again."""
        self._worlds += 1
        self._created.clear()

    def forget(self) -> None:
        """Describe every group again when it is used: the ring is a new one."""
        self._by_id.clear()
        self._next_index = itertools.count()
        if self.forgotten is not None:
            self.forgotten()

    def get(self, pg: Any) -> GroupState | None:
        """Return the state of ``pg``; None when its global ranks cannot be known."""
        state = self._by_id.get(id(pg))
        if state is not None and state.ref() is pg:
            return state
        return self._register(pg)

    def _register(self, pg: Any) -> GroupState | None:
        with self._rare:  # two threads may meet a group at once: it must get one number
            state = self._by_id.get(id(pg))
            return state if state is not None and state.ref() is pg else self._enter(pg)

    def _enter(self, pg: Any) -> GroupState | None:
        ranks = _global_ranks(self._c10d, pg)
        if not ranks:
            return None  # asked again at the next call: it may be known then
        index = next(self._next_index)
        if index >= MAX_GROUPS:
            return None
        name = str(pg.group_name)
        again = self._created.get(name, 0)
        self._created[name] = again + 1
        state = GroupState(pg, index, ranks, ranks[pg.rank()])
        if self.registered is not None:
            self.registered(pg, state)
        self._by_id[id(pg)] = state
        self._describe(
            {
                "group": index,
                "name": name,
                "ranks": format_ranks(ranks),
                "epoch": max(self._worlds - 1, 0) + RECREATED * again,
                "mesh_dim": _mesh_dim(pg),
                "backend": _backend(self._c10d, pg),
            }
        )
        return state


def _global_ranks(c10d: Any, pg: Any) -> tuple[int, ...]:
    members = c10d._world.pg_group_ranks.get(pg)
    if members:
        return tuple(sorted(members, key=members.__getitem__))
    default = c10d._world.default_pg
    if default is not None and pg.size() == default.size():
        return tuple(range(pg.size()))
    return ()


def _mesh_dim(pg: Any) -> str:
    description = str(getattr(pg, "group_desc", "") or "")
    if description in ("undefined", "default_pg"):
        return ""
    return description.removeprefix("mesh_")


def _backend(c10d: Any, pg: Any) -> str:
    known = c10d._world.pg_map.get(pg)
    return str(known[0]) if known else ""
