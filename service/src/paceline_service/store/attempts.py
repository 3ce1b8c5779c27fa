"""Deletes attempts whole, with everything that was stored of them but whom incidents named."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Table, delete, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.drops import DropKey, add_drops
from paceline_service.store.expiry import Limit, delete_incidents, row_bytes
from paceline_service.store.models import (
    Base,
    Drop,
    FrameRow,
    Incident,
    Job,
    JobAttempt,
    JobSetting,
)  # fmt: skip
from paceline_service.store.sizes import ROW_BYTES, add_bytes

BATCH_ROWS = 2000
_STAY = frozenset({"offences", "audit_log"})
"""They may name an attempt that is gone."""


async def oldest_attempt(
    connection: AsyncConnection, limit: Limit, idle_wall_ns: int
) -> int | None:
    """Return the attempt that has to go next, none that was heard of after ``idle_wall_ns``."""
    size = func.coalesce(func.sum(func.length(JobAttempt.state)), 0)
    excess = int((await connection.execute(select(size))).scalar_one()) - limit.bytes
    newest = select(func.max(JobAttempt.id)).scalar_subquery()  # numbers are not given twice
    query = (
        select(JobAttempt.id, JobAttempt.last_seen_wall_ns)
        .where(JobAttempt.last_seen_wall_ns < idle_wall_ns, JobAttempt.id < newest)
        .order_by(JobAttempt.last_seen_wall_ns)
        .limit(1)
    )
    if excess > 0:  # one without a state would be deleted for nothing
        query = query.where(
            JobAttempt.state.is_not(None) | (JobAttempt.last_seen_wall_ns < limit.since_wall_ns)
        )
    row = (await connection.execute(query)).first()
    if row is None or (excess <= 0 and row.last_seen_wall_ns >= limit.since_wall_ns):
        return None
    return int(row.id)


async def delete_attempt(connection: AsyncConnection, attempt_id: int) -> bool:
    """Delete a batch of what is stored of an attempt; return whether nothing is left of it."""
    if await _delete_frames(connection, attempt_id):
        return False
    for name in ROW_BYTES:
        table = Base.metadata.tables[name]
        mine = table.c.attempt_id == attempt_id
        size = select(func.coalesce(func.sum(row_bytes(name)), 0)).select_from(table).where(mine)
        await add_bytes(connection, name, -int((await connection.execute(size)).scalar_one()))
    await _keep_drops(connection, attempt_id)
    query = select(Incident.id).where(Incident.attempt_id == attempt_id)
    await delete_incidents(connection, list((await connection.execute(query)).scalars()))
    for table in reversed(Base.metadata.sorted_tables):
        column = _attempt_column(table)
        if column is not None:
            await connection.execute(delete(table).where(table.c[column] == attempt_id))
    await connection.execute(delete(JobAttempt).where(JobAttempt.id == attempt_id))
    await _delete_lone_jobs(connection)
    return True


async def _delete_frames(connection: AsyncConnection, attempt_id: int) -> bool:
    """Delete a batch of its frames; return whether there were any."""
    mine = (
        select(FrameRow.id)
        .where(FrameRow.attempt_id == attempt_id)
        .order_by(FrameRow.id)
        .limit(BATCH_ROWS)
    )
    numbers = list((await connection.execute(mine)).scalars())
    if numbers:
        these = (FrameRow.attempt_id == attempt_id) & (FrameRow.id <= numbers[-1])
        await connection.execute(delete(FrameRow).where(these))
    return bool(numbers)


async def _keep_drops(connection: AsyncConnection, attempt_id: int) -> None:
    """Count with no attempt what was lost of this one: sums over all of them do not fall."""
    query = select(Drop.stage, Drop.reason, Drop.count).where(Drop.attempt_id == attempt_id)
    rows = (await connection.execute(query)).all()
    kept: Counter[DropKey] = Counter({(0, row.stage, row.reason): row[2] for row in rows})
    await add_drops(connection, kept)


def _attempt_column(table: Table) -> str | None:
    if table.name in _STAY or table is FrameRow.__table__:
        return None
    return "attempt_id" if "attempt_id" in table.c else None


async def _delete_lone_jobs(connection: AsyncConnection) -> None:
    """Delete jobs without attempts, unless somebody has set how they are to be recorded."""
    attempts = exists().where(JobAttempt.job_id == Job.id)
    settings = exists().where(JobSetting.job_id == Job.id)
    newest = select(func.max(Job.id)).scalar_subquery()
    await connection.execute(delete(Job).where(~attempts, ~settings, Job.id < newest))
