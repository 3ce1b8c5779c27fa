"""Keeps the raw frames under their cap: the oldest go first, and are counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.drops import DropKey, add_drops
from paceline_service.store.models import FrameRow, JobAttempt, RankIncarnation

BATCH_FRAMES = 512
"""Frames deleted in one transaction: commits wait no longer than for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What one pass deleted."""

    frames: int = 0
    records: int = 0
    low_seqs: dict[int, int]
    """By incarnation id: every frame below is done with."""


async def raw_bytes(connection: AsyncConnection) -> int:
    """Return the size of all raw frames that are kept."""
    query = select(func.coalesce(func.sum(JobAttempt.raw_bytes), 0))
    return int((await connection.execute(query)).scalar_one())


async def delete_oldest(connection: AsyncConnection, excess_bytes: int) -> Deleted:
    """Delete the oldest frames until ``excess_bytes`` are gone, at most ``BATCH_FRAMES``."""
    query = (
        select(
            FrameRow.id, FrameRow.attempt_id, FrameRow.incarnation_id, FrameRow.frame_seq,
            FrameRow.records, FrameRow.body_bytes,
        )
        .order_by(FrameRow.id)
        .limit(BATCH_FRAMES)
    )  # fmt: skip
    last_id = records = frames = 0
    by_attempt: defaultdict[int, int] = defaultdict(int)
    low_seqs: dict[int, int] = {}
    drops: Counter[DropKey] = Counter()
    for row in (await connection.execute(query)).all():
        if excess_bytes <= 0:
            break
        excess_bytes -= row.body_bytes
        last_id, frames, records = row.id, frames + 1, records + row.records
        by_attempt[row.attempt_id] += row.body_bytes
        low = low_seqs.get(row.incarnation_id, 0)
        low_seqs[row.incarnation_id] = max(low, row.frame_seq + 1)
        drops[row.attempt_id, "store", "retention_records"] += row.records
        drops[row.attempt_id, "store", "retention_frames"] += 1
    if not frames:
        return Deleted(low_seqs={})
    await connection.execute(delete(FrameRow).where(FrameRow.id <= last_id))
    shrink = (
        update(JobAttempt)
        .where(JobAttempt.id == bindparam("a"))
        .values(raw_bytes=JobAttempt.raw_bytes - bindparam("n"))
    )
    await connection.execute(shrink, [{"a": a, "n": n} for a, n in by_attempt.items()])
    raise_low = (
        update(RankIncarnation)
        .where(RankIncarnation.id == bindparam("i"), RankIncarnation.low_seq < bindparam("low"))
        .values(low_seq=bindparam("low"))
    )
    await connection.execute(raise_low, [{"i": i, "low": low} for i, low in low_seqs.items()])
    await add_drops(connection, drops)
    return Deleted(frames=frames, records=records, low_seqs=low_seqs)
