"""Everything that is stored has a limit by age and by size, on both databases."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, text, update

from paceline_service.incidents.offences import offenders_since
from paceline_service.store import partitions
from paceline_service.store.database import Database
from paceline_service.store.drops import read_drops
from paceline_service.store.housekeeping import DAY_NS, Housekeeping
from paceline_service.store.migrate import migrate
from paceline_service.store.models import (
    Base,
    Drop,
    FrameRow,
    Incident,
    Job,
    JobAttempt,
    JobSetting,
    Lane,
    Offence,
    RankIncarnation,
    RankWindow,
    StepSummary,
)
from paceline_service.store.settings import StoreSettings
from paceline_service.store.sizes import (
    LANES,
    POSTGRESQL_FACTOR,
    ROW_BYTES,
    STEPS,
    WINDOWS,
    add_bytes,
    stored_bytes,
)

NOW_NS = time.time_ns()


@pytest.fixture
async def store(empty: Database) -> Database:
    """Two attempts of one job, the older one heard of 200 days ago."""
    await migrate(empty)
    async with empty.write() as connection:
        await connection.execute(insert(Job).values(id=1, name="train", first_seen_wall_ns=1))
        for number, days in ((1, 200), (2, 0)):
            seen_ns = NOW_NS - days * DAY_NS
            await connection.execute(
                insert(JobAttempt).values(
                    id=number, job_id=1, ordinal=number, run_id=f"r{number}", launch_attempt=0,
                    world_size=1, first_seen_wall_ns=seen_ns, last_seen_wall_ns=seen_ns,
                    state=b"s" * 1000, ended=True,
                )
            )  # fmt: skip
            await connection.execute(
                insert(RankIncarnation).values(
                    id=number, attempt_id=number, incarnation=f"{number:032x}", rank=0, node="n",
                    producer="python", clock_domain="", first_seen_wall_ns=1,
                )
            )  # fmt: skip
    return empty


def housekeeping(database: Database, **limits: float) -> Housekeeping:
    low: dict[int, int] = {}
    keeper = Housekeeping(
        database, StoreSettings(**limits), on_deleted=low.update, on_pass=lambda: None
    )
    keeper.low = low  # type: ignore[attr-defined]
    return keeper


async def count(database: Database, model: type[Base]) -> int:
    async with database.read() as connection:
        return (await connection.execute(select(func.count()).select_from(model))).scalar_one()


async def dropped(database: Database) -> dict[tuple[int, str], int]:
    async with database.read() as connection:
        return {(a, reason): n for (a, _, reason), n in (await read_drops(connection)).items()}


async def add_frames(database: Database, seqs: range, *, size: int = 1000, days: float = 0) -> None:
    """Store frames of the newer attempt as a commit does."""
    async with database.write() as connection:
        if database.is_sqlite:
            ids = [seq + 1 for seq in seqs]
        else:
            query = text(f"SELECT nextval('frame_ids') FROM generate_series(1, {len(seqs)})")
            ids = list((await connection.execute(query)).scalars())
        rows = [
            {
                "id": number, "attempt_id": 2, "incarnation_id": 2, "frame_seq": seq, "records": 7,
                "received_wall_ns": NOW_NS - int(days * DAY_NS), "body_bytes": size,
                "body": bytes(size),
            }
            for number, seq in zip(ids, seqs, strict=True)
        ]  # fmt: skip
        await connection.execute(insert(FrameRow), rows)
        grown = {"raw_bytes": JobAttempt.raw_bytes + size * len(seqs), "last_frame_id": ids[-1]}
        await connection.execute(update(JobAttempt).where(JobAttempt.id == 2).values(**grown))


async def test_raw_frames_stay_under_their_cap_and_what_went_is_counted(store: Database) -> None:
    keeper = housekeeping(store, raw_retention_bytes=100_000)
    await add_frames(store, range(150))
    await keeper.pass_once(derived=False)
    assert await count(store, FrameRow) == 100
    assert keeper.raw_bytes == 100_000
    assert await dropped(store) == {(2, "retention_frames"): 50, (2, "retention_records"): 350}
    assert keeper.low == {2: 50}  # type: ignore[attr-defined]
    async with store.read() as connection:
        query = select(RankIncarnation.low_seq).where(RankIncarnation.id == 2)
        assert (await connection.execute(query)).scalar() == 50


async def test_frames_that_a_restored_backup_left_out_do_not_count(store: Database) -> None:
    await add_frames(store, range(150))
    async with store.write() as connection:
        await connection.execute(delete(FrameRow))
    keeper = housekeeping(store, raw_retention_bytes=100_000)
    await keeper.pass_once(derived=False)
    assert keeper.raw_bytes == 0
    await add_frames(store, range(150, 200))
    await keeper.pass_once(derived=False)
    assert (await count(store, FrameRow), keeper.raw_bytes) == (50, 50_000)


async def test_raw_frames_go_when_they_are_too_old(store: Database) -> None:
    await add_frames(store, range(20), days=3)
    await add_frames(store, range(20, 30))
    await housekeeping(store, raw_retention_days=2).pass_once()
    assert await count(store, FrameRow) == 10
    assert (await dropped(store))[2, "retention_frames"] == 20


@pytest.mark.parametrize("empty", ["postgresql"], indirect=True)
async def test_on_postgresql_partitions_of_frames_are_made_ahead_and_dropped_whole(
    store: Database,
) -> None:
    keeper = housekeeping(store, raw_retention_bytes=400_000)

    async def names() -> list[str]:
        async with store.read() as connection:
            return [one.name for one in await partitions.partitions(connection, "frames")]

    for number in range(24):  # each is more than a sixteenth of the cap
        await add_frames(store, range(30 * number, 30 * number + 30))
        await keeper.pass_once(derived=False)
    kept = await names()
    assert "frames_p0" not in kept
    assert kept[-1] == f"frames_p{int(kept[0].removeprefix('frames_p')) + len(kept) - 1}"
    left = await count(store, FrameRow)
    assert 300 <= left <= 400
    gone = await dropped(store)
    assert gone[2, "retention_frames"] == 24 * 30 - left
    assert gone[2, "retention_records"] == 7 * gone[2, "retention_frames"]
    async with store.read() as connection:
        ids = (await connection.execute(select(FrameRow.id).order_by(FrameRow.id))).scalars().all()
        seqs = select(FrameRow.frame_seq).order_by(FrameRow.id)
        assert list((await connection.execute(seqs)).scalars()) == list(range(720 - left, 720))
        stored = select(JobAttempt.raw_bytes).where(JobAttempt.id == 2)
        assert (await connection.execute(stored)).scalar() == 1000 * left
    assert ids[-1] >> partitions.FRAME_BITS > ids[0] >> partitions.FRAME_BITS
    # Nothing of it is left over: an upgrade may be taken back in between.
    async with store.read() as connection:
        orphans = text("SELECT COUNT(*) FROM pg_class WHERE relname LIKE 'frames_p%'"
                       " AND relkind = 'r'")  # fmt: skip
        assert (await connection.execute(orphans)).scalar() == len(kept)


async def add_derived(database: Database, days: float, steps: range, attempt: int = 2) -> None:
    """Store a step, a lane and a window for each of ``steps``, so long ago.

    The clocks of the ranks are years behind: nothing depends on them.
    """
    at_ns = NOW_NS - int(days * DAY_NS)
    async with database.write() as connection:
        for step in steps:
            start_ns = 10**18 + step
            await connection.execute(
                insert(StepSummary).values(
                    attempt_id=attempt, step=step, start_wall_ns=start_ns, duration_ns=1,
                    slowest_rank=0, wait_ns=0, ranks_blob=bytes(936), stored_wall_ns=at_ns,
                )
            )  # fmt: skip
            await connection.execute(
                insert(Lane).values(
                    attempt_id=attempt, start_wall_ns=start_ns, rank=0, end_wall_ns=start_ns + 1,
                    step=step, kind="wait", stored_wall_ns=at_ns,
                )
            )  # fmt: skip
            names = ("self", "wait", "communication", "caused_wait", "blamed_wait")
            await connection.execute(
                insert(RankWindow).values(
                    attempt_id=attempt, start_wall_ns=start_ns, rank=0, end_wall_ns=start_ns + 1,
                    first_step=step, last_step=step, steps=1, last_arrivals=0,
                    stored_wall_ns=at_ns, **{f"{name}_ns": 0 for name in names},
                )
            )  # fmt: skip
        await add_bytes(connection, STEPS, 1000 * len(steps))
        for name in (LANES, WINDOWS):
            await add_bytes(connection, name, ROW_BYTES[name] * len(steps))


def row_bytes(database: Database, table: str) -> int:
    return ROW_BYTES[table] * (1 if database.is_sqlite else POSTGRESQL_FACTOR[table])


async def test_steps_lanes_and_windows_go_when_they_are_too_old(store: Database) -> None:
    await housekeeping(store).pass_once()
    await add_derived(store, 10, range(5))
    await add_derived(store, 0, range(5, 9))
    limits = {f"{name}_retention_days": 5 for name in ("steps", "lanes", "windows")}
    await housekeeping(store, attempts_retention_days=1000, **limits).pass_once()
    for model in (StepSummary, Lane, RankWindow):
        assert await count(store, model) == 4, model
    async with store.read() as connection:
        assert await stored_bytes(connection, STEPS) == 4000
        assert await stored_bytes(connection, LANES) == 4 * row_bytes(store, LANES)
    gone = await dropped(store)
    assert gone[0, "retention_step_summaries"] == 5
    assert gone[0, "retention_lanes"] >= 5


async def test_steps_lanes_and_windows_stay_under_their_caps(store: Database) -> None:
    await housekeeping(store, attempts_retention_days=1000).pass_once()
    await add_derived(store, 0.5, range(6), attempt=1)
    await add_derived(store, 0, range(6, 12))
    limits = {
        "steps_retention_bytes": 8000,
        "lanes_retention_bytes": 8 * row_bytes(store, LANES),
        "windows_retention_bytes": 8 * row_bytes(store, WINDOWS),
    }
    await housekeeping(store, attempts_retention_days=1000, **limits).pass_once()
    assert await count(store, StepSummary) == 8
    for model in (Lane, RankWindow):  # on PostgreSQL a partition goes whole
        assert await count(store, model) == (8 if store.is_sqlite else 6), model
    async with store.read() as connection:
        oldest = select(func.min(Lane.step)).where(Lane.attempt_id == 2)
        assert (await connection.execute(oldest)).scalar() == 6


async def test_what_came_while_the_collectors_clock_was_wrong_is_kept_and_expires_too(
    store: Database,
) -> None:
    keeper = housekeeping(store, attempts_retention_days=1000)
    await keeper.pass_once()
    await add_derived(store, 20_000, range(3))
    await add_derived(store, -400, range(3, 6))
    assert await count(store, Lane) == 6
    await keeper.pass_once()
    assert await count(store, Lane) == 3


async def incident(
    database: Database, number: int, *, days: float, attempt: int = 2, closed: bool = True,
    reason: str = "recovered",
) -> None:  # fmt: skip
    at_ns = NOW_NS - int(days * DAY_NS)
    async with database.write() as connection:
        await connection.execute(
            insert(Incident).values(
                id=number, attempt_id=attempt, kind="straggler", ranks="0", cause="compute",
                opened_wall_ns=at_ns, updated_wall_ns=at_ns,
                closed_wall_ns=at_ns if closed else None,
                closed_reason=reason if closed else "", finding="f" * 500,
            )
        )  # fmt: skip
        await connection.execute(
            insert(Offence).values(
                incident_id=number, node=f"node-{number}", gpu_uuid="", attempt_id=attempt,
                opened_wall_ns=at_ns, job="train", cause="compute",
            )
        )  # fmt: skip


async def offenders(database: Database) -> set[str]:
    async with database.read() as connection:
        return {one.node for one in await offenders_since(connection, 0, lambda _: True)}


async def test_closed_incidents_go_and_whom_they_named_stays_known(store: Database) -> None:
    await incident(store, 1, days=30)
    await incident(store, 2, days=30, closed=False)
    await incident(store, 3, days=30, reason="withdrawn")
    await incident(store, 4, days=1)
    await incident(store, 5, days=0)
    limits = {"attempts_retention_days": 1000.0}
    await housekeeping(store, incidents_retention_days=10, **limits).pass_once()
    assert await count(store, Incident) == 3
    assert await offenders(store) == {"node-1", "node-2", "node-4", "node-5"}
    await housekeeping(store, incidents_retention_bytes=1000, **limits).pass_once()
    assert await count(store, Incident) == 2
    assert await offenders(store) == {"node-1", "node-2", "node-4", "node-5"}
    await housekeeping(store, offences_retention_days=10, **limits).pass_once()
    assert await offenders(store) == {"node-4", "node-5"}


async def test_an_old_attempt_goes_whole_and_its_offences_and_losses_stay_known(
    store: Database,
) -> None:
    await housekeeping(store, attempts_retention_days=1000).pass_once()
    await add_derived(store, 0.5, range(6), attempt=1)
    await incident(store, 1, days=0.5, attempt=1)
    await incident(store, 2, days=0)
    async with store.write() as connection:
        lost = {"attempt_id": 1, "stage": "ingest", "reason": "late", "count": 3}
        await connection.execute(insert(Drop).values(**lost))
    await housekeeping(store, attempts_retention_days=100).pass_once()
    for model in (JobAttempt, RankIncarnation, Incident):
        assert await count(store, model) == 1, model
    for model in (StepSummary, Lane, RankWindow):
        assert await count(store, model) == 0, model
    async with store.read() as connection:
        assert await stored_bytes(connection, STEPS) == 0
    assert await offenders(store) == {"node-1", "node-2"}
    assert await dropped(store) == {(0, "late"): 3, (0, "retention_attempts"): 1}


async def test_attempts_go_by_the_size_of_their_states_but_never_one_that_is_heard_of(
    store: Database,
) -> None:
    await housekeeping(store, attempts_retention_bytes=500).pass_once()
    async with store.read() as connection:
        assert list((await connection.execute(select(JobAttempt.id))).scalars()) == [2]


async def test_what_somebody_set_for_a_job_outlives_its_attempts(store: Database) -> None:
    async with store.write() as connection:
        await connection.execute(insert(Job).values(id=2, name="other", first_seen_wall_ns=1))
        await connection.execute(insert(Job).values(id=3, name="third", first_seen_wall_ns=1))
        values: dict[str, Any] = {"job_id": 1, "generation": 1, "level": "off", "stride": 2}
        await connection.execute(
            insert(JobSetting).values(**values, enabled=True, updated_wall_ns=1, updated_by="ops")
        )
    await housekeeping(store).pass_once()
    async with store.read() as connection:
        names = set((await connection.execute(select(Job.name))).scalars())
    assert names == {"train", "third"}  # the newest stays, so that its number is not given twice


@pytest.mark.parametrize("empty", ["sqlite"], indirect=True)
async def test_a_sqlite_file_gets_shorter_when_much_of_it_is_free(store: Database) -> None:
    async def pages() -> tuple[int, int]:
        async with store.read() as connection:
            size = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
            free = (await connection.execute(text("PRAGMA freelist_count"))).scalar_one()
        return size, free

    await add_frames(store, range(400), size=100_000)
    before, _ = await pages()
    keeper = housekeeping(store, raw_retention_bytes=1_000_000)
    await keeper.pass_once(derived=False)
    after, free = await pages()
    assert await count(store, FrameRow) == 10
    assert after < before / 2
    assert free * 16384 <= (16 << 20) + 16384
