"""Gives pages that retention has freed back to the disk (SQLite)."""

from __future__ import annotations

from paceline_service.store.database import Database

FREE_SHARE = 0.1
FREE_BYTES = 16 << 20
"""Pages for the next frames stay in the file: to give them back and take them again costs twice."""
BATCH_BYTES = 8 << 20
MAX_BATCHES = 16
"""In one pass: each holds up the commits for some milliseconds."""


async def give_back(database: Database) -> int:
    """Shorten the file while much of it is free; return how many pages went.

    A file that was made before ``auto_vacuum`` was set keeps its pages (docs/operations.md).
    """
    given = 0
    for _ in range(MAX_BATCHES):
        async with database.write() as connection:

            async def ask(pragma: str) -> int:
                return int((await connection.exec_driver_sql(f"PRAGMA {pragma}")).scalar() or 0)

            if await ask("auto_vacuum") != 2:
                return 0
            free, size, pages = [
                await ask(name) for name in ("freelist_count", "page_size", "page_count")
            ]
            kept = max(int(pages * FREE_SHARE), FREE_BYTES // size)
            if free <= kept:
                return given
            count = min(BATCH_BYTES // size, free - kept)
            # A row a page, without columns: only a script is stepped to its end.
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None, "an open connection has one"
            await driver.executescript(f"PRAGMA incremental_vacuum({count})")
            given += count
    return given
