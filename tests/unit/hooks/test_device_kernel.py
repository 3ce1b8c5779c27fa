"""The Python kernel on a tensor of a device that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.clock import mono_ns
from paceline.hooks.collectives import CollectiveHooks
from paceline.hooks.device_start import PluginWatch, _told_wait
from paceline.hooks.groups import GroupState
from paceline.hooks.operators import operator
from paceline.vocabulary import Flag, Op
from tests.simulator.gpu import MS
from tests.unit.hooks.device_kit import Rank

NEWER = ["tensors", "process_group", "reduce_op", "sparse_indices", "async_op", "timeout"]
OLDER = ["tensors", "process_group", "reduce_op", "sparse_indices", "timeout"]


class Group:
    """Stands for torch's process group."""


class DeviceTensor:
    """What the kernel asks of a tensor."""

    is_cpu = is_meta = False
    is_cuda = True
    nbytes = 4096

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return 0xD0


class Works:
    """What torch returns for a Work: boxed, or a box with nothing in it."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.boxed: Any = None

    def all_reduce(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        rank = self.rank
        stream = rank.nccl if self.boxed is not None else rank.gpu.current
        rank.host.advance(2_000)
        rank.gpu.wait_for(rank.gpu.current, stream)
        rank.gpu.work(5 * MS, stream)
        return ([DeviceTensor()], "a box" if self.boxed is None else self.boxed)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    rank = Rank(tmp_path, now_ns=mono_ns())  # which the kernel reads itself
    yield rank
    rank.close()


@pytest.fixture
def works(rank: Rank) -> Works:
    return Works(rank)


def kernel(rank: Rank, works: Works, arguments: list[str]) -> Any:
    c10d = SimpleNamespace(
        ProcessGroup=SimpleNamespace(unbox=lambda box: box),
        Work=SimpleNamespace(unbox=lambda box: works.boxed),
    )
    group = Group()
    state = GroupState(group, 0, (0, 1), 0)
    rank.recorder.groups.get = lambda pg: state  # type: ignore[method-assign]
    hooks = CollectiveHooks(torch, c10d, rank.recorder)
    spec = operator("allreduce_", arguments)
    assert spec is not None
    serving = hooks._serving(spec, hooks._issued())
    call = hooks._kernel(spec, works.all_reduce, [serving])

    def issue(*rest: Any) -> Any:
        return call(hooks._mask, [DeviceTensor()], group, None, None, *rest)

    return issue


def test_a_call_without_a_work_is_timed_to_its_end(rank: Rank, works: Works) -> None:
    kernel(rank, works, NEWER)(False, -1)
    rank.poll()
    record = rank.only()
    assert (record.code, record.payload_bytes) == (Op.ALL_REDUCE, 4096)
    assert record.flags == Flag.GPU_TIME
    assert record.end_ns - record.start_ns == pytest.approx(5 * MS, abs=10_000)


def test_an_asynchronous_call_keeps_nothing_of_its_work(rank: Rank, works: Works) -> None:
    works.boxed = object()
    kernel(rank, works, NEWER)()  # the dispatcher drops arguments that have their default
    rank.poll(2_000 * MS)
    assert len(rank.recorder.pending) == 0
    works.boxed = None
    kernel(rank, works, NEWER)(False, -1)
    rank.poll()
    flags = [record.flags for record in rank.records()]
    assert flags == [Flag.GPU_TIME | Flag.ASYNC, Flag.GPU_TIME]


def test_a_call_of_older_torch_ends_with_the_wait_of_torchs_own_function(
    rank: Rank, works: Works
) -> None:
    works.boxed = object()
    kernel(rank, works, OLDER)(-1)
    namespace: dict[str, Any] = {"__name__": "torch.distributed.distributed_c10d"}
    exec("def all_reduce(work): return wait(work)", namespace)
    namespace["wait"] = _told_wait(lambda work: rank.wait(), rank.device, rank.recorder)
    namespace["all_reduce"](works.boxed)
    rank.poll()
    record = rank.only()
    assert record.flags == Flag.GPU_TIME
    assert record.end_ns - record.start_ns == pytest.approx(5 * MS, abs=10_000)


def test_a_call_that_raises_is_written_at_once(rank: Rank, works: Works) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the peer has gone")

    works.all_reduce = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the peer"):
        kernel(rank, works, NEWER)(False, -1)
    record = rank.only()
    assert record.flags == Flag.FAILED
    assert rank.inflight() == []
    rank.poll()
    assert len(rank.records()) == 1


def test_without_timers_a_device_call_tells_when_it_returned(rank: Rank, works: Works) -> None:
    rank.recorder.device = None
    kernel(rank, works, NEWER)(False, -1)
    record = rank.only()
    assert record.flags == Flag.HOST_RETURN
    assert record.end_ns >= record.start_ns


def test_a_plugin_that_cannot_be_asked_counts_as_none() -> None:
    def broken() -> Any:
        raise OSError("wrong ELF class")

    assert not PluginWatch(broken)()


def test_a_plugin_counts_once_a_communicator_is_its() -> None:
    library = SimpleNamespace(paceline_active=lambda: 0, paceline_times_kernels=lambda: 1)
    watch = PluginWatch(lambda: library)
    assert not watch()
    library.paceline_active = lambda: 2
    assert watch()


def test_a_plugin_that_does_not_see_kernels_leaves_them_to_the_timers() -> None:
    watch = PluginWatch(
        lambda: SimpleNamespace(paceline_active=lambda: 1, paceline_times_kernels=lambda: 0)
    )
    assert not watch()
