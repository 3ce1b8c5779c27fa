"""Group commit: what several requests sent becomes durable in one transaction.

A request waits here until its frames are on disk. What waits is bounded; beyond the bound
a request is refused at once, and its sender keeps the frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.counted import counted
from paceline.wire.bundles import Bundle
from paceline.wire.codec import Rejected
from paceline_service.errors import LeaseLostError, OverloadedError, StoreUnavailableError
from paceline_service.export.histogram import Histogram
from paceline_service.ingest import repository
from paceline_service.ingest.decoding import IncomingFrame
from paceline_service.ingest.registry import Incarnation, Registry, Staged
from paceline_service.store.database import Database
from paceline_service.store.drops import DropKey, add_drops
from paceline_service.store.frames import AttemptRef, CommittedFrame, without_head
from paceline_service.store.trouble import contradicts, why

GROUP_BYTES = 32 << 20
"""Most bytes of one transaction; what waits behind it goes into the next."""
BUSY_REQUESTS = 8
GATHER_S = 0.05
"""A transaction that so many requests shared is followed by a pause: most of what one costs does
not depend on how much is in it, and at a thousand requests a second they would be small."""
_log = structlog.get_logger("paceline.ingest")
Fence = Callable[[AsyncConnection, set[str]], Awaitable[set[str]]]
"""Returns which of some jobs this process must not write; holds the others for the transaction."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of the frames of one request."""

    accepted: int = 0
    duplicate: int = 0
    rejected: list[Rejected] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CommitStats:
    """Counts since the start, for /metrics."""

    frames: int = 0
    records: int = 0
    raw_bytes: int = 0
    duplicates: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    durations: Histogram = field(default_factory=Histogram)
    last_commit_mono_s: float = -math.inf
    failures: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    last_error: str = ""


@dataclass(slots=True, kw_only=True)
class _Submission:
    frames: Sequence[IncomingFrame]
    size: int
    done: asyncio.Future[Outcome]


@dataclass(slots=True, kw_only=True)
class _Plan:
    ids: Iterator[int] = field(default_factory=itertools.count)
    staged: Staged = field(default_factory=Staged)
    rows: list[repository.FrameValues] = field(default_factory=list)
    heads: list[dict[str, object]] = field(default_factory=list)
    committed: list[CommittedFrame] = field(default_factory=list)
    totals: dict[int, dict[str, int]] = field(default_factory=dict)
    endings: dict[int, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    whole: bool = False
    """Nothing but the commit itself is left to do."""


class GroupCommit:
    """The one writer of frames.

    Args:
        database: where they go.
        on_committed: told of every frame that became durable, in the order of commits.
        queue_bytes: most bytes that may wait.
        analysis_has_room: whether the analysis can take more.
        fence: where several processes write: asked first in every transaction.
    """

    def __init__(
        self,
        database: Database,
        on_committed: Callable[[list[CommittedFrame]], None],
        *,
        queue_bytes: int,
        analysis_has_room: Callable[[], bool],
        fence: Fence | None = None,
    ) -> None:
        self._database = database
        self._on_committed = on_committed
        self._queue_bytes = queue_bytes
        self._analysis_has_room = analysis_has_room
        self._fence = fence
        self._waiting: list[_Submission] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._next_id = 1
        self._doubtful: _Plan | None = None
        """What the last transaction held, where it failed in its very last moment."""
        self.unstored_rejects: Counter[DropKey] = Counter()
        """Rejections that go into the table of drops with the next commit."""
        self.registry = Registry()
        self.stats = CommitStats()
        self.waiting_bytes = 0

    async def start(self) -> None:
        """Begin to take frames."""
        async with self._database.read() as connection:
            self._next_id = await repository.last_frame_id(connection) + 1
        self._task = asyncio.create_task(self._run(), name="paceline-commit")

    async def stop(self) -> None:
        """Commit what waits, and end."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        if self.unstored_rejects:
            with contextlib.suppress(SQLAlchemyError):  # the database is away; the log has it
                async with self._database.write() as connection:
                    await add_drops(connection, self.unstored_rejects)

    @property
    def running(self) -> bool:
        """Whether the writer is alive."""
        return self._task is not None and not self._task.done()

    def count_rejects(self, reasons: Sequence[str]) -> None:
        """Count frames that never came this far."""
        self.stats.rejects.update(reasons)
        for reason in reasons:
            self.unstored_rejects[0, "ingest", reason] += 1

    async def submit(self, frames: Sequence[IncomingFrame]) -> Outcome:
        """Return when ``frames`` are durable.

        Raises:
            OverloadedError: too much is waiting already.
            StoreUnavailableError: the transaction failed; nothing of it is stored.
        """
        size = sum(len(item.packed) for item in frames)
        if self._stopping:
            raise StoreUnavailableError("the collector is stopping; send it again")
        if self.waiting_bytes and self.waiting_bytes + size > self._queue_bytes:
            self.stats.refused["commit_queue"] += 1
            raise OverloadedError(
                f"{self.waiting_bytes} bytes wait for their commit; the limit is "
                f"{self._queue_bytes}: keep the frames and send them again"
            )
        if not self._analysis_has_room():
            self.stats.refused["analysis_backlog"] += 1
            raise OverloadedError("the analysis is behind; keep the frames and send them again")
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Submission(frames=frames, size=size, done=done))
        self.waiting_bytes += size
        self._wake.set()
        return await done

    async def _run(self) -> None:
        while not (self._stopping and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                group = self._take_group()
                await self._commit(group)
                if len(group) >= BUSY_REQUESTS and not self._stopping:
                    await asyncio.sleep(GATHER_S)

    def _take_group(self) -> list[_Submission]:
        size = count = 0
        for submission in self._waiting:
            if count and size + submission.size > GROUP_BYTES:
                break
            size += submission.size
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _commit(self, group: list[_Submission]) -> None:
        began_s = time.perf_counter()
        plan = _Plan()
        foreign: set[str] = set()
        rejects, self.unstored_rejects = self.unstored_rejects, Counter()
        try:
            async with self._database.write() as connection:
                await self._settle_doubts(connection)
                await self.registry.check_heads(connection)
                if self._fence is not None:
                    foreign = await self._fence(connection, _jobs(group))
                permitted = [one for one in group if not (foreign and foreign & _jobs([one]))]
                if self._database.is_sqlite:  # its only writer counts itself
                    plan.ids = itertools.count(self._next_id)
                else:
                    count = sum(len(one.frames) for one in permitted)
                    plan.ids = iter(await repository.take_frame_ids(connection, count))
                now_wall_ns = time.time_ns()
                await self.registry.prepare(
                    connection,
                    plan.staged,
                    (item.frame for one in permitted for item in one.frames),
                    now_wall_ns,
                )
                for submission in permitted:
                    plan.outcomes.append(self._plan(plan, submission.frames, now_wall_ns))
                if plan.heads:
                    await repository.insert_heads(connection, plan.heads)
                if plan.rows:
                    await repository.insert_frames(connection, plan.rows)
                    await repository.note_commit(connection, plan.totals.values())
                if plan.endings:
                    await repository.note_ended(connection, plan.endings.items())
                if rejects:
                    await add_drops(connection, rejects)
                plan.whole = True
        except (SQLAlchemyError, OSError) as error:
            self.unstored_rejects.update(rejects)
            self._doubtful = plan if plan.whole and plan.rows else self._doubtful
            self._fail(group, error)
            return
        except BaseException as error:
            self.unstored_rejects.update(rejects)
            self._fail(group, error)
            if not isinstance(error, Exception):
                raise
            return
        finally:
            self.waiting_bytes -= sum(submission.size for submission in group)
        self._note(plan, time.perf_counter() - began_s)
        for submission in group if foreign else ():
            if foreign & _jobs([submission]) and not submission.done.done():
                submission.done.set_exception(
                    LeaseLostError("another analyzer has taken over a job of these frames")
                )
        for submission, outcome in zip(permitted, plan.outcomes, strict=True):
            if not submission.done.done():  # its client may have gone
                submission.done.set_result(outcome)
        if plan.committed:
            self._on_committed(plan.committed)

    async def _settle_doubts(self, connection: AsyncConnection) -> None:
        """Find out whether the transaction before was committed, if its answer was lost.

        Its senders were told that nothing is known. If it was, the analysis takes its frames now,
        before any that come later, and they are duplicates when they are sent again.
        """
        plan = self._doubtful
        if plan is None:
            return
        there = await repository.is_committed(connection, plan.totals, plan.rows[0].id)
        self._doubtful = None
        if there:
            _log.warning("a commit whose answer was lost had been done", frames=len(plan.rows))
            self._note(plan, 0.0)
            self._on_committed(plan.committed)

    def _note(self, plan: _Plan, seconds: float) -> None:
        """Take what is durable for known."""
        self.registry.committed(plan.staged)
        self._next_id += len(plan.rows)
        self._count(plan, seconds)

    def _plan(self, plan: _Plan, frames: Sequence[IncomingFrame], now_wall_ns: int) -> Outcome:
        outcome = Outcome()
        for item in frames:
            frame, staged = item.frame, plan.staged
            attempt = self.registry.attempt(staged, frame)
            assert attempt is not None, "the registry was prepared"
            highest = max(frame.origin.ranks) if isinstance(frame, Bundle) else frame.rank
            if highest >= attempt.world_size:
                reason = (
                    f"rank {highest} of a job whose attempt has "
                    f"{counted(attempt.world_size, 'rank')}; a job that grew is a new attempt"
                )
                self._reject(outcome, item, reason, "rank_range")
                continue
            incarnation = self.registry.incarnation(staged, attempt.id, frame)
            if incarnation.rank != frame.rank:
                reason = f"incarnation of rank {incarnation.rank} sent as rank {frame.rank}"
                self._reject(outcome, item, reason, "rank_mismatch")
            elif not self.registry.is_new(staged, incarnation, frame.frame_seq):
                outcome.duplicate += 1
            else:
                outcome.accepted += 1
                self._add(plan, item, attempt, incarnation, now_wall_ns)
        return outcome

    def _add(
        self,
        plan: _Plan,
        item: IncomingFrame,
        attempt: AttemptRef,
        incarnation: Incarnation,
        now_wall_ns: int,
    ) -> None:
        frame_id = next(plan.ids)
        body, head_id = item.packed, None
        if isinstance(item.frame, Bundle):
            head = self.registry.head(plan.staged, incarnation, item.packed, frame_id)
            if head is not None:
                body, head_id = without_head(item.packed, head.content), head.frame_id
                if head_id == frame_id:
                    new = {"frame_id": head_id, "attempt_id": attempt.id, "head": head.content}
                    plan.heads.append(new)
        size = len(body)
        plan.rows.append(
            repository.FrameValues(
                frame_id, attempt.id, incarnation.id, item.frame.frame_seq, item.frame.count,
                now_wall_ns, size, body, head_id,
            )
        )  # fmt: skip
        plan.committed.append(
            CommittedFrame(
                id=frame_id, attempt=attempt, frame=item.frame, received_wall_ns=now_wall_ns,
                packed_bytes=len(item.packed), first_seq=incarnation.low_seq, packed=item.packed,
            )
        )  # fmt: skip
        total = plan.totals.setdefault(attempt.id, defaultdict(int, a=attempt.id))
        total["now"], total["last"] = now_wall_ns, frame_id
        total["n"] += 1
        total["size"] += size
        if item.frame.ended:
            plan.endings[incarnation.id] = item.frame.ended

    def _reject(self, outcome: Outcome, item: IncomingFrame, reason: str, name: str) -> None:
        outcome.rejected.append(Rejected(offset=item.offset, reason=reason))
        self.count_rejects([name])

    def _count(self, plan: _Plan, seconds: float) -> None:
        stats = self.stats
        stats.frames += len(plan.rows)
        stats.records += sum(row.records for row in plan.rows)
        stats.raw_bytes += sum(one.packed_bytes for one in plan.committed)
        stats.duplicates += sum(outcome.duplicate for outcome in plan.outcomes)
        stats.commits += 1
        stats.commit_seconds += seconds
        stats.durations.add(seconds)
        stats.last_commit_mono_s = time.monotonic()
        stats.last_error = ""

    def _fail(self, group: list[_Submission], error: BaseException) -> None:
        self.registry.forget_heads()
        if contradicts(error):  # what is known is not what is stored: it is looked up anew
            self.registry.forget_jobs(lambda job: True)
        self.stats.failures += 1
        self.stats.last_error = f"{type(error).__name__}: {error}"[:500]
        _log.error("commit failed; nothing of it is acknowledged", error=self.stats.last_error)
        for submission in group:
            if not submission.done.done():
                failure = StoreUnavailableError(
                    f"the database did not take the frames, {why(error)}; keep them and send "
                    "them again"
                )
                failure.__cause__ = error
                submission.done.set_exception(failure)


def _jobs(group: Sequence[_Submission]) -> set[str]:
    return {item.frame.job for one in group for item in one.frames}
