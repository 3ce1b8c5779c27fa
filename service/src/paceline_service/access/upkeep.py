"""What access does now and then: it stores when tokens were used, and forgets old audit entries."""

from __future__ import annotations

import asyncio
import contextlib
import time

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.access import audit
from paceline_service.access.known import KnownTokens
from paceline_service.store.database import Database

USED_PERIOD_S = 60.0
AUDIT_PERIOD_S = 3600.0
_log = structlog.get_logger("paceline.access")


class Upkeep:
    """A task of the collector."""

    def __init__(
        self, database: Database, tokens: KnownTokens, *, audit_retention_days: float
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._audit_kept_ns = int(audit_retention_days * 86_400e9)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="paceline-access-upkeep")

    async def stop(self) -> None:
        """Store what is still to be stored, and end."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(SQLAlchemyError, OSError):  # it is only when tokens were used
            await self._tokens.write_used()

    async def _run(self) -> None:
        pruned_mono_s = float("-inf")
        while True:
            try:
                if time.monotonic() - pruned_mono_s >= AUDIT_PERIOD_S:
                    async with self._database.write() as connection:
                        before_ns = time.time_ns() - self._audit_kept_ns
                        gone = await audit.forget_before(connection, before_ns)
                    pruned_mono_s = time.monotonic()
                    if gone:
                        _log.info("old audit entries deleted", count=gone)
                await self._tokens.write_used()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("access cannot write; it tries again", error=str(error)[:200])
            await asyncio.sleep(USED_PERIOD_S)
