"""An engine in another process, seen from the collector, and who is analysed where."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from socket import socket, socketpair

import structlog

from paceline_service.jobs.apart import (
    Channel,
    Forget,
    Frames,
    Load,
    Note,
    Published,
    State,
    Stop,
    report_of,
)
from paceline_service.jobs.checkpoint import CheckpointStats
from paceline_service.jobs.engine import Engine
from paceline_service.jobs.engine_stats import EngineStats
from paceline_service.jobs.snapshot import Json, Snapshot, Update
from paceline_service.jobs.steps import RecentSteps
from paceline_service.settings import CollectorSettings
from paceline_service.store.frames import AttemptRef, CommittedFrame

RESTART_S = 2.0
"""After the process died; twice as long after each time that it dies soon again."""
MAX_RESTART_S = 60.0
STOP_S = 120.0
_PROCESS = "paceline_service.jobs.apart_process"
_log = structlog.get_logger("paceline.apart")


@dataclass(slots=True)
class Checkpoints:
    """Where the counts of checkpoints are, as in an engine."""

    stats: CheckpointStats


class ApartEngine:
    """Has attempts analysed in a process of its own, which begins with the first of them.

    Should it die, another one takes them up from the store, as a collector does that starts.

    Args:
        settings: of the collector.
        publish: called on the event loop with every update.
        forget: called on the event loop when an attempt (its id) leaves memory.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        publish: Callable[[Update], None],
        forget: Callable[[int], None],
    ) -> None:
        self.stats = EngineStats()
        self.checkpoint_stats = CheckpointStats()
        self.rebuilding = 0
        self._settings = settings
        self._publish = publish
        self._forget = forget
        self._channel: Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._stopping = False
        self._restart: asyncio.TimerHandle | None = None
        self._restart_s = RESTART_S
        self._started_mono_s = 0.0
        self._attempts: dict[int, AttemptRef] = {}
        self._snapshots: dict[int, tuple[int, Snapshot]] = {}
        """Of each attempt: which analysis of it, and the newest that it published."""
        self._loads: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count()
        self._sent_bytes = 0
        self._backlog_there = 0
        self._taken_bytes = 0

    @property
    def pid(self) -> int:
        """The process id, 0 where none runs."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._channel is not None

    @property
    def backlog_bytes(self) -> int:
        """How much was handed in and is not analysed."""
        return self._sent_bytes - self._taken_bytes + self._backlog_there

    def start(self) -> None:
        """Called on the event loop that it works with; the process begins when it is needed."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Have everything analysed that was handed in, publish it, and end."""
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()
        process, ended = self._process, self._ended
        if self._channel is None or process is None or ended is None:
            return
        self._channel.send(Stop())
        try:
            await asyncio.wait_for(ended.wait(), STOP_S)
        except (asyncio.TimeoutError, TimeoutError):
            _log.error("the analysis process does not stop; it is killed", pid=process.pid)
            process.kill()
            await ended.wait()

    def put(self, frames: list[CommittedFrame]) -> None:
        """Hand in frames that are durable, in the order of commits."""
        for one in frames:
            self._attempts[one.attempt.id] = one.attempt
        channel = self._running_channel()
        if channel is not None:  # else they are read from the store when it runs again
            self._sent_bytes += sum(one.packed_bytes for one in frames)
            channel.send(Frames.of(frames))

    def note(self, attempt_id: int, text: str) -> None:
        """Let the report of an attempt say ``text``; where it is not in memory nothing happens."""
        if self._channel is not None:
            self._channel.send(Note(attempt_id=attempt_id, text=text))

    async def load(self, attempt: AttemptRef) -> None:
        """Bring an attempt into memory by reading its frames again; return when published."""
        self._attempts[attempt.id] = attempt
        channel = self._running_channel()
        if channel is None:
            return
        number = next(self._numbers)
        done = self._loads[number] = asyncio.get_running_loop().create_future()
        self.rebuilding += 1
        try:
            channel.send(Load(number=number, attempt=attempt))
            await done
        finally:
            self.rebuilding -= 1
            self._loads.pop(number, None)

    def _running_channel(self) -> Channel | None:
        if self._channel is None and self._restart is None and not self._stopping:
            self._start_process()
        return self._channel

    def _start_process(self) -> None:
        assert self._loop is not None, "start() comes first"
        try:
            ours, self._process = _begun()
        except OSError as error:  # too many processes or files, or no memory for one more
            self._try_later("large jobs are not analysed: no process", error=str(error))
            return
        self._channel = Channel(ours)
        self._channel.send(self._settings)
        self._ended = asyncio.Event()
        self._sent_bytes = self._taken_bytes = self._backlog_there = 0
        self._started_mono_s = self.stats.last_tick_mono_s = time.monotonic()
        arguments = (self._channel, self._process, self._loop)
        threading.Thread(
            target=self._read, args=arguments, name="paceline-apart", daemon=True
        ).start()
        _log.info("large jobs are analysed in a process of their own", pid=self._process.pid)

    def _read(
        self, channel: Channel, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Take what the process says until it ends; in a thread."""
        while True:
            try:
                message = channel.receive()
            except EOFError:
                break
            if isinstance(message, Published):
                loop.call_soon_threadsafe(self._take_update, message, report_of(message))
            else:
                loop.call_soon_threadsafe(self._take, message)
        status = process.wait()
        channel.close()
        loop.call_soon_threadsafe(self._gone, status)

    def _take(self, message: object) -> None:
        if isinstance(message, State):
            self.stats, self.checkpoint_stats = message.stats, message.checkpoints
            self._backlog_there = message.backlog_bytes
            self._taken_bytes = message.taken_bytes
        elif isinstance(message, Load):
            self._wake(message.number)
        elif isinstance(message, Forget):
            self._attempts.pop(message.attempt_id, None)
            self._snapshots.pop(message.attempt_id, None)
            self._forget(message.attempt_id)

    def _take_update(self, published: Published, report: Json) -> None:
        """Put together again what ``thin`` took apart."""
        update = published.update
        attempt_id = update.snapshot.attempt.id
        begun, before = self._snapshots.get(attempt_id, (-1, None))
        recent = before.recent if before is not None and begun == published.begun else None
        recent = recent or RecentSteps(published.recent_limit)
        recent.extend(update.steps)
        changes: Json = {"report": report, "recent": recent}
        if published.same_ranks and before is not None:
            changes |= {"ranks": before.ranks, "nodes": before.nodes}
        snapshot = replace(update.snapshot, **changes)
        self._snapshots[attempt_id] = published.begun, snapshot
        self._publish(replace(update, snapshot=snapshot))

    def _gone(self, status: int) -> None:
        """The process has ended."""
        self._channel = self._process = None
        self._sent_bytes = self._taken_bytes = self._backlog_there = 0
        self._snapshots.clear()
        for number in list(self._loads):
            self._wake(number)
        if self._ended is not None:
            self._ended.set()
        if self._stopping:
            return
        if time.monotonic() - self._started_mono_s > MAX_RESTART_S:
            self._restart_s = RESTART_S
        self._try_later(
            "the analysis process died; its jobs are analysed again from the store", status=status
        )

    def _try_later(self, what: str, **facts: object) -> None:
        assert self._loop is not None, "start() comes first"
        delay_s, self._restart_s = self._restart_s, min(2 * self._restart_s, MAX_RESTART_S)
        _log.error(what, jobs=len(self._attempts), seconds=delay_s, **facts)
        self._restart = self._loop.call_later(delay_s, self._begin_again)

    def _begin_again(self) -> None:
        self._restart = None
        if not self._attempts:
            return
        channel = self._running_channel()
        if channel is None:
            return
        for attempt in self._attempts.values():
            channel.send(Load(number=next(self._numbers), attempt=attempt))

    def _wake(self, number: int) -> None:
        done = self._loads.get(number)
        if done is not None and not done.done():
            done.set_result(None)


def _begun() -> tuple[socket, subprocess.Popen[bytes]]:
    """Return a new process, and this end of what connects it."""
    ours, theirs = socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            ours.close()
            raise
    return ours, process


class Engines:
    """Has most jobs analysed in a thread here, and large ones apart.

    Args:
        near: the engine of this process.
        apart: the other one.
        most_ranks: of a job that is analysed here.
    """

    def __init__(self, near: Engine, apart: ApartEngine, *, most_ranks: int) -> None:
        self._near = near
        self.apart = apart
        self._most_ranks = most_ranks
        self._backlog_limit = near.backlog_limit

    def start(self) -> None:
        """Start; called on the event loop."""
        self._near.start()
        self.apart.start()

    async def stop(self) -> None:
        """Analyse what was handed in, publish it, and end."""
        await asyncio.gather(self._near.stop(), self.apart.stop())

    @property
    def alive(self) -> bool:
        """Whether the thread here runs; a process that died is started again by itself."""
        return self._near.alive

    @property
    def backlog_bytes(self) -> int:
        """How much was handed in and is not analysed."""
        return self._near.backlog_bytes + self.apart.backlog_bytes

    @property
    def has_room(self) -> bool:
        """Whether more frames may be committed before these are analysed."""
        return self.backlog_bytes < self._backlog_limit

    @property
    def rebuilding(self) -> int:
        """How many attempts are being brought into memory."""
        return self._near.rebuilding + self.apart.rebuilding

    @property
    def stats(self) -> EngineStats:
        """Counts of both."""
        return self._near.stats + self.apart.stats if self.apart.running else self._near.stats

    @property
    def checkpoints(self) -> Checkpoints:
        """Counts of the checkpoints of both."""
        return Checkpoints(self._near.checkpoints.stats + self.apart.checkpoint_stats)

    def put(self, frames: list[CommittedFrame]) -> None:
        """Hand in frames that are durable, in the order of commits."""
        large = [one for one in frames if self._is_large(one.attempt)]
        if large:
            self.apart.put(large)
        if len(large) < len(frames):
            self._near.put([one for one in frames if not self._is_large(one.attempt)])

    def note(self, attempt_id: int, text: str) -> None:
        """Let the report of an attempt say ``text``; where it is not in memory nothing happens."""
        self._near.note(attempt_id, text)
        self.apart.note(attempt_id, text)

    async def load(self, attempt: AttemptRef) -> None:
        """Bring an attempt into memory by reading its frames again; return when published."""
        await (self.apart if self._is_large(attempt) else self._near).load(attempt)

    def _is_large(self, attempt: AttemptRef) -> bool:
        return attempt.world_size > self._most_ranks


AnyEngine = Engine | Engines
