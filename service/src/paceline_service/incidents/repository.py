"""The SQL of incidents and of what people say about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import Acknowledgement, Incident, Job, JobAttempt

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which incidents are asked for; None: any."""

    attempt_id: int | None = None
    job: str | None = None
    kind: str | None = None
    is_open: bool | None = None
    since_wall_ns: int | None = None
    """Changed since then."""


async def incidents_before(
    connection: AsyncConnection, chosen: Chosen, *, limit: int, before_id: int | None = None
) -> list[Values]:
    """Return incidents older than ``before_id`` with ``job`` and ``attempt``, the newest first."""
    query = _incidents().order_by(Incident.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(Incident.id < before_id)
    if chosen.attempt_id is not None:
        query = query.where(Incident.attempt_id == chosen.attempt_id)
    if chosen.job is not None:
        query = query.where(Job.name == chosen.job)
    if chosen.kind is not None:
        query = query.where(Incident.kind == chosen.kind)
    if chosen.is_open is not None:
        closed = Incident.closed_wall_ns
        query = query.where(closed.is_(None) if chosen.is_open else closed.is_not(None))
    if chosen.since_wall_ns is not None:
        query = query.where(Incident.updated_wall_ns >= chosen.since_wall_ns)
    return [dict(row) for row in (await connection.execute(query)).mappings()]


async def find_incident(connection: AsyncConnection, incident_id: int) -> Values | None:
    """Return one incident with ``job`` and ``attempt``."""
    query = _incidents().where(Incident.id == incident_id)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else dict(row)


async def open_incident(connection: AsyncConnection, values: Values) -> int:
    """Store a new incident, and return its id."""
    made = await connection.execute(insert(Incident).values(**values).returning(Incident.id))
    return int(made.scalar_one())


async def change_incident(connection: AsyncConnection, incident_id: int, values: Values) -> None:
    """Store what has changed of an incident."""
    await connection.execute(update(Incident).where(Incident.id == incident_id).values(values))


async def acknowledgements(
    connection: AsyncConnection, incident_ids: Sequence[int]
) -> dict[int, list[Values]]:
    """Return what was acknowledged of incidents, by incident, the newest first."""
    query = (
        select(Acknowledgement.__table__)
        .where(Acknowledgement.incident_id.in_(list(incident_ids)))
        .order_by(Acknowledgement.id.desc())
    )
    found: defaultdict[int, list[Values]] = defaultdict(list)
    for row in (await connection.execute(query)).mappings():
        found[row["incident_id"]].append(
            {name: row[name] for name in row if name not in ("id", "incident_id")}
        )
    return found


async def acknowledge(connection: AsyncConnection, values: Values) -> None:
    """Store that somebody knows of an incident."""
    await connection.execute(insert(Acknowledgement).values(**values))


async def withdraw_acknowledgements(
    connection: AsyncConnection, incident_id: int, by: str, now_wall_ns: int
) -> int:
    """Take back what was acknowledged of an incident; return how many there were."""
    change = (
        update(Acknowledgement)
        .where(
            Acknowledgement.incident_id == incident_id, Acknowledgement.withdrawn_wall_ns.is_(None)
        )
        .values(withdrawn_wall_ns=now_wall_ns, withdrawn_by=by)
    )
    return int((await connection.execute(change)).rowcount)


def _incidents() -> Any:
    return (
        select(
            *Incident.__table__.columns, Job.name.label("job"), JobAttempt.ordinal.label("attempt")
        )
        .join(JobAttempt, JobAttempt.id == Incident.attempt_id)
        .join(Job, Job.id == JobAttempt.job_id)
    )
