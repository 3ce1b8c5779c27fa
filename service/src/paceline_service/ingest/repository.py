"""The SQL of ingest: attempts and incarnations by their identity, frames in bulk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.wire.frames import Frame
from paceline_service.store.frames import AttemptRef
from paceline_service.store.models import FrameRow, Job, JobAttempt, RankIncarnation


async def last_frame_id(connection: AsyncConnection) -> int:
    """Return the highest frame id ever committed, also when retention has deleted it."""
    stored = (await connection.execute(select(func.max(FrameRow.id)))).scalar_one()
    named = (await connection.execute(select(func.max(JobAttempt.last_frame_id)))).scalar_one()
    return max(stored or 0, named or 0)


async def take_frame_ids(connection: AsyncConnection, count: int) -> list[int]:
    """Return ``count`` ascending ids that no other process gets (PostgreSQL only)."""
    query = text("SELECT nextval('frame_ids') FROM generate_series(1, CAST(:count AS integer))")
    return list((await connection.execute(query, {"count": count})).scalars())


async def find_attempt(connection: AsyncConnection, frame: Frame) -> AttemptRef | None:
    """Return the attempt that ``frame`` belongs to."""
    query = (
        select(JobAttempt)
        .join(Job)
        .where(
            Job.name == frame.job,
            JobAttempt.run_id == frame.run_id,
            JobAttempt.launch_attempt == frame.attempt,
        )
        .with_only_columns(
            JobAttempt.id, JobAttempt.ordinal, JobAttempt.world_size, JobAttempt.first_seen_wall_ns
        )
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return None
    return AttemptRef(
        id=row.id, job=frame.job, ordinal=row.ordinal, run_id=frame.run_id,
        launch_attempt=frame.attempt, world_size=row.world_size,
        first_seen_wall_ns=row.first_seen_wall_ns,
    )  # fmt: skip


async def create_attempt(connection: AsyncConnection, frame: Frame, now_wall_ns: int) -> AttemptRef:
    """Store the attempt that ``frame`` is the first of."""
    job_id = (await connection.execute(select(Job.id).where(Job.name == frame.job))).scalar()
    if job_id is None:
        made = await connection.execute(
            insert(Job).values(name=frame.job, first_seen_wall_ns=now_wall_ns).returning(Job.id)
        )
        job_id = made.scalar_one()
    highest = select(func.max(JobAttempt.ordinal)).where(JobAttempt.job_id == job_id)
    ordinal = ((await connection.execute(highest)).scalar() or 0) + 1
    values = {
        "job_id": job_id, "ordinal": ordinal, "run_id": frame.run_id,
        "launch_attempt": frame.attempt, "world_size": frame.world_size,
        "first_seen_wall_ns": now_wall_ns, "last_seen_wall_ns": now_wall_ns,
    }  # fmt: skip
    made = await connection.execute(insert(JobAttempt).values(values).returning(JobAttempt.id))
    return AttemptRef(
        id=made.scalar_one(), job=frame.job, ordinal=ordinal, run_id=frame.run_id,
        launch_attempt=frame.attempt, world_size=frame.world_size, first_seen_wall_ns=now_wall_ns,
    )  # fmt: skip


async def find_incarnation(
    connection: AsyncConnection, attempt_id: int, incarnation: str
) -> tuple[int, int, int] | None:
    """Return (id, rank, low_seq) of an incarnation."""
    query = select(RankIncarnation.id, RankIncarnation.rank, RankIncarnation.low_seq).where(
        RankIncarnation.attempt_id == attempt_id, RankIncarnation.incarnation == incarnation
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else (row.id, row.rank, row.low_seq)


async def create_incarnation(
    connection: AsyncConnection, attempt_id: int, frame: Frame, now_wall_ns: int
) -> int:
    """Store the incarnation that ``frame`` is the first of; return its id."""
    values = {
        "attempt_id": attempt_id, "incarnation": frame.incarnation, "rank": frame.rank,
        "node": frame.node, "producer": frame.producer, "clock_domain": frame.clock_domain,
        "first_seen_wall_ns": now_wall_ns,
    }  # fmt: skip
    made = await connection.execute(
        insert(RankIncarnation).values(values).returning(RankIncarnation.id)
    )
    return made.scalar_one()


async def known_sequences(connection: AsyncConnection, incarnation_id: int) -> list[int]:
    """Return the numbers of the frames that are stored of an incarnation."""
    query = select(FrameRow.frame_seq).where(FrameRow.incarnation_id == incarnation_id)
    return list((await connection.execute(query)).scalars())


async def insert_frames(connection: AsyncConnection, rows: list[dict[str, Any]]) -> None:
    """Store frames; the unique key of the table is the last guard against storing one twice."""
    await connection.execute(insert(FrameRow), rows)


async def note_commit(connection: AsyncConnection, rows: Iterable[dict[str, int]]) -> None:
    """Add to the totals of attempts: rows of ``a`` (id), ``now``, ``last``, ``n``, ``size``."""
    add = (
        update(JobAttempt)
        .where(JobAttempt.id == bindparam("a"))
        .values(
            last_seen_wall_ns=bindparam("now"),
            last_frame_id=bindparam("last"),
            frames=JobAttempt.frames + bindparam("n"),
            raw_bytes=JobAttempt.raw_bytes + bindparam("size"),
            ended=False,
        )
    )
    await connection.execute(add, list(rows))


async def note_ended(connection: AsyncConnection, endings: Iterable[tuple[int, str]]) -> None:
    """Store how incarnations (by id) ended."""
    change = (
        update(RankIncarnation)
        .where(RankIncarnation.id == bindparam("i"))
        .values(ended=bindparam("how"))
    )
    await connection.execute(change, [{"i": i, "how": how} for i, how in endings])
