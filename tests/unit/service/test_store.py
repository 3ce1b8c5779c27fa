from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, insert, select, text

from paceline_service.incidents.repository import incidents_of
from paceline_service.incidents.service import RECOVERED_STEPS, sync_incidents
from paceline_service.incidents.view import incident_json
from paceline_service.store.database import Database
from paceline_service.store.drops import add_drops, read_drops
from paceline_service.store.migrate import migrate
from paceline_service.store.models import Base, Job, JobAttempt


@pytest.fixture
async def database(tmp_path: Path) -> Any:
    made = Database(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}")
    await migrate(made)
    yield made
    await made.close()


async def test_migrations_make_what_the_models_say(database: Database) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))

    async with database.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_migrating_again_changes_nothing(database: Database) -> None:
    await migrate(database)
    async with database.read() as connection:
        versions = (await connection.execute(text("SELECT version_num FROM alembic_version"))).all()
    assert len(versions) == 1


async def test_commits_reach_the_disk_before_they_are_told(database: Database) -> None:
    async with database.read() as connection:
        assert (await connection.execute(text("PRAGMA synchronous"))).scalar() == 2
        assert (await connection.execute(text("PRAGMA journal_mode"))).scalar() == "wal"


async def test_drops_add_up(database: Database) -> None:
    for _ in range(2):
        async with database.write() as connection:
            await add_drops(connection, Counter({(0, "ingest", "corrupt"): 2, (1, "a", "b"): 1}))
    async with database.read() as connection:
        assert await read_drops(connection) == {(0, "ingest", "corrupt"): 4, (1, "a", "b"): 2}
        assert await read_drops(connection, [1]) == {(1, "a", "b"): 2}


def finding(
    last_step: int, *, first_step: int = 60, ranks: tuple[int, ...] = (2,)
) -> dict[str, Any]:
    return {
        "kind": "straggler", "ranks": list(ranks), "nodes": [], "cause": "compute",
        "phase": "backward", "first_step": first_step, "last_step": last_step,
    }  # fmt: skip


async def test_an_incident_opens_grows_recovers_and_comes_back_as_another(
    database: Database,
) -> None:
    async with database.write() as connection:
        await connection.execute(insert(Job).values(id=1, name="j", first_seen_wall_ns=1))
        await connection.execute(
            insert(JobAttempt).values(
                id=1, job_id=1, ordinal=1, run_id="r", launch_attempt=0, world_size=4,
                first_seen_wall_ns=1, last_seen_wall_ns=1,
            )
        )  # fmt: skip
        assert (await connection.execute(select(JobAttempt.id))).scalar() == 1

    async def after(findings: list[dict[str, Any]], last: int, *, ended: bool = False) -> Any:
        async with database.write() as connection:
            await sync_incidents(
                connection, 1, findings, last_step=last, ended=ended, now_wall_ns=last
            )
            rows = await incidents_of(connection, 1)
        return [
            (row["id"], row["open"], row["last_step"], row["closed_reason"])
            for row in map(incident_json, rows)
        ]

    assert await after([], 50) == []
    assert await after([finding(80)], 80) == [(1, True, 80, None)]
    assert await after([finding(90)], 90) == [(1, True, 90, None)]
    later = 90 + RECOVERED_STEPS + 1
    assert await after([finding(90)], later) == [(1, False, 90, "recovered")]
    again = finding(300, first_step=250)
    assert await after([again], 300) == [(2, True, 300, None), (1, False, 90, "recovered")]
    assert (await after([], 310))[0] == (2, False, 300, "withdrawn")
    assert (await after([again], 310, ended=True))[0] == (2, False, 300, "ended")
