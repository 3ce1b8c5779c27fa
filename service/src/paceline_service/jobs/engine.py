"""The thread that analyses: it takes committed frames, ticks, and publishes.

One thread serves all attempts, so that every attempt's analysis is confined to it. The event
loop only hands frames in (``put``) and gets updates out (``publish``, called on the loop).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import structlog

from paceline_service.analysis.job import JobAnalysis
from paceline_service.jobs.checkpoint import Checkpointer
from paceline_service.jobs.engine_stats import EngineStats
from paceline_service.jobs.live import LiveAttempt, MakeAnalysis
from paceline_service.jobs.snapshot import Update
from paceline_service.jobs.source import FrameSource, Missing
from paceline_service.settings import CollectorSettings
from paceline_service.store.frames import AttemptRef, CommittedFrame

TICK_S = 0.5
MAX_PUBLISH_SHARE = 0.25
"""Share of the thread's time that reports may take: expensive ones are made less often. Steps are
judged at every tick all the same: what is not judged now has to be judged later."""
DATABASE_TIMEOUT_S = 60.0
ENDED_IDLE_S = 60.0
_log = structlog.get_logger("paceline.engine")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    attempt: AttemptRef
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drop:
    covers: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    attempt_id: int
    text: str


class Engine:
    """Owns every attempt in memory.

    Args:
        settings: limits and times.
        source: reads stored frames back.
        publish: called on the event loop with every update.
        forget: called on the event loop when an attempt (its id) leaves memory.
        make_analysis: a fresh analysis for a world size.
        tick_s: how long after one look at what has come the next one is.
        retell_s: how often an attempt is published at most where no step became complete.
        checkpoints_in_copy: a copy of the process writes checkpoints, not the thread.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        source: FrameSource,
        publish: Callable[[Update], None],
        forget: Callable[[int], None],
        make_analysis: MakeAnalysis = JobAnalysis,
        *,
        tick_s: float = TICK_S,
        retell_s: float = 0.0,
        checkpoints_in_copy: bool = False,
    ) -> None:
        self.stats = EngineStats()
        self.checkpoints = Checkpointer(settings.checkpoint_s, in_copy=checkpoints_in_copy)
        self.backlog_bytes = 0
        self.rebuilding = 0
        self._settings = settings
        self._source = source
        self._publish = publish
        self._forget = forget
        self._make_analysis = make_analysis
        self._tick_s = tick_s
        self._retell_s = retell_s
        self._inbox: queue.SimpleQueue[list[CommittedFrame] | _Load | _Drop | _Note | None] = (
            queue.SimpleQueue()
        )
        self._attempts: dict[int, LiveAttempt] = {}
        self._ending = threading.Event()
        self._backlog_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="paceline-analysis", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_publish_s = 0.0

    def start(self) -> None:
        """Start the thread; called on the event loop that it works with."""
        self._loop = asyncio.get_running_loop()
        self.stats.last_tick_mono_s = time.monotonic()
        self._thread.start()

    async def stop(self) -> None:
        """Analyse what was handed in, publish it, and end; a replay is cut short."""
        self._ending.set()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # let the last updates reach the loop

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def backlog_limit(self) -> int:
        """How much may wait."""
        return self._settings.backlog_bytes

    @property
    def has_room(self) -> bool:
        """Whether more frames may be committed before these are analysed."""
        return self.backlog_bytes < self.backlog_limit

    def put(self, frames: list[CommittedFrame]) -> None:
        """Hand in frames that are durable, in the order of commits."""
        with self._backlog_lock:
            self.backlog_bytes += sum(item.packed_bytes for item in frames)
        self._inbox.put(frames)

    def drop(self, covers: Callable[[str], bool]) -> None:
        """Let go of the jobs that another process analyses from now on."""
        self._inbox.put(_Drop(covers=covers))

    def note(self, attempt_id: int, text: str) -> None:
        """Let the report of an attempt say ``text``; where it is not in memory nothing happens."""
        self._inbox.put(_Note(attempt_id=attempt_id, text=text))

    async def load(self, attempt: AttemptRef) -> None:
        """Bring an attempt into memory by reading its frames again; return when published."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        def finished() -> None:
            loop.call_soon_threadsafe(wake)

        self.rebuilding += 1
        try:
            self._inbox.put(_Load(attempt=attempt, done=finished))
            await done
        finally:
            self.rebuilding -= 1

    def _run(self) -> None:
        next_tick_s = time.monotonic() + self._tick_s
        stopping = False
        while not stopping:
            wait_s = max(next_tick_s - time.monotonic(), 0.0)
            try:
                item = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            except queue.Empty:
                pass
            else:
                if item is None:
                    stopping = True
                elif isinstance(item, _Load):
                    self._load(item)
                elif isinstance(item, _Note):
                    noted = self._attempts.get(item.attempt_id)
                    if noted is not None:
                        noted.note(item.text)
                elif isinstance(item, _Drop):
                    self._drop(item)
                else:
                    self._feed(item)
            began_s = time.monotonic()
            if stopping or began_s >= next_tick_s:
                self._tick(began_s, stopping=stopping)
                ended_s = time.monotonic()
                self.stats.tick_seconds += ended_s - began_s
                next_tick_s = ended_s + self._tick_s

    def _feed(self, frames: list[CommittedFrame]) -> None:
        now_s = time.monotonic()
        for committed in frames:
            live = self._attempts.get(committed.attempt.id)
            if live is not None and live.finished and committed.id > live.applied_id:
                # It had been closed; its end was not the end. Closing cannot be taken back.
                del self._attempts[committed.attempt.id]
                live = None
            if live is None and self._ending.is_set() and not committed.begins_attempt:
                continue  # the next process reads its attempt from the store
            try:
                if live is None:
                    live = self._open(committed)
                elif not live.failure:
                    live.push(committed, now_s)
            except _SourceFailedError as error:
                # Nothing is wrong with the attempt: the next frame of it tries again.
                self._attempts.pop(committed.attempt.id, None)
                _log.error(
                    "stored frames cannot be read", job=committed.attempt.job, error=str(error)
                )
            except Exception as error:
                self._fail(committed.attempt, live, error)
        with self._backlog_lock:
            self.backlog_bytes -= sum(item.packed_bytes for item in frames)
        self.stats.frames += len(frames)
        self.stats.lag_seconds = max(time.time_ns() - frames[-1].received_wall_ns, 0) / 1e9

    def _open(self, committed: CommittedFrame) -> LiveAttempt:
        if not committed.begins_attempt:
            return self._rebuild(committed.attempt)
        live = self._new(committed.attempt, None)
        live.push(committed, time.monotonic())
        return live

    def _new(
        self, attempt: AttemptRef, missing: Missing | None, ends: Mapping[str, int] | None = None
    ) -> LiveAttempt:
        live = LiveAttempt(
            attempt,
            self._make_analysis(attempt.world_size),
            reorder_wait_ns=int(self._settings.reorder_wait_s * 1e9),
            recent_bytes=self._settings.recent_rows_bytes,
            missing=missing,
            ends=ends,
        )
        live.used_mono_s, live.made_wall_ns = time.monotonic(), time.time_ns()
        self._attempts[attempt.id] = live
        return live

    def _rebuild(self, attempt: AttemptRef) -> LiveAttempt:
        self.stats.rebuilds += 1
        live = self._taken_up(attempt)
        if live is not None:
            try:
                return self._replay(live, whole=False)
            except _SourceFailedError:
                raise
            except Exception as error:
                self.checkpoints.stats.refused += 1
                _log.error("a checkpoint leads nowhere; all stored frames are analysed again",
                           job=attempt.job, attempt=attempt.ordinal, exc_info=error)  # fmt: skip
        self.checkpoints.soon(attempt.id)
        missing = self._on_loop(self._source.missing(attempt))
        ends = self._on_loop(self._source.ends(attempt)) if self._source.ends else {}
        return self._replay(self._new(attempt, missing, ends), whole=True)

    def _replay(self, live: LiveAttempt, *, whole: bool) -> LiveAttempt:
        """Push the stored frames that ``live`` does not have."""
        while page := self._on_loop(self._source.page(live.attempt, live.applied_id)):
            now_s, now_ns = time.monotonic(), time.time_ns()
            for committed in page:
                age_s = max(now_ns - committed.received_wall_ns, 0) / 1e9
                live.push(committed, now_s - age_s)
            live.advance()
            if self._ending.is_set():  # it may take an hour; the next process begins anew
                raise _SourceFailedError("the collector stops")
        live.replayed(whole=whole)
        return live

    def _taken_up(self, attempt: AttemptRef) -> LiveAttempt | None:
        """Return an attempt as its checkpoint has it, or None where that cannot be."""
        if self._source.checkpoint is None:
            return None
        stored = self._on_loop(self._source.checkpoint(attempt))
        if stored is None:
            return None
        live = self._new(attempt, None)
        if not self.checkpoints.restore(live, stored):
            return None
        live.heard(time.monotonic(), time.time_ns())
        return live

    def _load(self, request: _Load) -> None:
        live = self._attempts.get(request.attempt.id)
        try:
            if live is None:
                live = self._rebuild(request.attempt)
            live.used_mono_s = time.monotonic()
            if not live.failure:
                live.analyse(live.used_mono_s, time.time_ns())
                self._publish_one(live)
        except _SourceFailedError as error:
            self._attempts.pop(request.attempt.id, None)
            _log.error("stored frames cannot be read", job=request.attempt.job, error=str(error))
        except Exception as error:
            self._fail(request.attempt, live, error)
        finally:
            request.done()

    def _tick(self, now_s: float, *, stopping: bool) -> None:
        may_publish = stopping or now_s >= self._next_publish_s
        publishing_s = 0.0
        for live in list(self._attempts.values()):
            if live.failure:
                continue
            try:
                live.analyse(time.monotonic(), time.time_ns())
                if stopping or (may_publish and live.is_due(now_s, self._retell_s)):
                    began_s = time.thread_time()
                    self._publish_one(live, stopping=stopping)
                    publishing_s += time.thread_time() - began_s
            except Exception as error:
                self._fail(live.attempt, live, error)
        if may_publish:
            self._next_publish_s = now_s + publishing_s / MAX_PUBLISH_SHARE
        self._evict()
        self.stats.ticks += 1
        self.stats.loaded = len(self._attempts)
        self.stats.last_tick_mono_s = time.monotonic()

    def _publish_one(self, live: LiveAttempt, *, stopping: bool = False) -> None:
        update = live.update(time.monotonic())
        if update is not None:
            self._count_lags(live, update)
            self._hand_out(update)
        # Afterwards: writing down a large attempt takes longer than judging a step of it.
        checkpoint = self.checkpoints.capture(live, stopping=stopping)
        if checkpoint is not None and (update := live.again(checkpoint)) is not None:
            self._hand_out(update)

    def _hand_out(self, update: Update) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._publish, update)

    def _count_lags(self, live: LiveAttempt, update: Update) -> None:
        """Count how late the verdicts are, but of steps that were over before it was in memory."""
        now_ns = time.time_ns()
        for step in update.steps:
            ended_ns = step.start_wall_ns + step.duration_ns
            if step.start_wall_ns >= 0 and ended_ns > live.made_wall_ns:
                self.stats.verdict_lag.add(max(now_ns - ended_ns, 0) / 1e9)

    def _drop(self, request: _Drop) -> None:
        gone = [one for one in self._attempts.values() if request.covers(one.attempt.job)]
        for live in gone:
            self._let_go(live.attempt.id)

    def _let_go(self, attempt_id: int) -> None:
        del self._attempts[attempt_id]
        self.checkpoints.forget(attempt_id)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._forget, attempt_id)

    def _evict(self) -> None:
        """Let go of attempts that nothing happens to, the longest unused first."""
        now_s = time.monotonic()
        idle = []
        for live in self._attempts.values():
            limit_s = ENDED_IDLE_S if live.finished else self._settings.live_window_s
            if now_s - max(live.last_frame_mono_s, live.used_mono_s) > limit_s:
                idle.append(live)
        idle.sort(key=lambda live: max(live.last_frame_mono_s, live.used_mono_s))
        for live in idle[: max(len(idle) - self._settings.rebuilt_attempts, 0)]:
            self._let_go(live.attempt.id)

    def _fail(self, attempt: AttemptRef, live: LiveAttempt | None, error: Exception) -> None:
        self.stats.failures += 1
        _log.error("analysis failed; its frames are stored", job=attempt.job,
                   attempt=attempt.ordinal, exc_info=error)  # fmt: skip
        live = live or self._attempts.get(attempt.id)
        self.checkpoints.forget(attempt.id)
        if live is not None:
            live.failure = f"the analysis stopped with an error of its own: {error}"
            try:
                update = live.publish_failure(time.monotonic())
            except Exception as second:
                _log.error("no report after a failed analysis", exc_info=second)
            else:
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._publish, update)

    def _on_loop(self, work: Awaitable[T]) -> T:
        assert self._loop is not None, "start() comes first"
        future = asyncio.run_coroutine_threadsafe(_await(work), self._loop)
        try:
            return future.result(timeout=DATABASE_TIMEOUT_S)
        except Exception as error:
            future.cancel()
            raise _SourceFailedError(f"{type(error).__name__}: {error}") from error


class _SourceFailedError(Exception):
    """The database could not be read."""


async def _await(work: Awaitable[T]) -> T:
    return await work
