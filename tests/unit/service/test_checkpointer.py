"""When an attempt is written down, and what becomes of a checkpoint that is of no use."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from paceline_service.analysis.job import JobAnalysis
from paceline_service.jobs import checkpoint
from paceline_service.jobs.checkpoint import Checkpointer, Stored
from paceline_service.jobs.checkpoint_codec import fingerprint, pack
from paceline_service.jobs.engine import Engine
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Captured, Update
from paceline_service.jobs.source import FrameSource
from paceline_service.settings import CollectorSettings
from paceline_service.store.frames import AttemptRef, CommittedFrame
from tests.simulator.job import Scenario, simulate
from tests.unit.service.checkpointed import attempt_of, committed, frames_of, fresh


@pytest.fixture(scope="module")
def frames() -> list[CommittedFrame]:
    return committed(frames_of(simulate(Scenario(steps=60, seed=5)), end=False), 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that checkpoints are due by."""
    now = [1000.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    return now


def fed(frames: list[CommittedFrame], live: LiveAttempt | None = None) -> LiveAttempt:
    live = live or fresh(4)
    for item in frames:
        live.push(item, 1.0)
    live.tick(2.0, frames[-1].received_wall_ns)
    return live


def test_an_attempt_is_written_down_at_times_and_only_when_something_came(
    frames: list[CommittedFrame], clock: list[float]
) -> None:
    maker = Checkpointer(60.0)
    live = fed(frames[:40])
    assert maker.capture(live) is None
    clock[0] += 61
    first = maker.capture(live)
    assert first is not None
    assert first.frame_id == 40
    clock[0] += 1000
    assert maker.capture(live) is None
    fed(frames[40:44], live)
    assert maker.capture(live) is not None
    fed(frames[44:48], live)
    assert maker.capture(live) is None
    assert maker.capture(live, stopping=True) is not None
    assert maker.stats.made == 3
    live.finished = True
    fed(frames[48:52], live)
    assert maker.capture(live, stopping=True) is None


def test_what_takes_long_to_write_down_is_written_down_less_often(
    frames: list[CommittedFrame], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_s = iter(range(0, 100, 3))
    monkeypatch.setattr(checkpoint.time, "thread_time", lambda: next(cpu_s))
    maker = Checkpointer(60.0)
    live = fed(frames[:40])
    maker.soon(7)
    assert maker.capture(live) is not None
    fed(frames[40:44], live)
    clock[0] += 149  # 3 s are 2 % of 150 s
    assert maker.capture(live) is None
    clock[0] += 2
    assert maker.capture(live) is not None


def test_an_analysis_that_cannot_be_written_down_is_told_once_and_goes_on(
    frames: list[CommittedFrame], clock: list[float]
) -> None:
    maker = Checkpointer(60.0)
    live = fed(frames[:40])
    live._analysis.hidden = lambda: 1  # type: ignore[attr-defined]
    maker.soon(7)
    assert maker.capture(live) is None
    maker.soon(8)
    clock[0] += 1000
    fed(frames[40:44], live)
    assert maker.capture(live) is None
    assert maker.stats.failures == 1


@dataclass
class Source:
    """What the store holds, and what was read of it."""

    frames: list[CommittedFrame]
    stored: Stored | None
    pages_from: list[int] = field(default_factory=list)

    def frame_source(self) -> FrameSource:
        async def page(_: AttemptRef, after_id: int) -> list[CommittedFrame]:
            self.pages_from.append(after_id)
            return [item for item in self.frames if item.id > after_id][:50]

        async def missing(_: AttemptRef) -> dict[str, tuple[tuple[int, int], ...]]:
            return {}

        async def stored(_: AttemptRef) -> Stored | None:
            return self.stored

        return FrameSource(page=page, missing=missing, checkpoint=stored)


def stored_of(raw: bytes, frame_id: int) -> Stored:
    body = pack(raw)
    return Stored(
        frame_id=frame_id, newest_frame_id=1000, fingerprint=fingerprint(),
        sha256=hashlib.sha256(body).hexdigest(), body=body,
    )  # fmt: skip


async def loaded(source: Source) -> tuple[Engine, list[Update]]:
    """Load the attempt as a start does, and stop."""
    updates: list[Update] = []
    engine = Engine(
        CollectorSettings(hang_floor_s=2.0), source.frame_source(), updates.append,
        lambda _: None,
    )  # fmt: skip
    engine.start()
    await asyncio.wait_for(engine.load(attempt_of(4)), 60)
    await engine.stop()
    return engine, updates


def told(updates: list[Update]) -> Any:
    return updates[-1].snapshot.report, updates[-1].snapshot.ranks


async def test_a_start_replays_only_what_came_after_the_checkpoint(
    frames: list[CommittedFrame],
) -> None:
    _, whole = await loaded(Source(frames, None))
    # The engine's own analysis is made with the options of the collector.
    captured = next(one.checkpoint for one in whole if one.checkpoint is not None)
    assert isinstance(captured, Captured)
    assert captured.frame_id == frames[-1].id
    source = Source(frames, stored_of(captured.body, captured.frame_id))
    engine, again = await loaded(source)
    assert told(again) == told(whole)
    assert source.pages_from == [frames[-1].id]
    assert (engine.checkpoints.stats.used, engine.checkpoints.stats.refused) == (1, 0)


async def test_a_checkpoint_that_fails_in_the_replay_is_left_for_the_frames(
    frames: list[CommittedFrame],
) -> None:
    _, whole = await loaded(Source(frames, None))
    _, half = await loaded(Source(frames[:100], None))
    captured = next(one.checkpoint for one in half if one.checkpoint is not None)
    assert captured is not None
    live = LiveAttempt(attempt_of(4), JobAnalysis(4), reorder_wait_ns=1, recent_bytes=1 << 20)
    live.restore(captured.body, captured.frame_id)
    live._analysis._tracker = None  # type: ignore[assignment]
    source = Source(frames, stored_of(live.dump(), captured.frame_id))
    engine, again = await loaded(source)
    assert told(again) == told(whole)
    assert source.pages_from[0] == 100
    assert 0 in source.pages_from
    assert engine.checkpoints.stats.refused == 1


async def test_a_stop_does_not_wait_until_a_long_job_is_replayed(
    frames: list[CommittedFrame],
) -> None:
    pages = 0

    async def page(_: AttemptRef, after_id: int) -> list[CommittedFrame]:
        nonlocal pages
        pages += 1
        return [msgspec.structs.replace(frames[0], id=after_id + 1)]  # for ever

    async def missing(_: AttemptRef) -> dict[str, tuple[tuple[int, int], ...]]:
        return {}

    engine = Engine(
        CollectorSettings(), FrameSource(page=page, missing=missing), lambda _: None, lambda _: None
    )
    engine.start()
    loading = asyncio.create_task(engine.load(attempt_of(4)))
    while pages < 3:
        await asyncio.sleep(0.01)
    engine.put(frames[1:40])  # of the same job
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(0)
    begun = pages
    await asyncio.wait_for(stopping, 60)
    await asyncio.wait_for(loading, 60)
    assert pages <= begun + 2  # none of those frames began it once more


async def test_a_checkpoint_made_with_other_settings_is_not_used(
    frames: list[CommittedFrame],
) -> None:
    _, whole = await loaded(Source(frames, None))
    other = fed(frames[:100])  # with a hang floor of its own
    source = Source(frames, stored_of(other.dump(), 100))
    engine, again = await loaded(source)
    assert told(again) == told(whole)
    assert source.pages_from[0] == 0
    assert engine.checkpoints.stats.refused == 1
