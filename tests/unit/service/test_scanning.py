"""A reader of few rows among many costs the database few queries."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from sqlalchemy import event, insert

from paceline_service.app import create_app
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database
from paceline_service.store.models import Incident, Job, JobAttempt, SilenceRow

ROWS = 1200
"""Of which the oldest is for the reader."""


async def fill(database: Database) -> None:
    now_ns = time.time_ns()  # what is old would be deleted
    kept: list[tuple[type, list[dict[str, object]]]] = [(Job, []), (JobAttempt, [])]
    kept += [(Incident, []), (SilenceRow, [])]
    for number in range(1, ROWS + 1):
        name = "mine.llm" if number == 1 else f"other.{number}"
        at_ns = now_ns + number
        seen = {"first_seen_wall_ns": at_ns}
        rows = (
            {"id": number, "name": name, **seen},
            {"id": number, "job_id": number, "ordinal": 1, "run_id": "r", "launch_attempt": 0,
             "world_size": 1, "last_seen_wall_ns": at_ns, "ended": True, **seen},
            {"id": number, "attempt_id": number, "kind": "straggler", "ranks": "0", "cause": "host",
             "opened_wall_ns": at_ns, "updated_wall_ns": at_ns, "closed_wall_ns": at_ns,
             "closed_reason": "ended", "finding": "{}"},
            {"id": number, "job": name, "created_wall_ns": at_ns, "created_by": "a",
             "until_wall_ns": at_ns},
        )  # fmt: skip
        for (_, into), row in zip(kept, rows, strict=True):
            into.append(row)
    async with database.write() as connection:
        for table, made in kept:
            await connection.execute(insert(table), made)


async def test_rows_of_others_are_passed_over_many_at_a_time(tmp_path: Path) -> None:
    app = create_app(CollectorSettings(state_dir=tmp_path, token="t" * 32))
    collector = app.state.collector
    asked: list[str] = []
    async with app.router.lifespan_context(app):
        await fill(collector.database)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            wanted = {"scopes": ["read"], "job_prefix": "mine"}
            admin = {"Authorization": "Bearer " + "t" * 32}
            made = (await client.post("/v1/tokens", json=wanted, headers=admin)).json()
            reader = {"Authorization": f"Bearer {made['token']}"}
            event.listen(
                collector.database.engine.sync_engine,
                "before_cursor_execute",
                lambda *told: asked.append(told[2]),
            )
            for what in ("jobs", "incidents", "silences"):
                asked.clear()
                answer = (await client.get(f"/v1/{what}?limit=1", headers=reader)).json()
                assert [row["job"] for row in answer[what]] == ["mine.llm"]
                assert answer["next"] is None
                assert len(asked) < ROWS // 6, "two rows at a time it would be hundreds"
