from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from paceline_service.incidents.offences import (
    REMEMBERED_NS,
    Place,
    earlier_incidents,
    offenders_since,
)
from paceline_service.incidents.repository import incidents_of
from paceline_service.incidents.service import sync_incidents
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.models import Job, JobAttempt

DAY_NS = 86_400 * 10**9


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'paceline.db'}")
    await migrate(database)
    async with database.write() as connection:
        for number, name in enumerate(("pretrain", "finetune", "secret"), start=1):
            await connection.execute(insert(Job).values(id=number, name=name, first_seen_wall_ns=1))
            await connection.execute(
                insert(JobAttempt).values(
                    id=number, job_id=number, ordinal=1, run_id="r", launch_attempt=0,
                    world_size=8, first_seen_wall_ns=1, last_seen_wall_ns=1,
                )
            )  # fmt: skip
    yield database
    await database.close()


def finding(*ranks: int, kind: str = "straggler", cause: str = "compute") -> dict[str, Any]:
    return {
        "kind": kind, "ranks": list(ranks), "nodes": [], "cause": cause, "phase": None,
        "first_step": 60, "last_step": 90,
    }  # fmt: skip


async def named(
    database: Database, attempt: int, day: int, places: dict[int, Place], *findings: dict[str, Any]
) -> dict[int, int]:
    async with database.write() as connection:
        await sync_incidents(
            connection, attempt, list(findings), last_step=90, ended=False, places=places,
            now_wall_ns=day * DAY_NS,
        )  # fmt: skip
        incidents = await incidents_of(connection, attempt)
        return await earlier_incidents(connection, [one["id"] for one in incidents])


async def offenders(database: Database, *, seen: str = "") -> list[dict[str, Any]]:
    async with database.read() as connection:
        found = await offenders_since(connection, 0, lambda job: job != seen)
    return [one.to_dict() for one in found]


async def test_a_node_that_three_jobs_name_comes_first_and_knows_its_earlier_incidents(
    database: Database,
) -> None:
    at_first = {2: Place("node-7"), 3: Place("node-8")}
    assert await named(database, 1, 1, at_first, finding(2), finding(3)) == {}
    assert await named(database, 2, 2, {5: Place("node-7")}, finding(5, cause="gpu_throttle")) == {
        3: 1
    }
    assert await named(database, 3, 3, {0: Place("node-7")}, finding(0)) == {4: 2}
    first, second = await offenders(database)
    assert (first["node"], first["incidents"]) == ("node-7", 3)
    assert first["jobs"] == ["finetune", "pretrain", "secret"]
    assert first["causes"] == ["compute", "gpu_throttle"]
    assert (first["first_wall_ns"], first["last_wall_ns"]) == (DAY_NS, 3 * DAY_NS)
    assert second["node"] == "node-8"


async def test_a_gpu_is_known_again_in_another_node_and_its_neighbour_is_not_blamed(
    database: Database,
) -> None:
    await named(database, 1, 1, {2: Place("node-7", "GPU-a")}, finding(2))
    assert await named(database, 2, 2, {2: Place("node-9", "GPU-a")}, finding(2)) == {2: 1}
    assert await named(database, 3, 3, {2: Place("node-7", "GPU-b")}, finding(2)) == {}


async def test_what_is_long_ago_or_was_withdrawn_does_not_count(database: Database) -> None:
    place = {2: Place("node-7")}
    await named(database, 1, 1, place, finding(2))
    assert await named(database, 2, 3 + REMEMBERED_NS // DAY_NS, place, finding(2)) == {}
    await named(database, 2, 4 + REMEMBERED_NS // DAY_NS, place)
    assert await named(database, 3, 5 + REMEMBERED_NS // DAY_NS, place, finding(2)) == {}
    (only,) = await offenders(database)
    assert only["jobs"] == ["pretrain", "secret"]


async def test_findings_without_hardware_at_fault_name_no_place(database: Database) -> None:
    places = {rank: Place(f"node-{rank}") for rank in range(8)}
    await named(database, 1, 1, places, finding(0, 1, kind="imbalance"), finding())
    assert await offenders(database) == []


async def test_a_reader_learns_nothing_of_jobs_that_are_not_his(database: Database) -> None:
    await named(database, 3, 1, {2: Place("node-7")}, finding(2))
    assert await offenders(database, seen="secret") == []
