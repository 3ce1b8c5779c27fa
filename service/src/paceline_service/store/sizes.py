"""How much the tables hold, as retention counts it: kept beside the rows, changed with them."""

from __future__ import annotations

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import StoredSize

STEPS, LANES, WINDOWS = "step_summaries", "lanes", "rank_windows"
ROW_BYTES = {STEPS: 64, LANES: 56, WINDOWS: 96}
"""What a row takes in a SQLite file, beside its blob; measured, keys included."""
POSTGRESQL_FACTOR = {STEPS: 1, LANES: 3, WINDOWS: 2}
"""How many times as much it takes on PostgreSQL; measured too."""


async def stored_bytes(connection: AsyncConnection, table: str) -> int:
    """Return what the rows of a table take."""
    query = select(StoredSize.bytes).where(StoredSize.name == table)
    counted = (await connection.execute(query)).scalar() or 0
    return counted * (1 if connection.dialect.name == "sqlite" else POSTGRESQL_FACTOR[table])


async def add_bytes(connection: AsyncConnection, table: str, change: int) -> None:
    """Count rows that were added, or with a negative ``change`` deleted: ``ROW_BYTES`` each."""
    if not change:
        return
    grown = await connection.execute(
        update(StoredSize).where(StoredSize.name == table).values(bytes=StoredSize.bytes + change)
    )
    if not grown.rowcount:
        await connection.execute(insert(StoredSize).values(name=table, bytes=max(change, 0)))
