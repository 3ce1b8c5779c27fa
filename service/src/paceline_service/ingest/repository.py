"""The SQL of ingest: attempts and incarnations by their identity, frames in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from sqlalchemy import Table, bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.wire.bundles import Bundle
from paceline.wire.frames import Frame
from paceline_service.store.frames import AttemptRef
from paceline_service.store.models import FrameHead, FrameRow, Job, JobAttempt, RankIncarnation

MAX_BOUND = 1000
"""Rows or names that one statement is given."""
AnyFrame = Frame | Bundle
T = TypeVar("T")
# Tables and not classes: rows in bulk need nothing of the object-relational mapper.
_INCARNATIONS = cast(Table, RankIncarnation.__table__)


async def last_frame_id(connection: AsyncConnection) -> int:
    """Return the highest frame id ever committed, also when retention has deleted it."""
    stored = (await connection.execute(select(func.max(FrameRow.id)))).scalar_one()
    named = (await connection.execute(select(func.max(JobAttempt.last_frame_id)))).scalar_one()
    return max(stored or 0, named or 0)


async def take_frame_ids(connection: AsyncConnection, count: int) -> list[int]:
    """Return ``count`` ascending ids that no other process gets (PostgreSQL only)."""
    query = text("SELECT nextval('frame_ids') FROM generate_series(1, CAST(:count AS integer))")
    return list((await connection.execute(query, {"count": count})).scalars())


async def find_attempt(connection: AsyncConnection, frame: AnyFrame) -> AttemptRef | None:
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


async def create_attempt(
    connection: AsyncConnection, frame: AnyFrame, now_wall_ns: int
) -> AttemptRef:
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


async def find_incarnations(
    connection: AsyncConnection, keys: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], tuple[int, int, int]]:
    """Return (id, rank, low_seq) of those that are known of some (attempt id, incarnation)."""
    found: dict[tuple[int, str], tuple[int, int, int]] = {}
    of_attempt: dict[int, list[str]] = {}
    for attempt_id, incarnation in keys:
        of_attempt.setdefault(attempt_id, []).append(incarnation)
    for attempt_id, incarnations in of_attempt.items():
        for names in _chunks(incarnations):
            query = select(
                RankIncarnation.incarnation,
                RankIncarnation.id,
                RankIncarnation.rank,
                RankIncarnation.low_seq,
            ).where(
                RankIncarnation.attempt_id == attempt_id, RankIncarnation.incarnation.in_(names)
            )
            for row in await connection.execute(query):
                found[attempt_id, row.incarnation] = (row.id, row.rank, row.low_seq)
    return found


async def create_incarnations(
    connection: AsyncConnection, first_frames: Mapping[tuple[int, str], AnyFrame], now_wall_ns: int
) -> dict[tuple[int, str], int]:
    """Store incarnations by (attempt id, incarnation) and a frame of each; return their ids."""
    rows = [
        {
            "attempt_id": attempt_id, "incarnation": incarnation, "rank": frame.rank,
            "node": frame.node, "producer": frame.producer, "clock_domain": frame.clock_domain,
            "first_seen_wall_ns": now_wall_ns,
        }
        for (attempt_id, incarnation), frame in first_frames.items()
    ]  # fmt: skip
    made: dict[tuple[int, str], int] = {}
    add = insert(_INCARNATIONS).returning(
        RankIncarnation.attempt_id, RankIncarnation.incarnation, RankIncarnation.id
    )
    for some in _chunks(rows):
        for row in await connection.execute(add, some):
            made[row.attempt_id, row.incarnation] = row.id
    return made


async def known_sequences(
    connection: AsyncConnection, incarnation_ids: Sequence[int]
) -> dict[int, list[tuple[int, int]]]:
    """Return the numbers of the stored frames per incarnation, as (first, behind the last)."""
    known: dict[int, list[tuple[int, int]]] = {}
    of, seq = FrameRow.incarnation_id, FrameRow.frame_seq
    for ids in _chunks(incarnation_ids):
        bounds = select(of, func.min(seq), func.max(seq), func.count()).where(of.in_(ids))
        for one, first, last, count in await connection.execute(bounds.group_by(of)):
            if count == last - first + 1:
                known[one] = [(first, last + 1)]
                continue
            # It has gaps, which is rare.
            each = select(seq).where(of == one).order_by(seq)
            known[one] = [(at, at + 1) for at in (await connection.execute(each)).scalars()]
    return known


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut what is bound to one statement: databases limit its parameters."""
    for first in range(0, len(items), MAX_BOUND):
        yield items[first : first + MAX_BOUND]


class FrameValues(NamedTuple):
    """A row of the table of frames, in the order of its columns there."""

    id: int
    attempt_id: int
    incarnation_id: int
    frame_seq: int
    records: int
    received_wall_ns: int
    body_bytes: int
    body: bytes
    head_id: int | None


_INSERT_FRAME = (
    f"INSERT INTO frames ({', '.join(FrameValues._fields)}) "
    f"VALUES ({', '.join('?' * len(FrameValues._fields))})"
)


async def insert_frames(connection: AsyncConnection, rows: Sequence[FrameValues]) -> None:
    """Store frames; the unique key of the table is the last guard against storing one twice.

    Without types and names: looking at each parameter of each row costs more than the rows.
    On PostgreSQL the transaction has begun: the ids of the rows were taken in it.
    """
    if connection.dialect.name == "sqlite":
        await connection.exec_driver_sql(_INSERT_FRAME, list(rows))
        return
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None, "an open connection has one"
    await driver.copy_records_to_table("frames", columns=list(FrameValues._fields), records=rows)


async def insert_heads(connection: AsyncConnection, heads: Sequence[dict[str, object]]) -> None:
    """Store what frames refer to: rows of ``frame_id``, ``attempt_id`` and ``head``."""
    await connection.execute(insert(FrameHead), heads)


async def has_head(connection: AsyncConnection, frame_id: int, head: bytes) -> bool:
    """Whether that head is stored under that number."""
    mine = (FrameHead.frame_id == frame_id) & (FrameHead.head == head)
    return (await connection.execute(select(FrameHead.frame_id).where(mine))).first() is not None


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


async def is_committed(
    connection: AsyncConnection, attempt_ids: Iterable[int], frame_id: int
) -> bool:
    """Whether the transaction that added to those attempts, and wrote that frame, was committed.

    It may be under way still where its connection broke: what it locked is waited for.
    """
    locked = (
        select(JobAttempt.id)
        .where(JobAttempt.id.in_(list(attempt_ids)))
        .order_by(JobAttempt.id)
        .with_for_update(key_share=True)
    )
    await connection.execute(locked)
    written = select(FrameRow.id).where(FrameRow.id == frame_id)
    return (await connection.execute(written)).first() is not None


async def note_ended(connection: AsyncConnection, endings: Iterable[tuple[int, str]]) -> None:
    """Store how incarnations (by id) ended."""
    change = (
        update(RankIncarnation)
        .where(RankIncarnation.id == bindparam("i"))
        .values(ended=bindparam("how"))
    )
    await connection.execute(change, [{"i": i, "how": how} for i, how in endings])
