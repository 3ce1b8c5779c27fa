"""Delivers the messages of one channel: one after the other, again after a while where it fails.

A message is taken for an attempt before it is sent, and what became of it is stored afterwards.
A process that ends between the two leaves a message that may have arrived: it is sent again as it
was, with the same idempotency key. Nothing is sent twice knowingly.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from concurrent.futures import Executor
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.ending import end_tasks
from paceline_service.errors import StoreUnavailableError
from paceline_service.notify import outbox
from paceline_service.notify.channels.base import Channel
from paceline_service.notify.message import Message, unpack
from paceline_service.notify.outbox import FAILED, OVER, TOLD, Row
from paceline_service.notify.rate import Bucket
from paceline_service.notify.result import Result
from paceline_service.notify.stats import NotifyStats
from paceline_service.notify.watch import Fence
from paceline_service.store.database import Database

LOOK_S = 1.0
CLAIM_NS = 60 * 10**9
"""An attempt takes less; after it the process that made it has ended."""
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 300.0
FINISH_S = 5.0
"""At the end an attempt that was begun may take so long."""
_log = structlog.get_logger("paceline.notify")


class Dispatcher:
    """The task that sends to one channel.

    Args:
        channel: the receiver.
        database: where the outbox is.
        stats: what is counted.
        pool: threads that wait for receivers.
        fence: where several processes send: asked before each attempt.
        per_minute: most messages.
        give_up_s: a message is tried for so long.
    """

    def __init__(
        self,
        channel: Channel,
        database: Database,
        stats: NotifyStats,
        pool: Executor,
        *,
        fence: Fence | None,
        per_minute: float,
        give_up_s: float,
    ) -> None:
        self._channel = channel
        self._database = database
        self._stats = stats
        self._pool = pool
        self._fence = fence
        self._bucket = Bucket(per_minute)
        self._give_up_ns = int(give_up_s * 1e9)
        self._news = asyncio.Event()
        self._pause_until_mono_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name=f"paceline-notify-{self._channel.name}")

    async def stop(self) -> None:
        """Finish the attempt that was begun, and end."""
        if self._sending is not None:
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError, Exception):
                await asyncio.wait_for(asyncio.shield(self._sending), FINISH_S)
        await end_tasks(self._task, self._sending)

    def wake(self) -> None:
        """Look at once: there is something new."""
        self._news.set()

    async def round(self) -> None:
        """Send what is due."""
        async with self._database.read() as connection:
            rows = await outbox.waiting(connection, self._channel.name)
        self._stats.waiting[self._channel.name] = len(rows)
        for row in rows:
            if row.next_wall_ns > time.time_ns():
                break  # they are in the order of their times
            if time.monotonic() < self._pause_until_mono_s:
                break
            # What only keeps an alert open is no news, and must not come too late.
            if '"event":"still-open"' not in row.message[:64] and not self._bucket.take():
                continue
            self._sending = asyncio.create_task(self._attempt(row))
            try:
                await asyncio.shield(self._sending)
            finally:
                if self._sending.done():
                    self._sending = None

    async def _attempt(self, row: Row) -> None:
        async with self._database.write() as connection:
            if self._fence is not None and await self._fence(connection, {row.job}):
                return
            if not await outbox.claim(connection, row, time.time_ns() + CLAIM_NS):
                return
        message = unpack(row.message)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(
            self._pool, self._channel.send, message, row.thread
        )  # fmt: skip
        values = self._after(row, message, result)
        async with self._database.write() as connection:
            await outbox.change(connection, row, values)
        if "state" in values:
            self._stats.waiting[self._channel.name] -= 1

    def _after(self, row: Row, message: Message, result: Result) -> dict[str, Any]:
        """Return what is stored of an attempt."""
        now_ns = time.time_ns()
        last = OVER if message.event == "resolved" else FAILED
        if result.verdict == "delivered":
            self._pause_until_mono_s = 0.0
            self._count("refreshed" if message.event == "still-open" else "delivered")
            if message.event != "still-open":
                _log.info("message delivered", channel=self._channel.name, message=message.id,
                          incident_event=message.event)  # fmt: skip
            return {
                "state": OVER if message.event == "resolved" else TOLD,
                "delivered": row.delivered + 1,
                "told_wall_ns": now_ns,
                "thread": row.thread if result.thread is None else result.thread[:256],
                "last_error": "",
            }
        told = {"last_error": result.reason[:512]}
        if result.verdict == "refused":
            self._complain("a message is refused", "refused", message, result)
            return {**told, "state": last, "told_wall_ns": now_ns}
        if now_ns - row.made_wall_ns >= self._give_up_ns:
            self._complain("a message is given up", "given_up", message, result)
            return {**told, "state": last, "told_wall_ns": now_ns}
        wait_s = max(result.after_s, backoff_s(row.attempts))
        self._pause_until_mono_s = time.monotonic() + wait_s
        self._complain("a message is not delivered; it is tried again", "again", message, result)
        return {
            **told,
            "next_wall_ns": now_ns + int(wait_s * 1e9),
            "uncertain": row.uncertain or result.uncertain,
        }

    def _complain(self, words: str, outcome: str, message: Message, result: Result) -> None:
        self._count(outcome)
        _log.warning(words, channel=self._channel.name, message=message.id, error=result.reason)

    def _count(self, outcome: str) -> None:
        self._stats.outcomes[self._channel.name, outcome] += 1

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except (SQLAlchemyError, OSError, StoreUnavailableError) as error:
                self._stats.failures += 1
                _log.error("the outbox cannot be read or written; it is tried again",
                           channel=self._channel.name, error=str(error))  # fmt: skip
            except Exception as error:
                self._stats.failures += 1
                _log.error("sending messages failed", channel=self._channel.name, exc_info=error)
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_S)
            self._news.clear()


def backoff_s(attempts: int) -> float:
    """Return how long to wait after so many attempts before this one; never the same twice."""
    return min(FIRST_BACKOFF_S * 2.0 ** min(attempts, 16), MAX_BACKOFF_S) * random.uniform(0.7, 1.0)
