"""The SQL of lanes and windows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.jobs.details import Details
from paceline_service.jobs.lanes import LANE_COLUMNS
from paceline_service.jobs.windows import COLUMNS as WINDOW_COLUMNS
from paceline_service.store.database import insert_or_ignore
from paceline_service.store.models import Lane, RankWindow
from paceline_service.store.sizes import LANES, ROW_BYTES, WINDOWS, add_bytes

_SLACK_NS = 3600 * 10**9
"""What is replaced began no longer before what replaces it: only so much of the keys is read."""


async def save(connection: AsyncConnection, attempt_id: int, details: Details) -> None:
    """Store lanes and windows; what an analysis that began anew had stored before is replaced."""
    if (first := details.first_step) >= 0:
        starts_ns = [row[0] for rows in (details.lanes, details.windows) for row in rows]
        since_ns = min(starts_ns, default=0) - _SLACK_NS
        for model, name, behind in (
            (Lane, LANES, Lane.step >= first),
            (RankWindow, WINDOWS, RankWindow.last_step >= first),
        ):
            mine = (model.attempt_id == attempt_id) & (model.start_wall_ns >= since_ns)
            await _delete(connection, model, name, mine & behind)
    await _insert(connection, attempt_id, Lane, LANES, LANE_COLUMNS, details.lanes)
    await _insert(connection, attempt_id, RankWindow, WINDOWS, WINDOW_COLUMNS, details.windows)


async def _delete(
    connection: AsyncConnection,
    model: type[Lane | RankWindow],
    name: str,
    which: ColumnElement[bool],
) -> None:
    gone = (await connection.execute(delete(model).where(which))).rowcount
    await add_bytes(connection, name, -gone * ROW_BYTES[name])


async def _insert(
    connection: AsyncConnection,
    attempt_id: int,
    model: type[Lane | RankWindow],
    name: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
) -> None:
    if not rows:
        return
    of_all = {"attempt_id": attempt_id, "stored_wall_ns": time.time_ns()}
    values = [{**of_all, **dict(zip(columns, row, strict=True))} for row in rows]
    await connection.execute(insert_or_ignore(connection, model), values)
    await add_bytes(connection, name, len(rows) * ROW_BYTES[name])
