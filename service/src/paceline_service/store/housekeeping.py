"""What has to be done now and then: everything that is stored is kept under its limits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.ending import end_tasks
from paceline_service.store import attempts, expiry, partitions
from paceline_service.store.advisory import HOUSEKEEPING
from paceline_service.store.database import Database
from paceline_service.store.drops import add_drops
from paceline_service.store.expiry import Limit
from paceline_service.store.retention import (
    PARTITIONS_OF_CAP,
    Deleted,
    delete_oldest,
    drop_oldest,
    forget_bytes_without_frames,
    raw_bytes,
)  # fmt: skip
from paceline_service.store.settings import StoreSettings
from paceline_service.store.sizes import LANES, STEPS, WINDOWS
from paceline_service.store.steady_clock import SteadyClock
from paceline_service.store.vacuum import give_back

PASS_S = 10.0
DERIVED_S = 60.0
"""How often everything but the raw frames is looked at."""
IDLE_S = 3600.0
"""An attempt that was heard of since then is never deleted."""
DAY_NS = 86_400 * 10**9
_log = structlog.get_logger("paceline.store")


class _NotNowError(Exception):
    """Another process does it."""


class Housekeeping:
    """Runs in the background of the event loop; of several processes one at a time does it.

    Args:
        database: what is kept tidy.
        settings: the limits.
        on_deleted: told below which number the frames of each incarnation are gone.
        on_pass: called after every pass.
    """

    def __init__(
        self,
        database: Database,
        settings: StoreSettings,
        *,
        on_deleted: Callable[[dict[int, int]], None],
        on_pass: Callable[[], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._on_deleted = on_deleted
        self._on_pass = on_pass
        self._task: asyncio.Task[None] | None = None
        self._derived_mono_s = float("-inf")
        self._clock = SteadyClock()
        self._looked = False
        self.raw_bytes = 0
        self.failures = 0

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="paceline-housekeeping")

    async def stop(self) -> None:
        """End, between two transactions or with the present one taken back."""
        await end_tasks(self._task)

    async def pass_once(self, *, derived: bool = True) -> None:
        """Do everything that is due now; ``derived`` takes in what is not raw frames."""
        try:
            if not self._database.is_sqlite:
                await self._make_partitions()
            await self.enforce_retention()
            if derived:
                await self._expire_derived()
            if self._database.is_sqlite:
                await give_back(self._database)
        except _NotNowError:
            async with self._database.read() as connection:
                self.raw_bytes = await raw_bytes(connection)

    async def enforce_retention(self) -> None:
        """Delete the oldest raw frames while there are too many, or too old ones."""
        while True:
            async with self._turn() as connection:
                if not self._looked:
                    await forget_bytes_without_frames(connection)
                    self._looked = True
                self.raw_bytes = await raw_bytes(connection)
                deleted = await self._delete_frames(connection)
            if deleted is None:
                return
            self._on_deleted(deleted.low_seqs)
            _log.info("raw frames deleted", frames=deleted.frames, records=deleted.records)

    async def _delete_frames(self, connection: AsyncConnection) -> Deleted | None:
        cap_bytes = self._settings.raw_retention_bytes
        excess_bytes = self.raw_bytes - cap_bytes
        before_ns = self._since(self._settings.raw_retention_days)
        deleted = None
        if not self._database.is_sqlite:
            deleted = await drop_oldest(connection, excess_bytes, cap_bytes, before_ns)
        if deleted is None:
            deleted = await delete_oldest(connection, excess_bytes, before_ns)
            if not deleted.frames:
                return None
        return deleted

    async def _make_partitions(self) -> None:
        settings = self._settings
        age_ns = int(settings.raw_retention_days * DAY_NS) // PARTITIONS_OF_CAP
        async with self._turn() as connection:
            await partitions.wait_briefly(connection)
            await partitions.frames_ahead(
                connection,
                full_bytes=settings.raw_retention_bytes // PARTITIONS_OF_CAP,
                oldest_wall_ns=time.time_ns() - age_ns,
            )
            for name in partitions.SPANS_NS:
                await partitions.spans_ahead(connection, name, time.time_ns())

    async def _expire_derived(self) -> None:
        settings = self._settings
        limits = {
            STEPS: self._limit(settings.steps_retention_bytes, settings.steps_retention_days),
            LANES: self._limit(settings.lanes_retention_bytes, settings.lanes_retention_days),
            WINDOWS: self._limit(settings.windows_retention_bytes, settings.windows_retention_days),
        }
        for name, limit in limits.items():
            if not self._database.is_sqlite and name in partitions.SPANS_NS:
                await self._until_done(f"retention_{name}", expiry.drop_spans, name, limit)
            else:
                await self._until_done(f"retention_{name}", expiry.expire_rows, name, limit)
        limit = self._limit(settings.incidents_retention_bytes, settings.incidents_retention_days)
        await self._until_done("retention_incidents", expiry.expire_incidents, limit)
        since_ns = self._since(settings.offences_retention_days)
        async with self._turn() as connection:
            await expiry.expire_offences(connection, since_ns)
        await self._expire_attempts()

    async def _until_done(
        self, reason: str, work: Callable[..., Awaitable[int]], *arguments: object
    ) -> None:
        """Delete batch after batch, and count what went."""
        while True:
            async with self._turn() as connection:
                rows = await work(connection, *arguments)
                if rows:
                    await add_drops(connection, Counter({(0, "store", reason): rows}))
            if not rows:
                return
            _log.info("deleted", reason=reason, rows=rows)

    async def _expire_attempts(self) -> None:
        settings = self._settings
        limit = self._limit(settings.attempts_retention_bytes, settings.attempts_retention_days)
        idle_ns = self._clock.now_ns() - int(IDLE_S * 1e9)
        while True:
            async with self._turn() as connection:
                attempt_id = await attempts.oldest_attempt(connection, limit, idle_ns)
                if attempt_id is None:
                    return
                if not await attempts.delete_attempt(connection, attempt_id):
                    continue
                drops = Counter({(0, "store", "retention_attempts"): 1})
                await add_drops(connection, drops)
            _log.info("an attempt was deleted", attempt_id=attempt_id)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[AsyncConnection]:
        """A transaction of which no other process has one at the same time."""
        async with self._database.write() as connection:
            if not self._database.is_sqlite:
                query = text(f"SELECT pg_try_advisory_xact_lock({HOUSEKEEPING})")
                if not (await connection.execute(query)).scalar():
                    raise _NotNowError
            yield connection

    def _since(self, days: float) -> int:
        return self._clock.now_ns() - int(days * DAY_NS)

    def _limit(self, size: int, days: float) -> Limit:
        return Limit(bytes=size, since_wall_ns=self._since(days))

    async def _run(self) -> None:
        while True:
            derived = time.monotonic() - self._derived_mono_s >= DERIVED_S
            try:
                await self.pass_once(derived=derived)
                if derived:
                    self._derived_mono_s = time.monotonic()
                self._on_pass()
            except Exception as error:
                self.failures += 1
                _log.error("housekeeping failed; it is tried again", error=str(error))
            await asyncio.sleep(PASS_S)
