"""What has to be done now and then: raw frames are kept under their cap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.store.database import Database
from paceline_service.store.retention import delete_oldest, raw_bytes

PASS_S = 10.0
_log = structlog.get_logger("paceline.store")


class Housekeeping:
    """Runs in the background of the event loop.

    Args:
        database: what is kept tidy.
        raw_retention_bytes: cap of the raw frames.
        on_deleted: told below which number the frames of each incarnation are gone.
        on_pass: called after every pass.
    """

    def __init__(
        self,
        database: Database,
        *,
        raw_retention_bytes: int,
        on_deleted: Callable[[dict[int, int]], None],
        on_pass: Callable[[], None],
    ) -> None:
        self._database = database
        self._cap_bytes = raw_retention_bytes
        self._on_deleted = on_deleted
        self._on_pass = on_pass
        self._task: asyncio.Task[None] | None = None
        self.raw_bytes = 0

    async def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="paceline-housekeeping")

    async def stop(self) -> None:
        """End, between two transactions or with the present one taken back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def enforce_retention(self) -> None:
        """Delete the oldest raw frames while there are more than the cap."""
        while True:
            async with self._database.read() as connection:
                self.raw_bytes = await raw_bytes(connection)
            excess = self.raw_bytes - self._cap_bytes
            if excess <= 0:
                return
            async with self._database.write() as connection:
                deleted = await delete_oldest(connection, excess)
            if not deleted.frames:
                return
            self._on_deleted(deleted.low_seqs)
            _log.info("raw frames deleted", frames=deleted.frames, records=deleted.records)

    async def _run(self) -> None:
        while True:
            try:
                await self.enforce_retention()
                self._on_pass()
            except (SQLAlchemyError, OSError) as error:
                _log.error("retention failed; it is tried again", error=str(error))
            await asyncio.sleep(PASS_S)
