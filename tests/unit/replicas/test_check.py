"""When a rank takes its digests, and that nothing waits for a device that is slow to give them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paceline.hooks import replicas
from paceline.hooks.patches import Patches
from paceline.hooks.replica_sets import MAX_MODULES, MAX_SETS, ReplicaSets
from paceline.hooks.replicas import ReplicaCheck
from paceline.ring.replicas import ReplicaDigest


class Module:
    """What the check looks at in a module of DistributedDataParallel."""

    mixed_precision = None
    require_forward_param_sync = True
    _comm_hooks: tuple[()] = ()
    _join_config = SimpleNamespace(enable=False)
    process_group = SimpleNamespace(group_name="0", _get_sequence_number_for_group=lambda: 5)

    def __init__(self) -> None:
        self._module_parameters = [torch.nn.Parameter(torch.ones(10)) for _ in range(3)]


class Rank:
    """A training thread; ``steps`` lets it update so often.

    Args:
        every: steps between two checks.
        fake: what stands in for torch.
    """

    def __init__(self, every: int, fake: Any = torch, group_size: int = 4) -> None:
        self.written: list[ReplicaDigest] = []
        self.failures: list[Exception] = []
        self.module = Module()
        self.recorder: Any = SimpleNamespace(
            clock=SimpleNamespace(step=-1), level="full", failed=self.failures.append,
            writer=SimpleNamespace(digest=self.written.append),
            groups=SimpleNamespace(get=lambda group: SimpleNamespace(index=2, size=group_size)),
        )  # fmt: skip
        self.left_out: list[str] = []
        self.sets = ReplicaSets(Patches(), self.left_out.append)
        self.sets.made(self.module)
        self.optimizer = torch.optim.SGD(self.module._module_parameters, lr=0.1)
        self.check = ReplicaCheck(fake, self.recorder, every, self.sets)

    def steps(self, count: int) -> list[int]:
        """Return the steps of the digests so far."""
        for _ in range(count):
            self.recorder.clock.step += 1
            self.check.optimizer_begins(self.optimizer)
            self.check.optimizer_begins(self.optimizer)  # a second optimizer of the same step
        return [one.step for one in self.written]


class Device:
    """Torch whose device is as slow as the test says; the rest is torch itself."""

    def __init__(self) -> None:
        self.done = False
        self.capturing = False
        query: Callable[[], bool] = lambda: self.done  # noqa: E731
        self.cuda = SimpleNamespace(
            is_current_stream_capturing=lambda: self.capturing,
            device=lambda device: nullcontext(),
            Event=lambda: SimpleNamespace(record=lambda: None, query=query),
        )

    def empty(self, size: int, *, pin_memory: bool, **more: Any) -> torch.Tensor:
        """Return memory; none can be pinned here."""
        assert pin_memory
        return torch.empty(size, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(replicas, "_AT_ONCE", frozenset())
    return Device()


def test_a_digest_is_taken_once_in_every_nth_step_and_not_at_level_off() -> None:
    rank = Rank(every=3)
    assert rank.steps(8) == [0, 3, 6]
    assert {(one.group, one.seq, one.part, one.parts) for one in rank.written} == {(2, 5, 0, 1)}
    rank.recorder.level = "off"
    assert rank.steps(6) == [0, 3, 6]


def test_a_group_of_one_rank_and_no_check_asked_for_take_none() -> None:
    assert Rank(every=1, group_size=1).steps(3) == []
    assert Rank(every=0).steps(3) == []


def test_who_holds_the_same_finds_the_same_and_a_flip_changes_it_from_then_on() -> None:
    one, other = Rank(every=1), Rank(every=1)
    one.steps(2)
    other.steps(2)
    assert [d.digest for d in one.written] == [d.digest for d in other.written]
    other.module._module_parameters[1].data.view(torch.int32)[3] ^= 1
    one.steps(2)
    other.steps(2)
    assert [a.digest == b.digest for a, b in zip(one.written, other.written, strict=True)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_large_models_are_read_in_parts_each_at_two_checks_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "PART_BYTES", {"cpu": 40, "cuda": 40})
    rank = Rank(every=5)
    rank.steps(31)
    assert [(one.part, one.parts) for one in rank.written] == [
        (0, 3), (0, 3), (1, 3), (1, 3), (2, 3), (2, 3), (0, 3),
    ]  # fmt: skip


def test_a_device_is_not_waited_for_and_its_digest_comes_later_with_its_own_step(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = Rank(every=2, fake=device)
    assert rank.steps(4) == []
    device.done = True
    assert rank.steps(1) == [0, 2, 4]  # the third was enqueued and done before the second call
    at_once = Rank(every=2)
    monkeypatch.undo()
    assert at_once.steps(1) == [0]
    assert rank.written[0].digest == at_once.written[0].digest
    monkeypatch.setattr(replicas, "_AT_ONCE", frozenset())
    device.done = False
    for _ in range(100):
        rank.steps(1)
    assert len(rank.check._waiting) == replicas.MAX_WAITING
    device.done = True
    rank.check.flush()
    assert not rank.check._waiting
    assert not rank.failures


def test_nothing_is_enqueued_into_a_graph_that_is_captured(device: Device) -> None:
    rank = Rank(every=1, fake=device)
    device.capturing = device.done = True
    assert rank.steps(3) == []
    device.capturing = False
    assert rank.steps(2) == [3, 4]


def test_a_failure_is_counted_once_and_ends_the_checks() -> None:
    rank = Rank(every=1)
    rank.module._join_config = None  # type: ignore[assignment]
    rank.steps(5)
    assert len(rank.failures) == 1


def test_what_is_not_ready_when_a_ring_ends_is_not_written_into_the_next_one(
    device: Device,
) -> None:
    rank = Rank(every=1, fake=device)
    rank.steps(2)
    rank.check.flush()  # the groups of the next ring have other numbers
    device.done = True
    assert rank.steps(2) == [2, 3]


def test_a_group_whose_collectives_nobody_counts_is_not_compared() -> None:
    rank = Rank(every=1)

    def refuse() -> int:
        raise RuntimeError("this backend has no sequence numbers")

    uncounted: Any = SimpleNamespace(group_name="0", _get_sequence_number_for_group=refuse)
    rank.module.process_group = uncounted
    assert rank.steps(3) == []
    assert rank.left_out
    assert not rank.failures


def test_many_modules_of_a_group_take_turns_of_two_checks_and_each_has_its_own_number() -> None:
    rank = Rank(every=5)
    more = [Module() for _ in range(2 * MAX_SETS)]
    for one in more:
        rank.sets.made(one)
    rank.steps(61)
    read: dict[int, list[int]] = {}
    for one in rank.written:
        read.setdefault(one.step, []).append(one.module)
    first, second = list(range(MAX_SETS)), list(range(MAX_SETS, 2 * MAX_SETS))
    turns = [first, second, [2 * MAX_SETS]]
    assert [read[step] for step in range(0, 60, 5)] == [turns[n // 2 % 3] for n in range(12)]
    assert not rank.left_out


def test_what_is_over_the_limit_is_told_and_those_that_are_gone_make_room() -> None:
    rank = Rank(every=1)
    more = [Module() for _ in range(MAX_MODULES)]
    for one in more[:-1]:
        rank.sets.made(one)
    assert not rank.left_out
    rank.sets.made(more[-1])
    assert str(MAX_MODULES) in rank.left_out[0]
    del more[:-1], one
    late = Module()
    rank.sets.made(late)
    rank.steps(2 * (MAX_MODULES // MAX_SETS + 1))
    assert {one.module for one in rank.written} == {0, MAX_MODULES + 1}
    assert len(rank.left_out) == 1


@pytest.fixture
def group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_a_look_without_gradients_before_the_update_changes_nothing_and_a_local_step_does() -> None:
    patches, left_out = Patches(), list[str]()
    sets = ReplicaSets(patches, left_out.append)
    sets.install(lambda name, action: action(sys.modules[name]) if "parallel" in name else None)
    try:
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def update(*, synchronized: bool) -> int:
            with nullcontext() if synchronized else model.no_sync():
                model(torch.ones(3, 2)).sum().backward()
            with torch.no_grad():
                model(torch.ones(3, 2))
                model(torch.ones(3, 2))
            sets.updates(optimizer)
            sets.updates(optimizer)
            return len(list(sets.now(0)))

        assert [update(synchronized=True) for _ in range(3)] == [1, 1, 1]
        assert not left_out
        assert update(synchronized=False) == 0
        assert "without synchronization" in left_out[0]
    finally:
        patches.undo()


def test_an_optimizer_with_an_empty_group_is_no_failure_and_is_seen_in_all_its_groups() -> None:
    rank = Rank(every=1)
    groups: list[dict[str, Any]] = [
        {"params": []},
        {"params": [torch.nn.Parameter(torch.ones(1))]},  # of another module
        {"params": list(rank.module._module_parameters)},
    ]
    rank.optimizer = torch.optim.SGD(groups, lr=0.1)
    assert rank.steps(2) == [0, 1]
    rank.module.require_forward_param_sync = False  # a step within no_sync: its own from now on
    assert rank.steps(1) == [0, 1]
    rank.module.require_forward_param_sync = True
    assert rank.steps(1) == [0, 1]
    assert not rank.failures


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_whose_bytes_cannot_be_read_are_left_out_and_the_others_are_looked_at() -> None:
    rank, plain = Rank(every=1), Rank(every=1)
    given_back = torch.ones(1000)
    given_back.untyped_storage().resize_(0)
    more: list[Any] = [
        torch.quantize_per_tensor(torch.ones(10), 0.1, 0, torch.quint8),
        torch._neg_view(torch.ones(10)),
        torch.ones(10, device="meta"),
        torch.ones(4, 4).to_sparse(),
        torch.ones(4, dtype=torch.complex64),
        given_back,
    ]
    rank.module._module_parameters += more
    assert rank.steps(1) == plain.steps(1)
    assert rank.written[0].digest == plain.written[0].digest
    assert not rank.failures
