from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from paceline.wire.codec import encode_rows
from paceline.wire.frames import Frame
from paceline_service.access.audit import Actor, entries
from paceline_service.control import service as control_service
from paceline_service.control.pace import (
    DELIVERY_S,
    GATHER_S,
    HEARTBEAT_S,
    MARGIN_STEPS,
    Pace,
)
from paceline_service.control.service import ControlService
from paceline_service.control.settings import Agreement
from paceline_service.control.view import followers, settings_view
from paceline_service.store.database import Database
from paceline_service.store.frames import AttemptRef, CommittedFrame
from paceline_service.store.migrate import migrate
from paceline_service.store.models import Job, JobAttempt

RANKS = 4
S = 1_000_000_000
OPS = Actor(name="ops", address="10.0.0.1")
ATTEMPT = AttemptRef(
    id=1, job="train", ordinal=1, run_id="run", launch_attempt=0, world_size=RANKS,
    first_seen_wall_ns=1,
)  # fmt: skip
NEXT = AttemptRef(
    id=2, job="train", ordinal=2, run_id="run", launch_attempt=1, world_size=RANKS,
    first_seen_wall_ns=2,
)  # fmt: skip


def frame(
    rank: int, step: int, sent_s: float, *, attempt: AttemptRef = ATTEMPT, **values: Any
) -> Frame:
    return Frame(
        **{
            "job": attempt.job, "run_id": attempt.run_id, "attempt": attempt.launch_attempt,
            "rank": rank, "world_size": RANKS, "incarnation": f"{attempt.id:016x}{rank:016x}",
            "frame_seq": int(sent_s * 10), "node": "n", "producer": "hooks", "count": 0,
            "columns": encode_rows([]), "step": step, "sent_wall_ns": int(sent_s * S),
            **values,
        }
    )  # fmt: skip


class Clock:
    """Time that tests set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(control_service.time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def trained(pace: Pace, *, until_s: float, steps_per_s: float, ranks: int = RANKS) -> None:
    """All ranks train at one pace; each sends a heartbeat at its own moment."""
    second = 0.0
    while second <= until_s:
        rank = round(second) % ranks
        pace.note(frame(rank, int(second * steps_per_s), second), second)
        second += 1.0


def test_the_margin_covers_a_heartbeat_at_the_pace_of_the_job() -> None:
    pace = Pace(RANKS, 0.0)
    trained(pace, until_s=30, steps_per_s=20)
    assert pace.margin_steps() == pytest.approx(20 * DELIVERY_S + MARGIN_STEPS, abs=25)
    assert pace.margin_steps() >= 20 * HEARTBEAT_S
    assert pace.newest_step(30.0) == pytest.approx(600, abs=25)
    assert pace.newest_step(32.0) == pytest.approx(640, abs=25)


def test_a_job_of_minute_long_steps_agrees_on_a_step_near_by() -> None:
    pace = Pace(RANKS, 0.0)
    trained(pace, until_s=300, steps_per_s=1 / 60)
    assert pace.margin_steps() <= math.ceil(DELIVERY_S / 4) + MARGIN_STEPS
    assert pace.newest_step(300.0) <= 6


def test_a_pause_of_the_training_does_not_shrink_the_margin_at_once() -> None:
    pace = Pace(RANKS, 0.0)
    trained(pace, until_s=30, steps_per_s=20)
    before = pace.margin_steps()
    for second in range(31, 61):
        pace.note(frame(second % RANKS, 600, second), second)
    assert pace.margin_steps() > 0.8 * before


def test_ranks_that_were_not_heard_of_yet_are_waited_for_but_not_for_ever() -> None:
    pace = Pace(RANKS, 0.0)
    trained(pace, until_s=20, steps_per_s=5, ranks=RANKS - 1)
    assert not pace.is_known(20.0)
    trained(pace, until_s=GATHER_S, steps_per_s=5, ranks=RANKS - 1)
    assert pace.is_known(GATHER_S)


def test_a_rank_that_falls_silent_is_waited_for_as_long_as_its_sidecar_may_pause() -> None:
    pace = Pace(RANKS, 0.0)
    trained(pace, until_s=30, steps_per_s=5)
    assert pace.is_known(30.0)
    for second in range(31, 80):
        pace.note(frame(second % (RANKS - 1), second * 5, second), second)
        silent_s = second - 27
        assert pace.is_known(second) == (silent_s <= DELIVERY_S or silent_s >= GATHER_S), second


def test_a_backlog_that_comes_all_at_once_is_no_fast_job() -> None:
    pace = Pace(1, 0.0)
    for second in range(100):  # sent a second apart, received in one
        pace.note(frame(0, second, float(second)), 100.0 + second / 100)
    assert pace.margin_steps() <= DELIVERY_S + MARGIN_STEPS + 1
    assert pace.newest_step(101.0) == pytest.approx(100, abs=2)


def test_frames_that_were_held_up_tell_of_an_earlier_step_and_answers_are_as_late() -> None:
    pace = Pace(1, 0.0)
    trained(pace, until_s=40, steps_per_s=10, ranks=1)
    assert pace.newest_step(40.0) == 400
    in_time = pace.margin_steps()
    pace.note(frame(0, 410, 41.0), 71.0)  # refused for half a minute
    assert pace.newest_step(71.0) == 710
    assert pace.margin_steps() == in_time + 300
    pace.note(frame(0, 750, 75.0), 75.0)
    assert (pace.newest_step(75.0), pace.margin_steps()) == (750, in_time)


def test_a_wall_clock_that_is_set_back_is_survived() -> None:
    pace = Pace(1, 0.0)
    for second in range(30):
        sent_s = 5000 + second - (3600 if second > 15 else 0)
        pace.note(frame(0, second * 10, sent_s), float(second))
    assert pace.margin_steps() <= 10 * DELIVERY_S + MARGIN_STEPS + 10


def test_a_restarted_rank_counts_from_0_again_and_is_not_taken_for_late() -> None:
    pace = Pace(2, 0.0)
    agreed = Agreement(generation=9, effective_step=50, agreed_wall_ns=1)
    for second in range(10):
        for rank in range(2):
            pace.note(frame(rank, second * 10, second), second)
    pace.note(frame(1, 90, 10, ended="killed"), 10.0)
    pace.note(frame(1, 70, 20, incarnation="f" * 32, control_generation=9, control_step=60), 20.0)
    pace.note(frame(0, 200, 20, control_generation=9, control_step=50), 20.0)
    assert [one.rank for one in pace.ranks()] == [0, 1]
    assert followers(agreed, pace.ranks()).follows == "0-1"


def test_ranks_are_sorted_by_what_they_do_about_a_setting() -> None:
    pace = Pace(RANKS, 0.0)
    agreed = Agreement(generation=9, effective_step=50, agreed_wall_ns=1)
    for rank, (step, generation, applied) in enumerate(
        [(60, 9, 50), (60, 9, 57), (49, 0, 0), (60, 4, 10)]
    ):
        sent = frame(rank, step, 1, control_generation=generation, control_step=applied)
        pace.note(sent, 1.0)
    sorted_ranks = followers(agreed, pace.ranks())
    assert (sorted_ranks.follows, sorted_ranks.waits, sorted_ranks.silent) == ("0", "2", "3")
    assert sorted_ranks.missed == {1: 57}
    assert followers(None, pace.ranks()).follows == ""


class Store:
    """A database with one job and two attempts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> Database:
        database = Database(f"sqlite+aiosqlite:///{self.path}")
        await migrate(database)
        return database

    async def fill(self, database: Database) -> None:
        async with database.write() as connection:
            await connection.execute(insert(Job).values(id=1, name="train", first_seen_wall_ns=1))
            for attempt in (ATTEMPT, NEXT):
                await connection.execute(
                    insert(JobAttempt).values(
                        id=attempt.id, job_id=1, ordinal=attempt.ordinal, run_id="run",
                        launch_attempt=attempt.launch_attempt, world_size=RANKS,
                        first_seen_wall_ns=1, last_seen_wall_ns=1,
                    )
                )  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "control.db")
    database = await store.open()
    await store.fill(database)
    await database.close()
    return store


def committed(one: Frame, attempt: AttemptRef = ATTEMPT) -> CommittedFrame:
    return CommittedFrame(id=1, attempt=attempt, frame=one, received_wall_ns=1, packed_bytes=1)


def run_for(
    control: ControlService,
    clock: Clock,
    seconds: int,
    attempt: AttemptRef = ATTEMPT,
    first_step: int = 0,
) -> int:
    """Ten steps a second on all ranks; return the step that they have come to."""
    step = first_step
    for _ in range(seconds):
        clock.now_s += 1
        step += 10
        for rank in range(RANKS):
            control.note([committed(frame(rank, step, clock.now_s, attempt=attempt), attempt)])
    return step


async def test_a_setting_is_agreed_ahead_of_every_rank_and_told_to_its_launch_only(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    step = run_for(control, clock, 12)
    assert control.told([frame(0, step, 1)]) == []
    await control.change("train", {"level": "collectives", "stride": 5}, OPS)
    (told,) = control.told([frame(0, step, 1), frame(1, step, 1)])
    assert (told.job, told.run_id, told.attempt) == ("train", "run", 0)
    assert (told.level, told.stride) == ("collectives", 5)
    assert step + 10 * HEARTBEAT_S < told.effective_step < step + 10 * 2 * DELIVERY_S
    assert control.told([frame(0, step, 1, attempt=NEXT)]) == []
    assert control.told([frame(0, step, 1, job="other")]) == []
    settings = control.settings("train")
    view = settings_view(ATTEMPT, settings, await control.agreement(1), control.pace(1).ranks())
    assert (view.effective_step, view.ranks.waits, view.updated_by) == (
        told.effective_step, "0-3", "ops",
    )  # fmt: skip
    await database.close()


async def test_a_restarted_collector_tells_the_same_and_does_not_agree_anew(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    run_for(control, clock, 12)
    await control.change("train", {"level": "steps"}, OPS)
    told = control.told([frame(0, 1, 1)])
    await database.close()

    database = await store.open()
    again = ControlService(database)
    await again.start()
    assert again.told([frame(0, 1, 1)]) == told
    run_for(again, clock, 50, first_step=500)
    await again._agree_with_all()
    assert again.told([frame(0, 1, 1)]) == told
    await again.stop()
    await database.close()


async def test_the_next_launch_of_the_job_gets_the_setting_at_a_step_of_its_own(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    run_for(control, clock, 12)
    await control.change("train", {"stride": 10}, OPS)
    step = run_for(control, clock, 3, NEXT)
    await control._agree_with_all()
    assert control.told([frame(0, step, 1, attempt=NEXT)]) == []  # its pace is not known yet
    step = run_for(control, clock, 6, NEXT, first_step=step)
    await control._agree_with_all()
    (told,) = control.told([frame(0, step, 1, attempt=NEXT)])
    assert told.attempt == 1
    assert told.stride == 10
    assert step < told.effective_step < step + 10 * 2 * DELIVERY_S
    await database.close()


async def test_off_keeps_the_level_for_when_it_is_on_again(store: Store, clock: Clock) -> None:
    database = await store.open()
    control = ControlService(database)
    run_for(control, clock, 12)
    await control.change("train", {"level": "collectives", "enabled": False}, OPS)
    assert control.told([frame(0, 1, 1)])[0].level == "off"
    await control.change("train", {"enabled": True}, OPS)
    assert control.told([frame(0, 1, 1)])[0].level == "collectives"
    await database.close()


async def test_the_pace_of_telemetry_changes_at_once_and_asks_no_rank_for_anything(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    run_for(control, clock, 12)
    await control.change("train", {"level": "full"}, OPS)
    (before,) = control.told([frame(0, 1, 1)])
    await control.change("train", {"telemetry_interval_s": 0.1}, OPS)
    (after,) = control.told([frame(0, 1, 1)])
    assert (before.telemetry_interval_s, after.telemetry_interval_s) == (None, 0.1)
    assert (before.generation, before.effective_step) == (after.generation, after.effective_step)
    await control.change("train", {"telemetry_interval_s": None}, OPS)
    assert control.told([frame(0, 1, 1)]) == [before]
    await database.close()


async def test_a_change_is_audited_with_what_it_changed_and_nothing_else(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    await control.change("train", {"level": "steps", "stride": 1}, OPS)
    await control.change("train", {"enabled": False}, OPS)
    async with database.read() as connection:
        rows = await entries(connection, before_id=None, limit=10)
    assert [(row.actor, row.address, row.target) for row in rows] == [
        ("ops", "10.0.0.1", "job train")
    ] * 2
    assert [(row.action, row.old, row.new) for row in reversed(rows)] == [
        ("settings.change", '{"level":"full"}', '{"level":"steps"}'),
        ("settings.change", '{"enabled":true}', '{"enabled":false}'),
    ]
    await database.close()


async def test_a_change_that_some_ranks_may_have_made_already_is_not_replaced_half_way(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    step = run_for(control, clock, 12)
    await control.change("train", {"level": "off"}, OPS)
    (first,) = control.told([frame(0, 1, 1)])
    await control.change("train", {"level": "steps"}, OPS)  # nobody can have come to it yet
    (second,) = control.told([frame(0, 1, 1)])
    assert second.level == "steps"
    assert second.effective_step == first.effective_step
    step = run_for(control, clock, (first.effective_step - step) // 10, first_step=step)
    await control.change("train", {"level": "full"}, OPS)
    assert control.told([frame(0, 1, 1)]) == [second]
    step = run_for(control, clock, 3, first_step=step)
    await control._agree_with_all()
    (third,) = control.told([frame(0, 1, 1)])
    assert third.level == "full"
    assert third.effective_step > step
    assert third.generation > second.generation > first.generation
    await database.close()


async def test_an_attempt_that_fell_silent_and_comes_back_keeps_what_was_agreed(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    run_for(control, clock, 12)
    await control.change("train", {"stride": 2}, OPS)
    told = control.told([frame(0, 1, 1)])
    clock.now_s += 1000
    control.forget_unused(600)
    assert control.told([frame(0, 1, 1)]) == []
    run_for(control, clock, 12, first_step=5000)
    await control._agree_with_all()
    assert control.told([frame(0, 1, 1)]) == told
    await database.close()
