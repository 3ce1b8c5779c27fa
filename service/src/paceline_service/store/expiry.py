"""What is made from frames, deleted by age and by size: of each table the oldest rows first."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, delete, func, literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store import partitions
from paceline_service.store.models import Base, Incident, JobAttempt, Offence, StepSummary
from paceline_service.store.sizes import LANES, ROW_BYTES, STEPS, WINDOWS, add_bytes, stored_bytes

BATCH_ROWS = 2000
"""Rows deleted in one transaction."""
_FOREVER = (1 << 63) - 1
_ORDER = {STEPS: "step", LANES: "start_wall_ns", WINDOWS: "start_wall_ns"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much of a table is kept, and from when on."""

    bytes: int
    since_wall_ns: int


async def expire_rows(connection: AsyncConnection, name: str, limit: Limit) -> int:
    """Delete a batch of the oldest rows of one attempt; return how many, 0 when all is well."""
    excess_bytes = await stored_bytes(connection, name) - limit.bytes
    table = Base.metadata.tables[name]
    oldest = await _oldest_attempt(connection, table)
    if oldest is None or (excess_bytes <= 0 and oldest[0] >= limit.since_wall_ns):
        return 0
    _, attempt_id, last_seen_wall_ns = oldest
    order = table.c[_ORDER[name]]
    query = (
        select(order, table.c.stored_wall_ns, row_bytes(name))
        .where(table.c.attempt_id == attempt_id)
        .order_by(order)
        .limit(BATCH_ROWS)
    )
    last = None
    gone_bytes = 0
    for key, stored_wall_ns, size in (await connection.execute(query)).all():
        when_ns = stored_wall_ns or last_seen_wall_ns
        if excess_bytes <= gone_bytes and when_ns >= limit.since_wall_ns:
            break
        last, gone_bytes = key, gone_bytes + size
    if last is None:
        return 0
    these = (table.c.attempt_id == attempt_id) & (order <= last)
    if name != STEPS:  # rows that share the last key go too
        counted = select(func.count()).select_from(table).where(these)
        gone_bytes = ROW_BYTES[name] * (await connection.execute(counted)).scalar_one()
    done = await connection.execute(delete(table).where(these))
    await add_bytes(connection, name, -gone_bytes)
    return done.rowcount


async def drop_spans(connection: AsyncConnection, name: str, limit: Limit) -> int:
    """Delete the oldest rows of a table cut by time (PostgreSQL); return how many.

    That is a partition, or what came into the default one while the clock was wrong.
    """
    known = await partitions.partitions(connection, name)
    too_many = await stored_bytes(connection, name) > limit.bytes
    before_ns = limit.since_wall_ns
    if too_many and known:
        before_ns = max(before_ns, known[0].low)
    gone = await _delete_far_off(connection, name, before_ns)
    for oldest in known if not gone else ():
        counted = text(f'SELECT COUNT(*) FROM "{oldest.name}"')
        gone = int((await connection.execute(counted)).scalar_one())
        if oldest.high <= limit.since_wall_ns or (too_many and gone):
            await partitions.wait_briefly(connection)
            await partitions.drop(connection, oldest)
        elif gone:
            return 0
        if gone:
            break
    if not gone and too_many:
        gone = await _delete_far_off(connection, name, _FOREVER)
    await add_bytes(connection, name, -gone * ROW_BYTES[name])
    return gone


async def _delete_far_off(connection: AsyncConnection, name: str, before_ns: int) -> int:
    query = text(f"DELETE FROM {name}_default WHERE stored_wall_ns < :before")
    return (await connection.execute(query, {"before": before_ns})).rowcount


async def expire_incidents(connection: AsyncConnection, limit: Limit) -> int:
    """Delete the oldest closed incidents; whom they named stays known."""
    size = func.length(Incident.finding)
    kept_bytes = select(func.coalesce(func.sum(size), 0))
    excess_bytes = (await connection.execute(kept_bytes)).scalar_one() - limit.bytes
    newest = select(func.max(Incident.id)).scalar_subquery()  # numbers are not given twice
    query = (
        select(Incident.id, Incident.closed_wall_ns, Incident.closed_reason, size)
        .where(Incident.closed_wall_ns.is_not(None), Incident.id < newest)
        .order_by(Incident.closed_wall_ns)
        .limit(BATCH_ROWS)
    )
    gone, withdrawn = [], []
    for number, closed_wall_ns, reason, finding_bytes in (await connection.execute(query)).all():
        if excess_bytes <= 0 and closed_wall_ns >= limit.since_wall_ns:
            break
        excess_bytes -= finding_bytes
        gone.append(number)
        if reason == "withdrawn":
            withdrawn.append(number)
    await connection.execute(delete(Offence).where(Offence.incident_id.in_(withdrawn)))
    await delete_incidents(connection, gone)
    return len(gone)


async def delete_incidents(connection: AsyncConnection, numbers: list[int]) -> None:
    """Delete incidents, and what other tables say about them."""
    if not numbers:
        return
    for table in reversed(Base.metadata.sorted_tables):
        for key in table.foreign_keys:
            if key.column is Incident.__table__.c.id:
                await connection.execute(delete(table).where(key.parent.in_(numbers)))
    await connection.execute(delete(Incident).where(Incident.id.in_(numbers)))


async def expire_offences(connection: AsyncConnection, since_wall_ns: int) -> int:
    """Forget whom incidents named before then."""
    done = await connection.execute(delete(Offence).where(Offence.opened_wall_ns < since_wall_ns))
    return done.rowcount


def row_bytes(name: str) -> ColumnElement[int]:
    """Return what a row of a table is counted with."""
    if name == STEPS:
        return func.length(StepSummary.ranks_blob) + ROW_BYTES[STEPS]
    return literal(ROW_BYTES[name])


async def _oldest_attempt(connection: AsyncConnection, table: Table) -> tuple[int, int, int] | None:
    """Return the attempt with the oldest row: when that was, its id, and when it was last seen."""
    head = (
        select(table.c.stored_wall_ns)
        .where(table.c.attempt_id == JobAttempt.id)
        .order_by(table.c[_ORDER[table.name]])
        .limit(1)
        .scalar_subquery()
    )
    query = select(head, JobAttempt.id, JobAttempt.last_seen_wall_ns)
    rows = (await connection.execute(query)).all()
    # An earlier version did not store when that was: the attempt's last frame tells.
    known = [(row[0] or row[2], row[1], row[2]) for row in rows if row[0] is not None]
    return min(known, default=None)
