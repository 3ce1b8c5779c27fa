"""How much disk the database of a collector takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine


def stored_bytes(directory: Path, database: str) -> int:
    """Return the bytes of the database: files of SQLite, else what PostgreSQL says.

    Args:
        directory: the state directory of the collector.
        database: its URL; empty for the SQLite file.
    """
    if not database or database.startswith("sqlite"):
        return sum(file.stat().st_size for file in directory.glob("*.db*"))
    return asyncio.run(_postgresql_bytes(database))


async def _postgresql_bytes(database: str) -> int:
    url = database.replace("postgresql:", "postgresql+asyncpg:", 1)
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:
            size = await connection.execute(text("select pg_database_size(current_database())"))
            return int(size.scalar_one())
    finally:
        await engine.dispose()
