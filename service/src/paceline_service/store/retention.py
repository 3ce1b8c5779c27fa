"""Keeps the raw frames under their cap and their age: the oldest go first, and are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store import partitions
from paceline_service.store.drops import DropKey, add_drops
from paceline_service.store.models import FrameRow, JobAttempt, RankIncarnation
from paceline_service.store.partitions import Partition

BATCH_FRAMES = 512
"""Frames deleted in one transaction: commits wait no longer than for these."""
PARTITIONS_OF_CAP = 16
"""A partition is full with this part of the cap, so that few frames too many go with it."""


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


async def forget_bytes_without_frames(connection: AsyncConnection) -> None:
    """Let no attempt count frames where there are none: a backup without them was restored.

    The cap would be used up by nothing, and new frames would be deleted for it.
    """
    there_are = select(FrameRow.id).exists()
    count = update(JobAttempt).where(JobAttempt.raw_bytes != 0, ~there_are).values(raw_bytes=0)
    await connection.execute(count)


async def delete_oldest(
    connection: AsyncConnection, excess_bytes: int, before_wall_ns: int = 0
) -> Deleted:
    """Delete at most ``BATCH_FRAMES`` of the oldest frames.

    Args:
        connection: within a transaction.
        excess_bytes: until so many bytes are gone,
        before_wall_ns: and all that came before.
    """
    if excess_bytes <= 0 and not await _begins_before(connection, before_wall_ns):
        return Deleted(low_seqs={})
    query = (
        select(
            FrameRow.id, FrameRow.attempt_id, FrameRow.incarnation_id, FrameRow.frame_seq,
            FrameRow.records, FrameRow.body_bytes, FrameRow.received_wall_ns,
        )
        .order_by(FrameRow.id)
        .limit(BATCH_FRAMES)
    )  # fmt: skip
    last_id = 0
    gone: dict[tuple[int, int], list[int]] = {}
    for row in (await connection.execute(query)).all():
        if excess_bytes <= 0 and row.received_wall_ns >= before_wall_ns:
            break
        excess_bytes -= row.body_bytes
        last_id = row.id
        sums = gone.setdefault((row.attempt_id, row.incarnation_id), [0, 0, 0, 0])
        sums[0] += 1
        sums[1] += row.records
        sums[2] += row.body_bytes
        sums[3] = max(sums[3], row.frame_seq + 1)
    if not gone:
        return Deleted(low_seqs={})
    await connection.execute(delete(FrameRow).where(FrameRow.id <= last_id))
    return await _account(connection, [(*key, *sums) for key, sums in gone.items()])


async def _begins_before(connection: AsyncConnection, wall_ns: int) -> bool:
    """Whether the oldest frame came before: one row tells it, and a batch is megabytes to read."""
    query = select(FrameRow.received_wall_ns).order_by(FrameRow.id).limit(1)
    oldest = (await connection.execute(query)).scalar()
    return oldest is not None and oldest < wall_ns


async def drop_oldest(
    connection: AsyncConnection, excess_bytes: int, cap_bytes: int, before_wall_ns: int
) -> Deleted | None:
    """Drop the oldest partition (PostgreSQL); None where single frames have to go instead."""
    known = await partitions.partitions(connection, "frames")
    if len(known) < 3:  # the one that is written, and the one after it
        return None
    oldest = known[0]
    totals = text(
        "SELECT attempt_id, incarnation_id, COUNT(*), SUM(records), SUM(body_bytes), "
        f'MAX(frame_seq) + 1, MAX(received_wall_ns) FROM "{oldest.name}" '
        "GROUP BY attempt_id, incarnation_id"
    )
    rows = (await connection.execute(totals)).all()
    held_bytes = sum(int(row[4]) for row in rows)
    expired = all(row[6] < before_wall_ns for row in rows)
    if not expired and (excess_bytes <= 0 or held_bytes > 2 * cap_bytes // PARTITIONS_OF_CAP):
        return None
    if not await _is_over(connection, oldest):
        return None
    await partitions.wait_briefly(connection)
    await partitions.drop(connection, oldest)
    return await _account(connection, [tuple(map(int, row[:6])) for row in rows])


async def _is_over(connection: AsyncConnection, partition: Partition) -> bool:
    """Whether no id of its range will be handed out any more."""
    last = int((await connection.execute(text("SELECT last_value FROM frame_ids"))).scalar_one())
    return last >= partition.high


async def _account(connection: AsyncConnection, gone: list[tuple[int, ...]]) -> Deleted:
    """Note deleted frames: rows of attempt, incarnation, frames, records, bytes, lowest number."""
    low_seqs = {row[1]: row[5] for row in gone}
    by_attempt: Counter[int] = Counter()
    drops: Counter[DropKey] = Counter()
    for attempt_id, _, frames, records, size, _ in gone:
        by_attempt[attempt_id] += size
        drops[attempt_id, "store", "retention_records"] += records
        drops[attempt_id, "store", "retention_frames"] += frames
    if gone:
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
    return Deleted(
        frames=sum(row[2] for row in gone), records=sum(row[3] for row in gone), low_seqs=low_seqs
    )
