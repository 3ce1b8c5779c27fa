"""The drops table: counts of what was lost, kept over restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import Drop

DropKey = tuple[int, str, str]
"""(attempt id or 0, stage, reason)"""


async def add_drops(connection: AsyncConnection, counts: Counter[DropKey]) -> None:
    """Add ``counts`` to what is stored; several processes may do so at once."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [
        {"attempt_id": attempt_id, "stage": stage, "reason": reason, "count": count}
        for (attempt_id, stage, reason), count in sorted(counts.items())
    ]
    for row in rows:
        made = insert(Drop).values(row)
        added = {"count": Drop.count + made.excluded.count}
        key = ["attempt_id", "stage", "reason"]
        await connection.execute(made.on_conflict_do_update(index_elements=key, set_=added))


async def read_drops(
    connection: AsyncConnection, attempt_ids: Iterable[int] | None = None
) -> Counter[DropKey]:
    """Return what was dropped, of some attempts or altogether."""
    query = select(Drop.attempt_id, Drop.stage, Drop.reason, Drop.count)
    if attempt_ids is not None:
        query = query.where(Drop.attempt_id.in_(list(attempt_ids)))
    rows = (await connection.execute(query)).all()
    return Counter({(row[0], row[1], row[2]): row[3] for row in rows})
