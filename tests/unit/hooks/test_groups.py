from __future__ import annotations

import threading
import time
from types import ModuleType
from typing import Any

from paceline.hooks.groups import Groups


class Group:
    """What the hooks ask a process group for."""

    def __init__(self, name: str, size: int) -> None:
        self.group_name = name
        self._size = size

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return 0


class World:
    def __init__(self, default: Group) -> None:
        self.default_pg = default
        self.pg_group_ranks: dict[Group, dict[int, int]] = {}
        self.pg_map: dict[Group, tuple[str, object]] = {}


def test_a_group_whose_ranks_cannot_be_known_uses_up_no_number() -> None:
    described: list[dict[str, object]] = []
    world, stranger = Group("0", 4), Group("1", 2)
    c10d: Any = ModuleType("c10d")
    c10d._world = World(world)
    groups = Groups(c10d, described.append)
    for _ in range(100_000):  # more than there are numbers
        assert groups.get(stranger) is None
    state = groups.get(world)
    assert state is not None
    assert (state.index, state.ranks) == (0, (0, 1, 2, 3))
    c10d._world.pg_group_ranks[stranger] = {2: 0, 3: 1}
    later = groups.get(stranger)
    assert later is not None
    assert (later.index, later.ranks) == (1, (2, 3))
    assert [entry["group"] for entry in described] == [0, 1]


class SlowGroup(Group):
    """Lets other threads run while it is asked for its name."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def group_name(self) -> str:  # type: ignore[override]
        time.sleep(0.05)
        return "0"


def test_a_group_that_two_threads_meet_at_once_is_described_once() -> None:
    described: list[dict[str, object]] = []
    world = SlowGroup(2)
    c10d: Any = ModuleType("c10d")
    c10d._world = World(world)
    groups = Groups(c10d, described.append)
    states: list[object] = []
    threads = [threading.Thread(target=lambda: states.append(groups.get(world))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(described) == 1
    assert len(states) == 4
    assert all(state is states[0] for state in states)
