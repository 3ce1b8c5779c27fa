"""The parts that tell people of incidents, connected; they start and stop here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline.errors import PacelineError
from paceline_service.ending import end_tasks
from paceline_service.errors import StoreUnavailableError, UnknownChannelError
from paceline_service.incidents.silences import SilenceBook
from paceline_service.notify import outbox
from paceline_service.notify.changes import Rules
from paceline_service.notify.channels.base import Channel
from paceline_service.notify.channels.build import build_channels
from paceline_service.notify.dispatch import Dispatcher
from paceline_service.notify.facts import links_of
from paceline_service.notify.nodes.build import build_actions
from paceline_service.notify.result import Result
from paceline_service.notify.stats import NotifyStats
from paceline_service.notify.trial import send_trial
from paceline_service.notify.watch import Fence, Owns, Watch
from paceline_service.notify_settings import PROPOSE, NotifySettings
from paceline_service.store.database import Database

MAX_THREADS = 8
_log = structlog.get_logger("paceline.notify")


class Notifier:
    """Everything about messages of one collector.

    Args:
        settings: what is configured.
        database: where incidents are.
        book: the silences.
        page_url: where people reach the page.
        owns: whether this process looks after a job, as far as it knows.
        fence: the same for certain, within a transaction; None: it looks after all.

    Raises:
        ConfigError: a channel makes no sense.
    """

    def __init__(
        self,
        settings: NotifySettings,
        database: Database,
        book: SilenceBook,
        *,
        page_url: str,
        owns: Owns | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.channels: list[Channel] = build_channels(settings)
        self.stats = NotifyStats()
        self.links = links_of(settings, page_url)
        self._database = database
        self._alone = fence is None
        self._look_s = settings.notify_look_s
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="paceline-notify")
        rules = Rules(
            min_severity="info",
            after_ns=int(settings.notify_after_s * 1e9),
            update_gpu_s=settings.notify_update_gpu_hours * 3600,
        )
        self._watch = Watch(
            database, book, self.channels, rules, self.links, fence=fence,
            owns=owns or (lambda _: True),
        )  # fmt: skip
        self._actions = build_actions(settings, database, self._pool, fence)
        self._dispatchers = [
            Dispatcher(
                channel, database, self.stats, self._pool, fence=fence,
                per_minute=settings.notify_rate_per_minute, give_up_s=settings.notify_give_up_s,
            )
            for channel in self.channels
        ]  # fmt: skip
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is anything to do at all."""
        return bool(self.channels) or self._actions is not None

    @property
    def running(self) -> bool:
        """Whether it does what there is to do."""
        return not self.busy or (self._task is not None and not self._task.done())

    async def start(self) -> None:
        """Begin; the tables are there."""
        async with self._database.write() as connection:
            names = [one.name for one in self.channels]
            ended = await outbox.forget_channels(connection, names)
            if self._alone:
                await outbox.release(connection, time.time_ns())
        if ended:
            _log.warning("messages to channels that are not configured any more are not sent",
                         incidents=ended)  # fmt: skip
        if not self.busy:
            return
        for dispatcher in self._dispatchers:
            dispatcher.start()
        self._task = asyncio.create_task(self._run(), name="paceline-notify")
        mode = self._actions.mode if self._actions is not None else PROPOSE
        _log.info("messages are sent", channels=[one.name for one in self.channels], actions=mode)

    async def stop(self) -> None:
        """Finish what was begun, and end; what waits is sent after the next start."""
        await end_tasks(self._task)
        await asyncio.gather(*(one.stop() for one in self._dispatchers))
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def test(self, name: str) -> tuple[Channel, Result]:
        """Send a message that says that it is a test, at once and once.

        Raises:
            UnknownChannelError: there is no such channel.
        """
        channel = find_channel(self.channels, name)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(
            self._pool, send_trial, channel, self.links, time.time_ns()
        )
        self.stats.outcomes[channel.name, f"test_{result.verdict}"] += 1
        return channel, result

    async def _run(self) -> None:
        while True:
            try:
                found = await self._watch.look()
                for dispatcher in self._dispatchers:
                    dispatcher.wake()
                if self._actions is not None:
                    await self._actions.consider(found)
            except (SQLAlchemyError, OSError, StoreUnavailableError) as error:
                self.stats.failures += 1
                _log.error("incidents cannot be read; it is tried again", error=str(error))
            except PacelineError as error:
                self.stats.failures += 1
                _log.error("incidents cannot be told of; it is tried again", error=str(error))
            except Exception as error:
                self.stats.failures += 1
                _log.error("looking for news failed", exc_info=error)
            await asyncio.sleep(self._look_s)


def find_channel(channels: list[Channel], name: str) -> Channel:
    """Return the channel of that name.

    Raises:
        UnknownChannelError: there is none.
    """
    found: Mapping[str, Channel] = {one.name: one for one in channels}
    if name not in found:
        raise UnknownChannelError(
            f"no channel {name[:64]!r}; there are: {', '.join(sorted(found)) or 'none'} "
            "(docs/messages.md)"
        )
    return found[name]
