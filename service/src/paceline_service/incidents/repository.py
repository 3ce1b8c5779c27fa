"""The incidents table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import Incident

Values = dict[str, Any]


async def incidents_of(connection: AsyncConnection, attempt_id: int) -> list[Values]:
    """Return the incidents of an attempt, the newest first."""
    query = (
        select(Incident.__table__)
        .where(Incident.attempt_id == attempt_id)
        .order_by(Incident.id.desc())
    )
    rows = (await connection.execute(query)).mappings().all()
    return [dict(row) for row in rows]


async def open_incident(connection: AsyncConnection, values: Values) -> int:
    """Store a new incident, and return its id."""
    made = await connection.execute(insert(Incident).values(**values).returning(Incident.id))
    return int(made.scalar_one())


async def change_incident(connection: AsyncConnection, incident_id: int, values: Values) -> None:
    """Store what has changed of an incident."""
    await connection.execute(update(Incident).where(Incident.id == incident_id).values(values))
