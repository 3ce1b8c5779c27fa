"""A stride that the collector asks for goes the way of one that somebody asks for."""

from __future__ import annotations

from paceline_service.access.audit import entries
from paceline_service.control.relief_watch import CHECK_S, ReliefWatch
from paceline_service.control.service import ControlService
from paceline_service.control.view import settings_view
from tests.unit.service.test_control import (
    ATTEMPT,
    OPS,
    RANKS,
    Clock,
    Store,
    clock,
    committed,
    frame,
    run_for,
    store,
)

__all__ = ["clock", "store"]


def tell_level(control: ControlService, *levels: str) -> None:
    for rank in range(RANKS):
        info = {"level": levels[rank % len(levels)]}
        control.note([committed(frame(rank, 0, 0, info=info))])


async def test_the_level_stays_that_of_the_launch_and_a_restart_tells_the_same(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    notes: list[str] = []
    control.on_note = lambda _attempt, text: notes.append(text)
    tell_level(control, "collectives")
    step = run_for(control, clock, 12)
    assert control.can_relieve("train")
    assert await control.relieve("train", 4)
    (told,) = control.told([frame(0, step, 1)])
    assert (told.level, told.stride) == ("collectives", 4)
    assert told.effective_step > step
    assert f"from step {told.effective_step} on" in notes[0]
    assert "one step in 4" in notes[0]
    view = settings_view(ATTEMPT, control.settings("train"), await control.agreement(1), ())
    assert (view.level, view.stride, view.relief_stride) == (None, 1, 4)
    await database.close()

    database = await store.open()
    again = ControlService(database)
    await again.start()
    assert again.told([frame(0, step, 1)]) == [told]
    assert again.relieved() == {"train": 4}
    async with database.read() as connection:
        (row,) = await entries(connection, before_id=None, limit=10)
    assert (row.action, row.new) == ("settings.relief", '{"relief_stride":4}')
    await again.stop()
    await database.close()


async def test_the_larger_stride_holds_and_what_somebody_asked_for_is_left_when_it_ends(
    store: Store, clock: Clock
) -> None:
    database = await store.open()
    control = ControlService(database)
    step = run_for(control, clock, 12)
    await control.change("train", {"level": "steps", "stride": 3}, OPS)
    step = run_for(control, clock, 60, first_step=step)
    await control.relieve("train", 2)
    assert control.told([frame(0, step, 1)])[0].stride == 3
    await control.relieve("train", 8)
    assert control.told([frame(0, step, 1)])[0].stride == 8
    step = run_for(control, clock, 60, first_step=step)
    await control.relieve("train", 1)
    (told,) = control.told([frame(0, step, 1)])
    assert (told.level, told.stride) == ("steps", 3)
    await database.close()


async def test_ranks_that_do_not_tell_one_level_are_left_alone(store: Store, clock: Clock) -> None:
    database = await store.open()
    control = ControlService(database)
    step = run_for(control, clock, 12)
    assert not control.can_relieve("train")
    tell_level(control, "full", "steps")
    assert not control.can_relieve("train")
    assert control.told([frame(0, step, 1)]) == []
    await database.close()


async def test_a_job_is_asked_while_the_collector_is_strained(store: Store, clock: Clock) -> None:
    database = await store.open()
    control = ControlService(database)
    tell_level(control, "full")
    run_for(control, clock, 12)
    load = (0.9, 0, 30.0)
    watch = ReliefWatch(control, lambda: load, max_stride=64)
    for number in range(20):
        await watch.check(clock.now_s + number * CHECK_S)
    assert control.relieved() == {"train": 2}
    assert watch.changes == {"up": 1}
    off = ReliefWatch(control, lambda: load, max_stride=1)
    await off.check(clock.now_s)
    assert control.relieved() == {}
    await database.close()
