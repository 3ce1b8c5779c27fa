"""The process that analyses large jobs: an engine, and its channel to the collector."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import socket
import sys
import threading

from paceline_service.jobs.apart import Channel, Forget, Frames, Load, Note, State, Stop, thin
from paceline_service.jobs.engine import Engine
from paceline_service.jobs.making import analyses
from paceline_service.jobs.snapshot import Json, Update
from paceline_service.jobs.source import stored_frames
from paceline_service.jobs.steps import RecentSteps
from paceline_service.logs import configure_logging
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database

STATE_S = 0.25
TICK_S = 0.15
"""Shorter than in the collector: there are few jobs to look at, and their verdicts take long."""
RETELL_S = 1.0
GC_THRESHOLDS = (50_000, 20, 20)
"""As in the collector (``serve``)."""


class _Process:
    """Lives on the event loop of the process.

    Args:
        channel: to the collector.
        settings: of the collector.
    """

    def __init__(self, channel: Channel, settings: CollectorSettings) -> None:
        self._channel = channel
        self._database = Database(settings.database_url)
        self._engine = Engine(
            settings,
            stored_frames(self._database),
            self._publish,
            self._forget,
            analyses(settings),
            tick_s=TICK_S,
            retell_s=RETELL_S,
            checkpoints_in_copy=True,
        )
        self._known_ranks: dict[int, list[Json]] = {}
        self._recent: dict[int, tuple[int, RecentSteps | None]] = {}
        """Of each attempt: which analysis of it this is, and its recent steps."""
        self._analyses = itertools.count()
        self._taken_bytes = 0
        self._loads: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Work until the collector says that it is enough, or is gone."""
        self._engine.start()
        loop = asyncio.get_running_loop()
        reader = threading.Thread(target=self._read, args=(loop,), daemon=True)
        reader.start()
        while not self._stop.is_set():
            self._tell_state()
            try:
                await asyncio.wait_for(self._stop.wait(), STATE_S)
            except (asyncio.TimeoutError, TimeoutError):
                continue
        await self._engine.stop()
        self._tell_state()
        self._channel.send(Stop())
        await asyncio.to_thread(self._channel.drain)
        await self._database.close()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                message = self._channel.receive()
            except EOFError:
                os._exit(1)  # nobody is left to tell anything to
            if isinstance(message, Frames):
                frames = message.committed()
                self._taken_bytes += sum(one.packed_bytes for one in frames)
                self._engine.put(frames)
            elif isinstance(message, Note):
                self._engine.note(message.attempt_id, message.text)
            elif isinstance(message, Load):
                loop.call_soon_threadsafe(self._begin_load, message)
            elif isinstance(message, Stop):
                loop.call_soon_threadsafe(self._stop.set)

    def _begin_load(self, request: Load) -> None:
        async def load() -> None:
            await self._engine.load(request.attempt)
            self._channel.send(request)

        task = asyncio.get_running_loop().create_task(load())
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    def _publish(self, update: Update) -> None:
        snapshot = update.snapshot
        attempt_id = snapshot.attempt.id
        begun, recent = self._recent.get(attempt_id, (-1, None))
        if recent is not snapshot.recent:
            begun = next(self._analyses)
            self._recent[attempt_id] = begun, snapshot.recent
        self._channel.send(thin(update, begun, self._known_ranks.get(attempt_id)))
        self._known_ranks[attempt_id] = snapshot.ranks

    def _forget(self, attempt_id: int) -> None:
        self._known_ranks.pop(attempt_id, None)
        self._recent.pop(attempt_id, None)
        self._channel.send(Forget(attempt_id=attempt_id))

    def _tell_state(self) -> None:
        engine = self._engine
        self._channel.send(
            State(
                stats=engine.stats, checkpoints=engine.checkpoints.stats,
                backlog_bytes=engine.backlog_bytes, taken_bytes=self._taken_bytes,
            )
        )  # fmt: skip


def main(descriptor: int) -> None:
    """Serve the collector at the other end of the socket ``descriptor``."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the collector says when to stop
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no copy's end could be waited for
    gc.set_threshold(*GC_THRESHOLDS)
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        settings = channel.receive()
    except EOFError:
        return
    assert isinstance(settings, CollectorSettings), "the first message is the settings"
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_Process(channel, settings).run())


if __name__ == "__main__":
    main(int(sys.argv[1]))
