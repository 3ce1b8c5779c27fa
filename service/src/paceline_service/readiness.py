"""Whether frames are stored and analysed at present, and in words what is wrong if not."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.collector import Collector
from paceline_service.store.database import Database

STALLED_S = 30.0
"""Without a tick for this long the analysis is stuck, or far too slow."""
DATABASE_CHECK_S = 2.0
RECENT_COMMIT_S = 5.0
"""A transaction that ended well so lately shows that the database can be written."""
LEAST_FREE_BYTES = 64 << 20
"""With less space than this the next commits will fail."""
Checks = dict[str, str]
"""By name: what is wrong; empty where nothing is."""


async def readiness(collector: Collector) -> Checks:
    """Return every check; the collector is ready when all are empty."""
    checks = collector.bus.readiness() if collector.bus is not None else {}
    if not collector.analyses:
        # Frames are taken while the database is away, and what is read is refused by itself.
        return checks
    commits, persister = collector.commits, collector.persister
    return {
        **checks,
        "database": await _database(collector),
        "disk": _disk(collector.database),
        "commits": _unless(commits.running, "the task that writes frames has ended")
        or (f"the last commit failed: {commits.stats.last_error}" * bool(commits.stats.last_error)),
        "analysis": _analysis(collector),
        "backlog": _unless(
            collector.engine.has_room,
            f"{collector.engine.backlog_bytes} bytes wait for their analysis; the limit is "
            f"{collector.settings.backlog_bytes}",
        ),
        "persister": _unless(persister.running, "the task that writes steps and states has ended"),
        "rebuilt": _unless(
            collector.rebuilt, "the jobs of the process before this one are being analysed again"
        ),
    }


def free_bytes(database: Database) -> int | None:
    """Return the free space beside a SQLite file; None where that is not known."""
    if not database.is_sqlite or not database.url.database:
        return None
    try:
        return shutil.disk_usage(Path(database.url.database).parent).free
    except OSError:
        return None


def _unless(fine: bool, words: str) -> str:
    return "" if fine else words


def _disk(database: Database) -> str:
    free = free_bytes(database)
    return _unless(
        free is None or free >= LEAST_FREE_BYTES,
        f"{free} bytes are free beside the database; commits need {LEAST_FREE_BYTES}",
    )


def _analysis(collector: Collector) -> str:
    if not collector.engine.alive:
        return "the thread that analyses has ended"
    silent_s = time.monotonic() - collector.engine.stats.last_tick_mono_s
    if collector.rebuilt and silent_s > STALLED_S:
        return f"no round of the analysis has ended for {silent_s:.0f} s"
    return ""


async def _database(collector: Collector) -> str:
    if time.monotonic() - collector.commits.stats.last_commit_mono_s < RECENT_COMMIT_S:
        return ""
    try:
        await asyncio.wait_for(_write_nothing(collector.database), DATABASE_CHECK_S)
    except (asyncio.TimeoutError, TimeoutError):
        return f"the database did not take a transaction within {DATABASE_CHECK_S:g} s"
    except (SQLAlchemyError, OSError) as error:
        return f"the database takes no transaction: {str(error).splitlines()[0][:300]}"
    return ""


async def _write_nothing(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(text("DELETE FROM drops WHERE 1 = 0"))
