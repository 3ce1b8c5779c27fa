"""What access does now and then: noting when tokens were used and what was refused, forgetting."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.access import audit
from paceline_service.access.guard import Guard
from paceline_service.ending import end_tasks
from paceline_service.store.database import Database
from paceline_service.store.steady_clock import SteadyClock

USED_PERIOD_S = 60.0
AUDIT_PERIOD_S = 3600.0
_log = structlog.get_logger("paceline.access")


class Upkeep:
    """A task of the collector."""

    def __init__(self, database: Database, guard: Guard, *, audit_retention_days: float) -> None:
        self._database = database
        self._guard = guard
        self._tokens = guard.tokens
        self._told: Counter[str] = Counter()
        self._audit_kept_ns = int(audit_retention_days * 86_400e9)
        self._clock = SteadyClock(quiet=True)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="paceline-access-upkeep")

    async def stop(self) -> None:
        """Store what is still to be stored, and end."""
        if self._task is None:
            return
        await end_tasks(self._task)
        with contextlib.suppress(SQLAlchemyError, OSError):  # it is only when tokens were used
            await self._tokens.write_used()
        self.tell_refused()

    def tell_refused(self) -> None:
        """Log what was refused since the last time, one line a reason: a flood makes no flood."""
        for reason, count in self._guard.refused.items():
            more = count - self._told[reason]
            if more:
                last = self._guard.refused_from.get(reason, "")
                _log.warning("requests refused", reason=reason, count=more, last_address=last)
            self._told[reason] = count

    async def forget_old(self) -> int:
        """Delete audit entries that are too old; return how many."""
        async with self._database.write() as connection:
            return await audit.forget_before(connection, self._clock.now_ns() - self._audit_kept_ns)

    async def _run(self) -> None:
        pruned_mono_s = float("-inf")
        while True:
            try:
                if time.monotonic() - pruned_mono_s >= AUDIT_PERIOD_S:
                    gone = await self.forget_old()
                    pruned_mono_s = time.monotonic()
                    if gone:
                        _log.info("old audit entries deleted", count=gone)
                self.tell_refused()
                await self._tokens.write_used()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("access cannot write; it tries again", error=str(error)[:200])
            await asyncio.sleep(USED_PERIOD_S)
