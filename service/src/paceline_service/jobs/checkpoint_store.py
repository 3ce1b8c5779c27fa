"""The SQL of checkpoints.

The pieces of a large one are written first, in transactions that nobody has to wait for long; the
row that names them is written with the steps and the state, in one transaction. Until then the
checkpoint before is the one that counts, also after a kill in between.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.jobs.checkpoint import Stored
from paceline_service.jobs.checkpoint_codec import fingerprint
from paceline_service.jobs.snapshot import Captured
from paceline_service.store.database import Database
from paceline_service.store.models import Checkpoint, CheckpointPart, JobAttempt

PART_BYTES = 4 << 20
KEEP_S = 3 * 86_400
"""An attempt that never ended keeps its checkpoint for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A checkpoint whose pieces are stored, and which nothing names yet."""

    attempt_id: int
    frame_id: int
    made_wall_ns: int
    generation: int
    sha256: str
    body_bytes: int


async def read(connection: AsyncConnection, attempt_id: int) -> Stored | None:
    """Return the checkpoint of an attempt."""
    query = (
        select(
            Checkpoint.generation, Checkpoint.frame_id, Checkpoint.fingerprint, Checkpoint.sha256,
            JobAttempt.last_frame_id,
        )
        .join(JobAttempt, JobAttempt.id == Checkpoint.attempt_id)
        .where(Checkpoint.attempt_id == attempt_id)
    )  # fmt: skip
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return None
    body = b""
    if row.fingerprint == fingerprint():  # else nobody will look at it
        parts = (
            select(CheckpointPart.body)
            .where(
                CheckpointPart.attempt_id == attempt_id,
                CheckpointPart.generation == row.generation,
            )
            .order_by(CheckpointPart.part)
        )
        body = b"".join((await connection.execute(parts)).scalars())
    return Stored(
        frame_id=row.frame_id, newest_frame_id=row.last_frame_id, fingerprint=row.fingerprint,
        sha256=row.sha256, body=body,
    )  # fmt: skip


async def stage(
    database: Database, captured: Captured, body: bytes, leftovers: list[int] | None = None
) -> Staged:
    """Store the pieces of a checkpoint.

    Args:
        database: where to.
        captured: what it is of.
        body: it, packed.
        leftovers: generations of this attempt that were never named: their pieces are deleted
            first, so that a disk that is nearly full is not filled by them. This one is added.
    """
    generation = secrets.randbits(62)
    if leftovers is None:
        leftovers = []
    elif leftovers:
        async with database.write() as connection:
            unnamed = delete(CheckpointPart).where(
                CheckpointPart.attempt_id == captured.attempt_id,
                CheckpointPart.generation.in_(leftovers),
            )
            await connection.execute(unnamed)
        leftovers.clear()
    leftovers.append(generation)
    for part, at in enumerate(range(0, len(body), PART_BYTES)):
        async with database.write() as connection:
            row = {
                "attempt_id": captured.attempt_id, "generation": generation, "part": part,
                "body": body[at : at + PART_BYTES],
            }  # fmt: skip
            await connection.execute(insert(CheckpointPart), [row])
    return Staged(
        attempt_id=captured.attempt_id, frame_id=captured.frame_id,
        made_wall_ns=captured.made_wall_ns, generation=generation,
        sha256=hashlib.sha256(body).hexdigest(), body_bytes=len(body),
    )  # fmt: skip


async def name(connection: AsyncConnection, staged: Staged) -> None:
    """Make a stored checkpoint the one that counts, and delete what was before."""
    same = Checkpoint.attempt_id == staged.attempt_id
    await connection.execute(delete(Checkpoint).where(same))
    values = {
        "attempt_id": staged.attempt_id, "generation": staged.generation,
        "frame_id": staged.frame_id, "fingerprint": fingerprint(), "sha256": staged.sha256,
        "body_bytes": staged.body_bytes, "made_wall_ns": staged.made_wall_ns,
    }  # fmt: skip
    await connection.execute(insert(Checkpoint).values(values))
    others = delete(CheckpointPart).where(
        CheckpointPart.attempt_id == staged.attempt_id,
        CheckpointPart.generation != staged.generation,
    )
    await connection.execute(others)


async def forget(connection: AsyncConnection, attempt_id: int) -> None:
    """Delete the checkpoint of an attempt: it has ended."""
    for table in (Checkpoint, CheckpointPart):
        await connection.execute(delete(table).where(table.attempt_id == attempt_id))


async def forget_old(connection: AsyncConnection, before_wall_ns: int) -> int:
    """Delete the checkpoints made before then; return of how many attempts."""
    old = select(Checkpoint.attempt_id).where(Checkpoint.made_wall_ns < before_wall_ns)
    ids = list((await connection.execute(old)).scalars())
    for attempt_id in ids:
        await forget(connection, attempt_id)
    named = select(Checkpoint.attempt_id)
    silent = select(JobAttempt.id).where(JobAttempt.last_seen_wall_ns < before_wall_ns)
    cut_short = delete(CheckpointPart).where(
        CheckpointPart.attempt_id.in_(silent), CheckpointPart.attempt_id.not_in(named)
    )
    await connection.execute(cut_short)
    return len(ids)


async def stored_bytes(connection: AsyncConnection) -> int:
    """Return the size of all checkpoints."""
    query = select(func.coalesce(func.sum(Checkpoint.body_bytes), 0))
    return int((await connection.execute(query)).scalar_one())
