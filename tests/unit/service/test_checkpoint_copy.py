"""A copy of the process writes a checkpoint while the analysis goes on."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from typing import Any

import pytest

from paceline_service.jobs import checkpoint, checkpoint_copy
from paceline_service.jobs.checkpoint import Checkpointer
from paceline_service.jobs.checkpoint_codec import CheckpointError, unpack
from paceline_service.jobs.checkpoint_copy import CAN_COPY, WritingCopy, Written
from paceline_service.jobs.engine import Engine
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Captured
from paceline_service.jobs.source import FrameSource
from paceline_service.settings import CollectorSettings
from paceline_service.store.frames import CommittedFrame
from tests.simulator.job import Scenario, simulate
from tests.unit.service.checkpointed import committed, frames_of, fresh

pytestmark = [
    pytest.mark.skipif(not CAN_COPY, reason="needs fork and memfd_create, which are Linux's"),
    # From Python 3.12 on: what such a fork must not do is said in checkpoint_copy.py.
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def sleeps() -> bytes:
    time.sleep(600)
    return b""


def written_by(copy: WritingCopy) -> Written:
    until_s = time.monotonic() + 60
    while (written := copy.poll()) is None:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return written


def fed(frames: list[CommittedFrame], live: LiveAttempt) -> LiveAttempt:
    for item in frames:
        live.push(item, 1.0)
    live.tick(2.0, frames[-1].received_wall_ns)
    return live


def report_of(live: LiveAttempt) -> object:
    update = live._publish("running", 3.0)
    return update.snapshot.report


def captured_by(maker: Checkpointer, live: LiveAttempt) -> Captured:
    until_s = time.perf_counter() + 60
    while (captured := maker.capture(live)) is None:
        assert time.perf_counter() < until_s
        time.sleep(0.01)
    return captured


@pytest.fixture(scope="module")
def frames() -> list[CommittedFrame]:
    return committed(frames_of(simulate(Scenario(steps=60, seed=5)), end=False), 4)


def test_what_it_writes_is_of_the_moment_at_which_it_began(frames: list[CommittedFrame]) -> None:
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    maker.soon(7)
    assert maker.capture(live) is None  # it is being written
    fed(frames[40:], live)
    captured = captured_by(maker, live)
    assert captured.packed
    assert captured.frame_id == 40
    assert maker.stats.made == 1
    assert maker.stats.seconds > 0
    again = fresh(4)
    again.restore(unpack(captured.body, hashlib.sha256(captured.body).hexdigest()), 40)
    again.tick(2.0, frames[39].received_wall_ns)
    assert report_of(fed(frames[40:], again)) == report_of(live)


def test_a_stop_does_not_wait_for_it_and_writes_what_is_newest(
    frames: list[CommittedFrame],
) -> None:
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    maker.soon(7)
    assert maker.capture(live) is None
    assert maker._underway is not None
    child = maker._underway.copy._pid
    fed(frames[40:], live)
    captured = maker.capture(live, stopping=True)
    assert captured is not None
    assert captured.frame_id == frames[-1].id
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_stop_that_finds_one_half_written_writes_it_although_nothing_came_since(
    frames: list[CommittedFrame],
) -> None:
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    maker.soon(7)
    assert maker.capture(live) is None
    captured = maker.capture(live, stopping=True)
    assert captured is not None
    assert captured.frame_id == 40


def test_a_copy_that_was_killed_is_tried_again_later_each_time(
    frames: list[CommittedFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    maker.soon(7)
    for failures, wait_s in ((1, 120), (2, 240)):
        assert maker.capture(live) is None
        assert maker._underway is not None
        os.kill(maker._underway.copy._pid, 9)
        while maker.stats.failures < failures:
            assert maker.capture(live) is None
        now[0] += wait_s - 1
        assert maker.capture(live) is None
        assert maker._underway is None
        now[0] += 2
    assert captured_by(maker, live).frame_id == 40


def test_an_attempt_that_leaves_memory_takes_its_copy_with_it(
    frames: list[CommittedFrame],
) -> None:
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    maker.soon(7)
    assert maker.capture(live) is None
    assert maker._underway is not None
    child = maker._underway.copy._pid
    maker.forget(7)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_an_analysis_that_fails_leaves_the_copy_to_others(frames: list[CommittedFrame]) -> None:
    async def nothing(*_: object) -> Any:
        return None

    source = FrameSource(page=nothing, missing=nothing)
    engine = Engine(CollectorSettings(), source, lambda _: None, lambda _: None,
                    checkpoints_in_copy=True)  # fmt: skip
    live = fed(frames[:40], fresh(4))
    engine._attempts[7] = live
    engine.checkpoints.soon(7)
    assert engine.checkpoints.capture(live) is None
    assert engine.checkpoints._underway is not None
    engine._fail(live.attempt, live, ValueError("an error of its own"))
    assert engine.checkpoints._underway is None


def test_an_analysis_that_cannot_be_written_down_is_told_once_and_goes_on(
    frames: list[CommittedFrame],
) -> None:
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    live._analysis.hidden = lambda: 1  # type: ignore[attr-defined]
    maker.soon(7)
    until_s = time.monotonic() + 60
    while not maker.stats.failures:
        assert maker.capture(live) is None
        assert time.monotonic() < until_s
    fed(frames[40:], live)
    assert maker.capture(live) is None
    assert maker.stats.failures == 1


def test_the_reason_is_that_of_the_copy() -> None:
    def dump() -> bytes:
        raise CheckpointError("there is a lambda in it")

    with pytest.raises(CheckpointError, match="there is a lambda in it"):
        written_by(WritingCopy(dump))


def test_a_copy_that_dies_is_no_checkpoint() -> None:
    def dump() -> bytes:
        os.kill(os.getpid(), 9)
        raise AssertionError

    with pytest.raises(CheckpointError, match="status -9"):
        written_by(WritingCopy(dump))


def test_a_copy_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_copy, "PATIENCE_S", 0.2)

    with pytest.raises(CheckpointError, match="not written within"):
        written_by(WritingCopy(sleeps))


def test_a_copy_that_nobody_looks_after_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_copy, "PATIENCE_S", 0.2)

    copy = WritingCopy(sleeps)
    os.waitpid(copy._pid, 0)
    os.close(copy._file)


def test_who_waits_for_the_end_of_a_connection_does_not_wait_for_the_copy() -> None:
    ours, theirs = socket.socketpair()

    copy = WritingCopy(sleeps)
    theirs.close()
    ours.settimeout(60)
    assert ours.recv(1) == b""
    copy.kill()
    ours.close()


def test_threads_that_work_at_the_same_time_do_not_stop_it() -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            bytes(1 << 16).hex()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert written_by(WritingCopy(lambda: bytes(1 << 20))).raw_bytes == 1 << 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_where_no_process_can_be_started_the_next_occasion_tries_again(
    frames: list[CommittedFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    maker = Checkpointer(60.0, in_copy=True)
    live = fed(frames[:40], fresh(4))
    maker.soon(7)

    def fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", fork)
        assert maker.capture(live) is None
    assert maker.stats.failures == 1
    fed(frames[40:44], live)
    now[0] += 61
    assert captured_by(maker, live).frame_id == 44
