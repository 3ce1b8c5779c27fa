from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.clock import mono_ns
from paceline.ring import RingReader, RingWriter, new_identity
from paceline.sidecar.follow import Follower
from paceline.sidecar.pairs import ALONE_S, PLUGIN, Pairs
from paceline.sidecar.progress import Progress

IDENTITY = new_identity(
    job="j", run_id="r", attempt=0, rank=3, local_rank=3, world_size=4, node="n", boot_id="b",
    time_namespace=1, producer="hooks",
)  # fmt: skip


class Rings:
    """Rings in one directory, each with its own incarnation."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: list[RingWriter] = []
        self._opened: list[RingReader] = []

    def make(self, producer: str, *, after_s: float = 0.0, **fields: object) -> RingReader:
        identity = replace(
            IDENTITY,
            producer=producer,
            incarnation=len(self._made).to_bytes(16, "little"),
            created_mono_ns=mono_ns() + int(after_s * 1e9),
            **fields,  # type: ignore[arg-type]
        )
        writer = RingWriter(self._directory, identity)
        self._made.append(writer)
        self._opened.append(RingReader(writer.path))
        return self._opened[-1]

    def hooks(self, *, after_s: float = 0.0, **fields: object) -> Follower:
        return Follower(self.make("hooks", after_s=after_s, **fields), Progress(), "")

    def close(self) -> None:
        for reader in self._opened:
            reader.close()
        for writer in self._made:
            writer.close()


@pytest.fixture
def rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rings]:
    # A lock is never seen by the process that holds it, and here writer and reader share one.
    monkeypatch.setattr(RingReader, "writer_alive", lambda self: True)
    made = Rings(tmp_path)
    yield made
    made.close()


def test_plugin_that_appears_later_is_given_to_the_hooks_of_its_process(rings: Rings) -> None:
    hooks, other = rings.hooks(), rings.hooks(pid=1)
    pairs = Pairs()
    plugin = rings.make(PLUGIN, after_s=5)
    pairs.add(plugin, 0.0)
    assert pairs.attach([other, hooks]) == []
    assert [path for path, _ in hooks.second_rings()] == [plugin.path]
    assert other.second_rings() == []
    assert pairs.waiting == 0


@pytest.mark.parametrize("field", [{"attempt": 1}, {"rank": 2}, {"run_id": "q"}, {"node": "m"}])
def test_plugin_of_another_process_waits_and_then_is_alone(
    rings: Rings, field: dict[str, object]
) -> None:
    hooks = rings.hooks()
    pairs = Pairs()
    plugin = rings.make(PLUGIN, **field)
    pairs.add(plugin, 0.0)
    assert pairs.attach([hooks]) == []
    assert pairs.alone(ALONE_S - 1) == []
    assert pairs.incarnations() == {plugin.identity.incarnation.hex()}
    assert pairs.alone(ALONE_S) == [plugin]


def test_plugin_that_came_before_the_hooks_of_its_process_is_taken(rings: Rings) -> None:
    plugin, hooks = rings.make(PLUGIN, after_s=-60), rings.hooks()
    pairs = Pairs()
    pairs.add(plugin, 0.0)
    pairs.attach([hooks])
    assert len(hooks.second_rings()) == 1


def test_plugin_of_a_former_process_with_the_same_pid_is_not_taken(
    rings: Rings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RingReader, "writer_alive", lambda self: False)
    former = rings.make(PLUGIN, after_s=-60)
    hooks = rings.hooks()
    pairs = Pairs()
    pairs.add(former, 0.0)
    assert pairs.attach([hooks]) == []
    assert hooks.second_rings() == []


def test_of_two_processes_with_one_pid_the_newer_one_owns_the_newer_plugin(rings: Rings) -> None:
    old, new = rings.hooks(after_s=-60), rings.hooks()
    pairs = Pairs()
    pairs.add(rings.make(PLUGIN), 0.0)
    pairs.attach([new, old])
    assert len(new.second_rings()) == 1
    assert old.second_rings() == []


def test_what_a_plugin_left_goes_with_hooks_that_are_over(rings: Rings) -> None:
    hooks = rings.hooks()
    pairs = Pairs()
    pairs.hooks_over(hooks.identity)
    plugin = rings.make(PLUGIN)
    pairs.add(plugin, 0.0)
    assert pairs.attach([]) == [plugin]
    assert pairs.waiting == 0


def test_second_plugin_of_one_process_is_refused(rings: Rings) -> None:
    hooks = rings.hooks()
    pairs = Pairs()
    first, second = rings.make(PLUGIN), rings.make(PLUGIN)
    pairs.add(first, 0.0)
    pairs.add(second, 0.0)
    assert pairs.attach([hooks]) == [second]
