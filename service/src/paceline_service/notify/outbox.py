"""The SQL of messages: which incidents may have to be told of, and what is on its way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import (
    Incident,
    Job,
    JobAttempt,
    NodeAction,
    Notification,
)

WAITING, TOLD, FAILED, OVER = "waiting", "told", "failed", "over"
MAX_INCIDENTS = 2000
"""Looked at in one round; with more of them going on, the newest."""
Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one channel knows of one incident."""

    incident_id: int
    channel: str
    state: str
    sequence: int
    delivered: int
    message: str
    thread: str
    uncertain: bool
    attempts: int
    made_wall_ns: int
    next_wall_ns: int
    told_wall_ns: int | None
    last_error: str
    job: str


async def incidents(connection: AsyncConnection, since_wall_ns: int) -> list[Values]:
    """Return the incidents that go on and were updated since then, and those still to be ended.

    Each with ``job``, ``attempt`` and ``world_size``; the newest first.
    """
    told = exists().where(Notification.incident_id == Incident.id)
    acted_on = exists().where(NodeAction.incident_id == Incident.id)
    recent = select(Incident.id).where(
        Incident.updated_wall_ns >= since_wall_ns,
        # Over, but to be told of as begun again, or to be undone on a node.
        Incident.closed_wall_ns.is_(None) | told | acted_on,
    )
    unfinished = select(Notification.incident_id).where(
        Notification.state.in_((WAITING, TOLD, FAILED))
    )
    query = (
        select(
            *Incident.__table__.columns,
            Job.name.label("job"),
            JobAttempt.ordinal.label("attempt"),
            JobAttempt.world_size,
        )
        .join(JobAttempt, JobAttempt.id == Incident.attempt_id)
        .join(Job, Job.id == JobAttempt.job_id)
        .where(Incident.id.in_(recent.union(unfinished)))
        .order_by(Incident.id.desc())
        .limit(MAX_INCIDENTS)
    )
    return [dict(row) for row in (await connection.execute(query)).mappings()]


async def rows_of(connection: AsyncConnection, incident_ids: Sequence[int]) -> list[Row]:
    """Return what channels know of these incidents."""
    query = _rows().where(Notification.incident_id.in_(list(incident_ids)))
    return [Row(**row) for row in (await connection.execute(query)).mappings()]


async def waiting(connection: AsyncConnection, channel: str | None = None) -> list[Row]:
    """Return the messages that are on their way, the longest waiting first."""
    query = _rows().where(Notification.state == WAITING).order_by(Notification.next_wall_ns)
    if channel is not None:
        query = query.where(Notification.channel == channel)
    query = query.limit(MAX_INCIDENTS)
    return [Row(**row) for row in (await connection.execute(query)).mappings()]


async def add(connection: AsyncConnection, values: Values) -> None:
    """Put the first message about an incident to a channel into the outbox."""
    await connection.execute(insert(Notification).values(**values))


async def change(
    connection: AsyncConnection, row: Row, values: Values, *, sequence: int | None = None
) -> bool:
    """Store what has changed of a row; return whether it was still the same message."""
    query = (
        update(Notification)
        .where(
            Notification.incident_id == row.incident_id,
            Notification.channel == row.channel,
            Notification.sequence == (row.sequence if sequence is None else sequence),
        )
        .values(values)
    )
    return bool((await connection.execute(query)).rowcount)


async def claim(connection: AsyncConnection, row: Row, until_wall_ns: int) -> bool:
    """Take a message for one attempt; False: somebody else has taken it since it was read."""
    query = (
        update(Notification)
        .where(
            Notification.incident_id == row.incident_id,
            Notification.channel == row.channel,
            Notification.sequence == row.sequence,
            Notification.state == WAITING,
            Notification.next_wall_ns == row.next_wall_ns,
            Notification.message == row.message,
        )
        # Until it is known how it went it may have arrived.
        .values(next_wall_ns=until_wall_ns, attempts=Notification.attempts + 1, uncertain=True)
    )
    return bool((await connection.execute(query)).rowcount)


async def release(connection: AsyncConnection, now_wall_ns: int) -> None:
    """Let messages be tried at once that a process before this one, which has ended, had taken."""
    query = (
        update(Notification)
        .where(Notification.state == WAITING, Notification.next_wall_ns > now_wall_ns)
        .values(next_wall_ns=now_wall_ns)
    )
    await connection.execute(query)


async def forget_channels(connection: AsyncConnection, known: Collection[str]) -> int:
    """End what waits for channels that are configured no more; return how many messages."""
    query = (
        update(Notification)
        .where(Notification.channel.not_in(list(known)), Notification.state != OVER)
        .values(state=OVER, last_error="the channel is not configured any more")
    )
    return int((await connection.execute(query)).rowcount)


async def forget(connection: AsyncConnection, incident_id: int, channel: str) -> None:
    """Delete a row: nothing was told and nothing will be."""
    query = delete(Notification).where(
        Notification.incident_id == incident_id, Notification.channel == channel
    )
    await connection.execute(query)


async def counts(connection: AsyncConnection) -> dict[tuple[str, str], int]:
    """Return how many rows there are by channel and state."""
    query = select(Notification.channel, Notification.state, func.count()).group_by(
        Notification.channel, Notification.state
    )
    return {(row[0], row[1]): row[2] for row in (await connection.execute(query)).all()}


def _rows() -> Any:
    return (
        select(*Notification.__table__.columns, Job.name.label("job"))
        .join(Incident, Incident.id == Notification.incident_id)
        .join(JobAttempt, JobAttempt.id == Incident.attempt_id)
        .join(Job, Job.id == JobAttempt.job_id)
    )
