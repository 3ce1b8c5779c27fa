"""What one job's data do not allow to be written does not keep the others' from being written."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import func, insert, select

from paceline_service.jobs.persist import Persister
from paceline_service.jobs.snapshot import Update
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.models import Job, JobAttempt, StepSummary
from tests.integration.store.test_checkpoint_store import an_update
from tests.unit.service.checkpointed import START_NS


async def test_an_attempt_whose_numbers_fit_no_column_leaves_the_others_alone(
    empty: Database,
) -> None:
    await migrate(empty)
    good = an_update()
    first = good.snapshot.attempt
    second = replace(first, id=first.id + 1, job="hostile")
    async with empty.write() as connection:
        for number, attempt in enumerate((first, second), 1):
            await connection.execute(
                insert(Job).values(id=number, name=attempt.job, first_seen_wall_ns=1)
            )
            await connection.execute(
                insert(JobAttempt).values(
                    id=attempt.id, job_id=number, ordinal=1, run_id="r", launch_attempt=0,
                    world_size=4, first_seen_wall_ns=START_NS, last_seen_wall_ns=START_NS,
                    last_frame_id=1,
                )
            )  # fmt: skip

    async def on_snapshot(*_: object) -> None:
        pass

    persister = Persister(empty, on_snapshot)
    bad_steps = tuple(replace(step, start_wall_ns=1 << 63) for step in good.steps)
    assert bad_steps
    bad = Update(snapshot=replace(good.snapshot, attempt=second), steps=bad_steps, changed=False)
    persister.put(bad)
    persister.put(good)
    await persister.flush()
    assert persister.failures
    async with empty.read() as connection:
        query = select(StepSummary.attempt_id, func.count()).group_by(StepSummary.attempt_id)
        stored = dict((await connection.execute(query)).all())
    assert stored == {first.id: len(good.steps)}


async def test_steps_that_an_analysis_tells_again_before_they_are_written_are_written_once(
    empty: Database,
) -> None:
    await migrate(empty)
    told = an_update()
    attempt = told.snapshot.attempt
    async with empty.write() as connection:
        await connection.execute(insert(Job).values(id=1, name="j", first_seen_wall_ns=1))
        await connection.execute(
            insert(JobAttempt).values(
                id=attempt.id, job_id=1, ordinal=1, run_id="r", launch_attempt=0, world_size=4,
                first_seen_wall_ns=START_NS, last_seen_wall_ns=START_NS, last_frame_id=1,
            )
        )  # fmt: skip

    async def on_snapshot(*_: object) -> None:
        pass

    persister = Persister(empty, on_snapshot)
    again = tuple(replace(step, duration_ns=step.duration_ns + 1) for step in told.steps[:7])
    persister.put(told)
    persister.put(replace(told, steps=again))
    await persister.flush()
    assert not persister.failures
    async with empty.read() as connection:
        query = select(StepSummary.step, StepSummary.duration_ns).order_by(StepSummary.step)
        stored = [tuple(row) for row in (await connection.execute(query)).all()]
    assert stored == [(one.step, one.duration_ns) for one in (*again, *told.steps[7:])]
