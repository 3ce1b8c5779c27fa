from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from paceline.ring.control import Setting, write_control
from paceline.vocabulary import Flag, Phase, RecordKind
from tests.simulator.gpu import MS
from tests.unit.hooks.device_kit import Rank

GPU_TIME = int(Flag.GPU_TIME)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    rank = Rank(tmp_path)
    rank.sync(MS)  # as DDP does when it is made: from here on the device is known
    rank.host.advance(10 * MS)
    yield rank
    rank.close()


def one_step(rank: Rank, *, host_ms: int = 1, device_ms: int = 10, late_ms: int = 0) -> None:
    """Forward, backward and optimizer of ``device_ms`` each, issued in ``host_ms`` each."""
    clock, host, gpu = rank.clock, rank.host, rank.gpu
    host.advance(late_ms * MS)
    clock.forward_begin(host())
    host.advance(host_ms * MS)
    gpu.work(device_ms * MS)
    clock.forward_return(host(), backward_follows=True)
    clock.backward_begin(host())
    host.advance(host_ms * MS)
    gpu.work(device_ms * MS)
    clock.backward_end(host())
    clock.optimizer_begin(1, host())
    host.advance(host_ms * MS)
    gpu.work(device_ms * MS)
    clock.optimizer_end(host())


def on_device(rank: Rank, kind: RecordKind = RecordKind.PHASE) -> list[tuple[int, int, float]]:
    """Code, step, and whole ms of what was timed on the device."""
    return [
        (record.code, record.step, round((record.end_ns - record.start_ns) / MS))
        for record in rank.records(kind)
        if record.flags & GPU_TIME
    ]


def test_forward_backward_and_optimizer_get_the_time_that_the_device_took(rank: Rank) -> None:
    one_step(rank)
    rank.poll()
    assert on_device(rank) == [
        (Phase.FORWARD, 0, 11),  # the device waited 1 ms for its first kernel
        (Phase.BACKWARD, 0, 10),
        (Phase.OPTIMIZER, 0, 10),
    ]


def test_each_phase_on_the_device_tells_which_phase_of_the_host_it_is(rank: Rank) -> None:
    one_step(rank)
    rank.poll()
    phases = rank.records(RecordKind.PHASE)
    host = {(r.code, r.start_ns) for r in phases if not r.flags}
    device = {(r.code, r.issue_ns) for r in phases if r.flags}
    assert len(host) == 3
    assert host == device


def test_steps_and_phases_on_the_device_follow_each_other_without_overlap(rank: Rank) -> None:
    for _ in range(30):
        one_step(rank)
        rank.poll(33 * MS)
    rank.poll()
    steps = [r for r in rank.records(RecordKind.STEP) if r.flags]
    assert [r.step for r in steps] == list(range(29))  # the last is written with the next
    for before, after in pairwise(steps):
        assert before.end_ns == after.start_ns
    phases = [r for r in rank.records(RecordKind.PHASE) if r.flags]
    for before, after in pairwise(phases):
        assert before.end_ns <= after.start_ns
    for step in steps:
        inside = [r for r in phases if r.step == step.step]
        assert step.start_ns <= inside[0].start_ns
        assert inside[-1].end_ns == step.end_ns


def lag_ns(rank: Rank) -> int:
    """How far the device began the newest forward behind the host."""
    forwards = [r for r in rank.records(RecordKind.PHASE) if r.flags and r.code == Phase.FORWARD]
    return forwards[-1].start_ns - forwards[-1].issue_ns


def test_a_busy_device_lags_and_a_late_host_does_not(rank: Rank) -> None:
    for _ in range(5):
        one_step(rank, host_ms=1, device_ms=10)
    rank.poll(200 * MS)
    assert lag_ns(rank) > 50 * MS
    for _ in range(5):
        one_step(rank, host_ms=20, device_ms=1, late_ms=50)
    rank.poll(200 * MS)
    assert lag_ns(rank) < 50_000


def test_an_iteration_without_optimizer_leaves_its_phases_on_the_device(rank: Rank) -> None:
    clock, host = rank.clock, rank.host
    for _ in range(3):  # gradient accumulation
        clock.forward_begin(host())
        host.advance(MS)
        clock.forward_return(host(), backward_follows=True)
        clock.backward_begin(host())
        host.advance(MS)
        rank.gpu.work(4 * MS)
        clock.backward_end(host())
    rank.poll()
    assert [code for code, _, _ in on_device(rank)] == [Phase.FORWARD, Phase.BACKWARD] * 3


def test_a_job_without_a_device_is_left_alone(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    one_step(rank)
    one_step(rank)
    rank.poll()
    assert rank.gpu.recorded == rank.gpu.queried == 0
    assert rank.info() == {}
    assert on_device(rank) == []
    rank.close()


def test_phases_are_timed_where_the_plugin_times_collectives(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.plugin_active = True
    assert rank.sync(MS).entry.timed is None
    one_step(rank)
    rank.poll()
    assert len(on_device(rank)) == 3
    rank.close()


def test_a_step_whose_boundary_fell_into_a_graph_is_not_on_the_device(rank: Rank) -> None:
    one_step(rank)
    rank.gpu.current.capturing = True
    rank.clock.forward_begin(rank.host())
    rank.host.advance(MS)
    rank.clock.forward_return(rank.host(), backward_follows=False)
    rank.gpu.current.capturing = False
    one_step(rank)
    one_step(rank)
    rank.poll()
    assert [code for code, _, _ in on_device(rank)].count(Phase.FORWARD) == 3
    assert rank.errors() == 0


def test_what_is_open_at_the_end_is_forgotten(rank: Rank) -> None:
    one_step(rank)
    rank.gpu.hang()
    one_step(rank)
    rank.poll()
    rank.recorder.close()
    assert rank.errors() == 0
    assert len(on_device(rank)) == 3


def test_with_a_stride_the_device_tells_every_step_and_the_phases_of_those_kept(
    rank: Rank,
) -> None:
    setting = Setting(generation=1, effective_step=1, level="full", stride=3)
    write_control(rank.writer.path, rank.writer.identity.incarnation, setting)
    for _ in range(8):
        one_step(rank)
        rank.poll()
    steps = [step for _, step, _ in on_device(rank, RecordKind.STEP)]
    assert steps == list(range(7))  # the last one's end is not sure yet
    assert sorted({step for _, step, _ in on_device(rank)}) == [0, 3, 6]


def test_steps_that_the_stride_leaves_out_have_their_bounds_and_no_phases(rank: Rank) -> None:
    rank.recorder.control._stride = 3
    for _ in range(10):
        one_step(rank)
        rank.poll()
    steps = [r for r in rank.records(RecordKind.STEP) if r.flags & GPU_TIME]
    assert [r.step for r in steps] == list(range(9))
    assert [r.step for r in steps if not r.flags & Flag.NO_COLLECTIVES] == [0, 3, 6]
    assert {step for _, step, _ in on_device(rank)} == {0, 3, 6, 9}
    host = [r for r in rank.records(RecordKind.STEP) if not r.flags & GPU_TIME]
    assert [r.flags for r in host] == [r.flags & ~GPU_TIME for r in steps]
