"""Checkpoints in both databases: the one that counts is always whole, and goes with its steps."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from paceline_service.analysis.job import JobAnalysis
from paceline_service.jobs import checkpoint_store, details_store, persist
from paceline_service.jobs.checkpoint_codec import fingerprint, pack, unpack
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.persist import Persister
from paceline_service.jobs.snapshot import Captured, Update
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.models import (
    Checkpoint,
    CheckpointPart,
    Job,
    JobAttempt,
    Lane,
    RankWindow,
    StepSummary,
)
from tests.simulator.job import Phase, Scenario, simulate
from tests.unit.service.checkpointed import (
    OPTIONS,
    START_NS,
    S,
    attempt_of,
    committed,
    frames_of,
    fresh,
)

ATTEMPT = attempt_of(4)
FRAMES = 80


@pytest.fixture
async def database(empty: Database) -> Database:
    await migrate(empty)
    async with empty.write() as connection:
        await connection.execute(insert(Job).values(id=1, name="train", first_seen_wall_ns=1))
        await connection.execute(
            insert(JobAttempt).values(
                id=ATTEMPT.id, job_id=1, ordinal=1, run_id="run-1", launch_attempt=0,
                world_size=4, first_seen_wall_ns=START_NS, last_seen_wall_ns=START_NS,
                last_frame_id=FRAMES,
            )
        )  # fmt: skip
    return empty


def captured(raw: bytes, frame_id: int = FRAMES, made_wall_ns: int = START_NS) -> Captured:
    return Captured(
        attempt_id=ATTEMPT.id, frame_id=frame_id, body=raw, packed=False,
        made_wall_ns=made_wall_ns,
    )  # fmt: skip


async def write(database: Database, one: Captured) -> None:
    staged = await checkpoint_store.stage(database, one, pack(one.body))
    async with database.write() as connection:
        await checkpoint_store.name(connection, staged)


async def count(database: Database, column: Any) -> int:
    async with database.read() as connection:
        return int((await connection.execute(select(func.count(column)))).scalar_one())


async def kept(database: Database) -> bytes:
    async with database.read() as connection:
        stored = await checkpoint_store.read(connection, ATTEMPT.id)
    assert stored is not None
    assert (stored.fingerprint, stored.newest_frame_id) == (fingerprint(), FRAMES)
    return unpack(stored.body, stored.sha256)


async def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_store, "PART_BYTES", 7)
    first, second, third = (bytes([n]) * 100 + bytes(range(200)) for n in range(3))
    await write(database, captured(first))
    await checkpoint_store.stage(database, captured(second), pack(second))  # and no more
    assert await kept(database) == first
    await write(database, captured(third))
    assert await kept(database) == third
    assert await count(database, CheckpointPart.part) == -(-len(pack(third)) // 7)
    async with database.write() as connection:
        await checkpoint_store.forget(connection, ATTEMPT.id)
    assert await count(database, CheckpointPart.part) == 0
    async with database.read() as connection:
        assert await checkpoint_store.read(connection, ATTEMPT.id) is None


async def test_checkpoints_of_attempts_that_never_end_are_deleted_after_days(
    database: Database,
) -> None:
    await write(database, captured(b"old"))
    async with database.write() as connection:
        assert await checkpoint_store.forget_old(connection, START_NS) == 0
    assert await kept(database) == b"old"
    await checkpoint_store.stage(database, captured(b"cut short"), b"cut short")
    async with database.write() as connection:
        assert await checkpoint_store.forget_old(connection, START_NS + 1) == 1
    assert await count(database, CheckpointPart.part) == 0
    await checkpoint_store.stage(database, captured(b"cut short"), b"cut short")
    async with database.write() as connection:
        assert await checkpoint_store.forget_old(connection, START_NS + 1) == 0
    assert await count(database, CheckpointPart.part) == 0


async def test_a_clock_that_is_ten_years_ahead_deletes_no_checkpoint(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def on_snapshot(*_: object) -> None:
        pass

    await write(database, captured(b"new", made_wall_ns=time.time_ns()))
    persister = Persister(database, on_snapshot)
    ahead_ns = time.time_ns() + 10 * 365 * 86_400 * S
    monkeypatch.setattr(time, "time_ns", lambda: ahead_ns)
    monkeypatch.setattr(persister._clock, "_wall_ns", time.time_ns)
    await persister._tidy()
    assert await kept(database) == b"new"


def an_update() -> Update:
    """Return what a short job publishes, with a checkpoint."""
    live = fresh(4)
    items = committed(frames_of(simulate(Scenario(steps=40, seed=5)), end=False), 4)
    for item in items[:FRAMES]:
        live.push(item, 1.0)
    made = live.tick(2.0, items[-1].received_wall_ns)
    assert made is not None
    return replace(made, checkpoint=captured(live.dump()))


async def test_a_checkpoint_is_stored_with_the_steps_up_to_it_or_not_at_all(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = True

    async def on_snapshot(*_: object) -> None:
        if fails:
            raise OSError("no room")

    made = an_update()
    assert made.checkpoint is not None
    persister = Persister(database, on_snapshot)
    persister.put(made)
    await persister.flush()
    assert persister.failures == 1
    assert await count(database, Checkpoint.attempt_id) == 0
    assert await count(database, StepSummary.step) == 0
    fails = False
    persister.put(replace(made, steps=()))
    await persister.flush()
    assert await kept(database) == made.checkpoint.body
    assert await count(database, StepSummary.step) == len(made.steps) == 39

    monkeypatch.setattr(persist, "MAX_PENDING_STEPS", 5)  # the database is away for long
    later = captured(b"behind steps that were given up")
    persister.put(replace(made, checkpoint=later))
    await persister.flush()
    assert persister.steps_given_up == 34
    assert await kept(database) == made.checkpoint.body

    ended = replace(made.snapshot, state="ended")
    persister.put(Update(snapshot=ended, steps=(), changed=False, checkpoint=later))
    await persister.flush()
    assert await count(database, Checkpoint.attempt_id) == 0
    assert await count(database, CheckpointPart.part) == 0


async def test_checkpoints_that_cannot_be_named_do_not_fill_the_disk(database: Database) -> None:
    async def on_snapshot(*_: object) -> None:
        raise OSError("no room")

    made = an_update()
    persister = Persister(database, on_snapshot)
    for _ in range(3):
        persister.put(made)
        await persister.flush()
    assert persister.failures == 3
    assert await count(database, CheckpointPart.part) == 1


async def test_what_another_version_wrote_is_not_even_read(database: Database) -> None:
    await write(database, captured(b"state"))
    async with database.write() as connection:
        await connection.execute(update(Checkpoint).values(fingerprint="f" * 64))
    async with database.read() as connection:
        stored = await checkpoint_store.read(connection, ATTEMPT.id)
    assert stored is not None
    assert (stored.fingerprint, stored.body) == ("f" * 64, b"")


def drawn(world_size: int) -> JobAnalysis:
    return JobAnalysis(world_size, replace(OPTIONS, details=True))


async def test_lanes_and_windows_behind_a_checkpoint_are_stored_once_after_a_kill(
    database: Database,
) -> None:
    slow_steps = Scenario(steps=100, seed=5, phase_ms=dict.fromkeys(Phase, 80.0))
    items = committed(frames_of(simulate(slow_steps), end=False), 4)
    at_checkpoint, at_kill = 80, 150  # frames; the second window, steps 25 to 49, is open at 80

    async def go_on(live: LiveAttempt, first: int, last: int) -> None:
        for item in items[first:last]:
            live.push(item, 1.0)
        made = live.tick(2.0, items[last - 1].received_wall_ns)
        assert made is not None
        async with database.write() as connection:
            await details_store.save(connection, ATTEMPT.id, made.details)

    async def stored() -> list[list[tuple[Any, ...]]]:
        queries = (
            select(Lane.start_wall_ns, Lane.rank, Lane.end_wall_ns, Lane.step, Lane.kind),
            select(RankWindow.rank, RankWindow.first_step, RankWindow.last_step, RankWindow.steps),
        )
        async with database.read() as connection:
            told = [(await connection.execute(query)).all() for query in queries]
        return [sorted(tuple(row) for row in rows) for rows in told]

    live = fresh(4, drawn)
    await go_on(live, 0, at_checkpoint)
    kept = live.dump()
    await go_on(live, at_checkpoint, at_kill)
    behind = await stored()
    again = fresh(4, drawn)
    again.restore(kept, at_checkpoint)
    await go_on(again, at_checkpoint, at_kill)
    assert await stored() == behind
    lanes, windows = behind
    assert max(step for *_, step, _ in lanes) > 60
    assert [row[1:3] for row in windows if row[0] == 3] == [(0, 24), (25, 49)]
