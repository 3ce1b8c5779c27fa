"""The SQL of jobs: attempts, their stored frames, states and steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.wire.bundle_codec import decode_any
from paceline_service.export.step_blob import pack_ranks, unpack_ranks
from paceline_service.jobs.snapshot import Snapshot
from paceline_service.jobs.steps import Step
from paceline_service.store.frames import AttemptRef, CommittedFrame, with_head
from paceline_service.store.models import (
    FrameHead,
    FrameRow,
    Job,
    JobAttempt,
    RankIncarnation,
    StepSummary,
)
from paceline_service.store.sequences import SequenceRanges
from paceline_service.store.sizes import ROW_BYTES, STEPS, add_bytes

PAGE_FRAMES = 256
MAX_JOBS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One attempt as the store knows it."""

    ref: AttemptRef
    last_seen_wall_ns: int
    ended: bool
    steps: int
    ranks_seen: int
    verdict: str
    headline: str
    slowdown: float | None
    last_frame_id: int
    report_frame_id: int


async def latest_attempts(
    connection: AsyncConnection,
    *,
    limit: int = MAX_JOBS,
    before: tuple[int, int] | None = None,
    since_wall_ns: int | None = None,
) -> list[AttemptRow]:
    """Return the latest attempt of every job, the newest first.

    Args:
        connection: to read with.
        limit: how many at most.
        before: the time and the id of the row behind which to begin.
        since_wall_ns: heard of since then.
    """
    latest = (
        select(JobAttempt.job_id, func.max(JobAttempt.ordinal).label("ordinal"))
        .group_by(JobAttempt.job_id)
        .subquery()
    )
    query = (
        _attempts()
        .join(
            latest,
            (latest.c.job_id == JobAttempt.job_id) & (latest.c.ordinal == JobAttempt.ordinal),
        )
        .order_by(JobAttempt.first_seen_wall_ns.desc(), JobAttempt.id.desc())
        .limit(limit)
    )
    if before is not None:
        wall_ns, attempt_id = before
        first_seen = JobAttempt.first_seen_wall_ns
        query = query.where(
            (first_seen < wall_ns) | ((first_seen == wall_ns) & (JobAttempt.id < attempt_id))
        )
    if since_wall_ns is not None:
        query = query.where(JobAttempt.last_seen_wall_ns >= since_wall_ns)
    return [_attempt_row(row) for row in (await connection.execute(query)).all()]


async def attempts_of(connection: AsyncConnection, job: str) -> list[AttemptRow]:
    """Return the newest attempts of a job, the newest first; none where it is unknown."""
    query = _attempts().where(Job.name == job).order_by(JobAttempt.ordinal.desc()).limit(MAX_JOBS)
    return [_attempt_row(row) for row in (await connection.execute(query)).all()]


async def find_attempt(
    connection: AsyncConnection, job: str, ordinal: int | None
) -> AttemptRow | None:
    """Return one attempt of a job, the latest where ``ordinal`` is None."""
    query = _attempts().where(Job.name == job).order_by(JobAttempt.ordinal.desc()).limit(1)
    if ordinal is not None:
        query = query.where(JobAttempt.ordinal == ordinal)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _attempt_row(row)


async def unfinished_since(connection: AsyncConnection, since_wall_ns: int) -> list[AttemptRow]:
    """Return the attempts that were heard of since then and have not ended, oldest first."""
    query = (
        _attempts()
        .where(JobAttempt.last_seen_wall_ns >= since_wall_ns)
        .where(~JobAttempt.ended | (JobAttempt.report_frame_id != JobAttempt.last_frame_id))
        .order_by(JobAttempt.id)
    )
    return [_attempt_row(row) for row in (await connection.execute(query)).all()]


async def state_blob(connection: AsyncConnection, attempt_id: int) -> bytes | None:
    """Return the packed state of an attempt."""
    query = select(JobAttempt.state).where(JobAttempt.id == attempt_id)
    return (await connection.execute(query)).scalar_one_or_none()


async def frames_after(
    connection: AsyncConnection, attempt: AttemptRef, after_id: int, limit: int = PAGE_FRAMES
) -> list[CommittedFrame]:
    """Return the next stored frames of an attempt, in the order of commits."""
    query = (
        select(
            FrameRow.id, FrameRow.received_wall_ns, FrameRow.body, FrameHead.head,
            RankIncarnation.low_seq,
        )
        .join(RankIncarnation, RankIncarnation.id == FrameRow.incarnation_id)
        .outerjoin(FrameHead, FrameHead.frame_id == FrameRow.head_id)
        .where(FrameRow.attempt_id == attempt.id, FrameRow.id > after_id)
        .order_by(FrameRow.id)
        .limit(limit)
    )  # fmt: skip
    rows = (await connection.execute(query)).all()
    packed = [with_head(row.body, row.head) if row.head else row.body for row in rows]
    return [
        CommittedFrame(
            id=row.id, attempt=attempt, frame=decode_any(one),
            received_wall_ns=row.received_wall_ns, packed_bytes=len(one), first_seq=row.low_seq,
        )
        for row, one in zip(rows, packed, strict=True)
    ]  # fmt: skip


async def missing_frames(
    connection: AsyncConnection, attempt: AttemptRef
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return per incarnation the ranges of frame numbers that the store does not hold."""
    spans = (
        select(
            RankIncarnation.id, RankIncarnation.incarnation, RankIncarnation.low_seq,
            func.max(FrameRow.frame_seq).label("last"), func.count(FrameRow.id).label("held"),
        )
        .join(FrameRow, FrameRow.incarnation_id == RankIncarnation.id)
        .where(RankIncarnation.attempt_id == attempt.id)
        .group_by(RankIncarnation.id, RankIncarnation.incarnation, RankIncarnation.low_seq)
    )  # fmt: skip
    missing = {}
    for row in (await connection.execute(spans)).all():
        if row.held == row.last + 1 - row.low_seq:
            continue
        held = select(FrameRow.frame_seq).where(FrameRow.incarnation_id == row.id)
        known = SequenceRanges(0, (await connection.execute(held)).scalars())
        first = known.ranges[0][0]
        head = ((row.low_seq, first),) if first > row.low_seq else ()
        missing[row.incarnation] = head + known.gaps()
    return missing


async def last_frames(connection: AsyncConnection, attempt: AttemptRef) -> dict[str, int]:
    """Return per incarnation the number of the newest frame that the store holds."""
    query = (
        select(RankIncarnation.incarnation, func.max(FrameRow.frame_seq).label("last"))
        .join(FrameRow, FrameRow.incarnation_id == RankIncarnation.id)
        .where(RankIncarnation.attempt_id == attempt.id)
        .group_by(RankIncarnation.id, RankIncarnation.incarnation)
    )
    return {row.incarnation: int(row.last) for row in await connection.execute(query)}


async def steps_between(
    connection: AsyncConnection,
    attempt_id: int,
    first: int,
    last: int,
    limit: int,
    *,
    phases: bool = True,
) -> list[Step]:
    """Return stored steps from ``first`` to ``last``, both included, the earliest ``limit``."""
    query = (
        _steps(attempt_id)
        .where(StepSummary.step >= first, StepSummary.step <= last)
        .order_by(StepSummary.step)
        .limit(limit)
    )
    rows = (await connection.execute(query)).all()
    return await asyncio.to_thread(_unpacked, rows, phases)


async def newest_steps(
    connection: AsyncConnection, attempt_id: int, count: int, up_to: int, *, phases: bool = True
) -> list[Step]:
    """Return up to ``count`` of the newest stored steps not later than ``up_to``, in order."""
    query = (
        _steps(attempt_id)
        .where(StepSummary.step <= up_to)
        .order_by(StepSummary.step.desc())
        .limit(count)
    )
    rows = (await connection.execute(query)).all()
    return await asyncio.to_thread(_unpacked, rows[::-1], phases)


def step_rows(attempt_id: int, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return steps as rows of their table; it takes a while for many ranks."""
    now_wall_ns = time.time_ns()
    return [
        {
            "attempt_id": attempt_id,
            "step": step.step,
            "start_wall_ns": step.start_wall_ns,
            "duration_ns": step.duration_ns,
            "slowest_rank": step.slowest_rank,
            "wait_ns": step.wait_total_ns,
            "ranks_blob": pack_ranks(step.per_rank),
            "stored_wall_ns": now_wall_ns,
        }
        for step in steps
    ]


async def save_steps(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
    """Store the ``step_rows`` of one attempt; those that an earlier process stored are replaced."""
    if not rows:
        return
    replaced = (
        (StepSummary.attempt_id == rows[0]["attempt_id"])
        & (StepSummary.step >= rows[0]["step"])
        & (StepSummary.step <= rows[-1]["step"])
    )
    size = func.coalesce(func.sum(func.length(StepSummary.ranks_blob) + ROW_BYTES[STEPS]), 0)
    old_bytes = int((await connection.execute(select(size).where(replaced))).scalar_one())
    if old_bytes:
        await connection.execute(delete(StepSummary).where(replaced))
    await connection.execute(insert(StepSummary), list(rows))
    new_bytes = sum(ROW_BYTES[STEPS] + len(row["ranks_blob"]) for row in rows)
    await add_bytes(connection, STEPS, new_bytes - old_bytes)


async def save_snapshot(connection: AsyncConnection, snapshot: Snapshot, state: bytes) -> None:
    """Store what an attempt's analysis says at present; ``state`` is it, packed."""
    change = (
        update(JobAttempt)
        .where(JobAttempt.id == snapshot.attempt.id)
        .values(
            ended=snapshot.state == "ended",
            steps=snapshot.steps,
            ranks_seen=snapshot.ranks_seen,
            verdict=snapshot.verdict,
            headline=snapshot.headline,
            slowdown=snapshot.slowdown,
            report_frame_id=snapshot.frame_id,
            state=state,
            state_version=JobAttempt.state_version + 1,
        )
    )
    await connection.execute(change)


def _attempts() -> Any:
    return select(
        Job.name, JobAttempt.id, JobAttempt.ordinal, JobAttempt.run_id, JobAttempt.launch_attempt,
        JobAttempt.world_size, JobAttempt.first_seen_wall_ns, JobAttempt.last_seen_wall_ns,
        JobAttempt.ended, JobAttempt.steps, JobAttempt.ranks_seen, JobAttempt.verdict,
        JobAttempt.headline, JobAttempt.slowdown, JobAttempt.last_frame_id,
        JobAttempt.report_frame_id,
    ).join(Job, Job.id == JobAttempt.job_id)  # fmt: skip


def _attempt_row(row: Row[Any]) -> AttemptRow:
    return AttemptRow(
        ref=AttemptRef(
            id=row.id, job=row.name, ordinal=row.ordinal, run_id=row.run_id,
            launch_attempt=row.launch_attempt, world_size=row.world_size,
            first_seen_wall_ns=row.first_seen_wall_ns,
        ),
        last_seen_wall_ns=row.last_seen_wall_ns, ended=row.ended, steps=row.steps,
        ranks_seen=row.ranks_seen, verdict=row.verdict, headline=row.headline,
        slowdown=row.slowdown,
        last_frame_id=row.last_frame_id, report_frame_id=row.report_frame_id,
    )  # fmt: skip


def _steps(attempt_id: int) -> Any:
    return select(
        StepSummary.step, StepSummary.start_wall_ns, StepSummary.duration_ns,
        StepSummary.slowest_rank, StepSummary.ranks_blob,
    ).where(StepSummary.attempt_id == attempt_id)  # fmt: skip


def _unpacked(rows: Sequence[Row[Any]], phases: bool) -> list[Step]:
    """Return steps of their rows; away from the event loop, because that takes a while."""
    return [
        Step(
            step=row.step,
            start_wall_ns=row.start_wall_ns,
            duration_ns=row.duration_ns,
            slowest_rank=row.slowest_rank,
            per_rank=unpack_ranks(row.ranks_blob, phases=phases),
        )
        for row in rows
    ]
