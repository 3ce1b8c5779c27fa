"""Copies everything from one database into another, empty one: from SQLite to PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from sqlalchemy import Table, delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.store.database import Database
from paceline_service.store.models import Base, StoredSize

BATCH_ROWS = 500
LEFT_OUT = frozenset({"checkpoints", "checkpoint_parts", "leases", "analyzers"})
"""They say how far processes have come; the frames bring it back."""


async def copy_all(
    source: Database, target: Database, told: Callable[[str, int], None]
) -> dict[str, int]:
    """Copy every row, in one transaction of ``target``; both have the newest schema.

    Args:
        source: it is only read; nobody else may write it meanwhile.
        target: it must be empty.
        told: called with the name of each table and how many rows it had.

    Raises:
        ConfigError: ``target`` holds something.
    """
    tables = [table for table in Base.metadata.sorted_tables if table.name not in LEFT_OUT]
    counts: dict[str, int] = {}
    async with source.read() as reading, target.write() as writing:
        for table in tables:
            await _refuse_rows(writing, table)
        await writing.execute(delete(StoredSize))
        for table in tables:
            counts[table.name] = 0
            async for rows in _batches(reading, table):
                await writing.execute(insert(table), rows)
                counts[table.name] += len(rows)
            told(table.name, counts[table.name])
        if not target.is_sqlite:
            await _go_on_counting(writing, tables)
    return counts


async def _refuse_rows(connection: AsyncConnection, table: Table) -> None:
    if table is StoredSize.__table__:
        return  # its rows are made with the schema
    count = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
    if count:
        raise ConfigError(
            f"the database to copy into holds {counted(count, 'row')} of {table.name}; give an "
            "empty one"
        )


async def _batches(
    connection: AsyncConnection, table: Table
) -> AsyncIterator[list[dict[str, Any]]]:
    result = await connection.stream(select(table))
    async for rows in result.mappings().partitions(BATCH_ROWS):
        yield [dict(row) for row in rows]


async def _go_on_counting(connection: AsyncConnection, tables: list[Table]) -> None:
    """Let the sequences of PostgreSQL go on behind the numbers that were copied."""
    for table in tables:
        if list(table.primary_key.columns.keys()) == ["id"] and table.name != "frames":
            await connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), "
                    f"COALESCE((SELECT MAX(id) FROM {table.name}), 0) + 1, false)"
                )
            )
    await connection.execute(
        text(
            "SELECT setval('frame_ids', GREATEST((SELECT MAX(id) FROM frames), "
            "(SELECT MAX(last_frame_id) FROM job_attempts), 0) + 1, false)"
        )
    )
