"""Writes what the engine publishes: steps, states and incidents, a second or so behind.

Nothing here is needed for an acknowledgement: after a crash the frames bring it back.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.ending import end_tasks
from paceline_service.jobs import checkpoint_store, details_store, repository
from paceline_service.jobs.checkpoint_codec import pack
from paceline_service.jobs.checkpoint_store import Staged
from paceline_service.jobs.details import Details
from paceline_service.jobs.snapshot import ENDED, Captured, Snapshot, Update, pack_state
from paceline_service.jobs.steps import Step
from paceline_service.store.database import Database
from paceline_service.store.steady_clock import SteadyClock
from paceline_service.store.trouble import UNKNOWN, why

FLUSH_S = 1.0
STATE_S = 5.0
"""How often the state of a running attempt is written."""
MAX_PENDING_STEPS = 20_000
MAX_LANES = 20_000
"""Lanes of one flush: with hundreds of jobs their lanes are given up before anything else."""
TIDY_S = 3600.0
_log = structlog.get_logger("paceline.persist")

Fence = Callable[[AsyncConnection, set[str]], Awaitable[set[str]]]
"""Returns which of some jobs this process must not write; holds the others for the transaction."""
OnSnapshot = Callable[[AsyncConnection, Snapshot], Awaitable[None]]


@dataclass(slots=True)
class _Pending:
    snapshot: Snapshot
    steps: list[Step] = field(default_factory=list)
    urgent: bool = False
    checkpoint: Captured | None = None
    details: Details = field(default_factory=Details)


class Persister:
    """Collects updates and writes them in one transaction per flush.

    Args:
        database: where to.
        on_snapshot: runs in the same transaction for every snapshot (incidents).
        fence: where several processes write: asked first in every transaction.
    """

    def __init__(
        self, database: Database, on_snapshot: OnSnapshot, fence: Fence | None = None
    ) -> None:
        self._fence = fence
        self._database = database
        self._on_snapshot = on_snapshot
        self._pending: dict[int, _Pending] = {}
        self._written_mono_s: dict[int, float] = {}
        self._clock = SteadyClock(quiet=True)
        self._gaps: set[int] = set()
        self._unnamed: defaultdict[int, list[int]] = defaultdict(list)
        """By attempt: checkpoints of which pieces may be stored, and that nothing names."""
        self._task: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()
        self.steps_given_up = 0
        self.lanes_given_up = 0
        self.failures = 0

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="paceline-persist")

    async def stop(self) -> None:
        """Write what is left, and end."""
        async with self._flushing:  # what a flush has taken would be lost in its middle
            await end_tasks(self._task)
        for pending in self._pending.values():
            pending.urgent = True
        await self.flush()

    @property
    def running(self) -> bool:
        """Whether the writer is alive."""
        return self._task is not None and not self._task.done()

    @property
    def waiting_steps(self) -> int:
        """How many steps are not written yet."""
        return sum(len(pending.steps) for pending in self._pending.values())

    def put(self, update: Update) -> None:
        """Take an update; called on the event loop."""
        attempt_id = update.snapshot.attempt.id
        pending = self._pending.setdefault(attempt_id, _Pending(update.snapshot))
        pending.urgent |= update.snapshot.state != pending.snapshot.state
        pending.urgent |= update.snapshot.state == "ended"
        pending.snapshot = update.snapshot
        pending.steps += update.steps
        pending.details.add(update.details)
        pending.checkpoint = update.checkpoint or pending.checkpoint
        excess = len(pending.steps) - MAX_PENDING_STEPS
        if excess > 0:  # the database is away; a replay would bring them back
            self.steps_given_up += excess
            del pending.steps[:excess]
            self._gaps.add(attempt_id)
        if attempt_id in self._gaps:  # behind it those steps would be left out for good
            pending.checkpoint = None

    async def flush(self, only: int | None = None) -> None:
        """Write everything that is due, or what is due of one attempt."""
        now_s = time.monotonic()
        due: list[tuple[int, _Pending, bool]] = []
        for attempt_id, pending in list(self._pending.items()):
            if only is not None and attempt_id != only:
                continue
            whole = pending.urgent or now_s - self._written_mono_s.get(attempt_id, 0.0) >= STATE_S
            if whole or pending.steps or pending.details:
                due.append((attempt_id, pending, whole))
        if not due:
            return
        staged = await self._stage([pending for _, pending, _ in due])
        due = [(number, pending, whole or number in staged) for number, pending, whole in due]
        steps = {attempt_id: list(pending.steps) for attempt_id, pending, _ in due}
        snapshots = {attempt_id: pending.snapshot for attempt_id, pending, _ in due}
        rows = await asyncio.to_thread(_rows, steps)
        details = self._take_details([(number, pending) for number, pending, _ in due])
        foreign: set[int] = set()
        try:
            # That of a large job takes a tenth of a second, and ingest waits for a transaction.
            whole_ones = [snapshots[attempt_id] for attempt_id, _, whole in due if whole]
            states = await asyncio.to_thread(_packed, whole_ones)
            async with self._database.write() as connection:
                foreign = await self._foreign(connection, snapshots)
                for attempt_id, _, whole in due:
                    if attempt_id in foreign:
                        continue
                    await repository.save_steps(connection, rows[attempt_id])
                    await details_store.save(connection, attempt_id, details[attempt_id])
                    if whole:
                        state = states[attempt_id]
                        await repository.save_snapshot(connection, snapshots[attempt_id], state)
                        await self._on_snapshot(connection, snapshots[attempt_id])
                        if snapshots[attempt_id].state == ENDED:
                            await checkpoint_store.forget(connection, attempt_id)
                        elif attempt_id in staged:
                            await checkpoint_store.name(connection, staged[attempt_id])
        except Exception as error:
            self.failures += 1
            self._keep_details(details)
            jobs = sorted({one.attempt.job for one in snapshots.values()})[:4]
            _log.error(
                "steps and states are not written; they are tried again", jobs=jobs,
                error=f"{type(error).__name__}: {error}",
            )  # fmt: skip
            if len(due) > 1 and why(error) == UNKNOWN:  # it may be what one of them brings
                for attempt_id in snapshots:
                    await self.flush(attempt_id)
            return
        for attempt_id in foreign:  # its owner writes it
            del self._pending[attempt_id]
            self._gaps.discard(attempt_id)
            self._unnamed.pop(attempt_id, None)
        for attempt_id, pending, whole in due:
            if attempt_id in foreign:
                continue
            del pending.steps[: len(steps[attempt_id])]
            if attempt_id in staged or snapshots[attempt_id].state == ENDED:
                self._unnamed.pop(attempt_id, None)
            if whole:
                self._written_mono_s[attempt_id] = now_s
            left = pending.steps or pending.checkpoint or pending.details
            if whole and pending.snapshot is snapshots[attempt_id] and not left:
                del self._pending[attempt_id]
        for attempt_id, at_s in list(self._written_mono_s.items()):
            if now_s - at_s > 10 * STATE_S:
                del self._written_mono_s[attempt_id]

    def _take_details(self, due: list[tuple[int, _Pending]]) -> dict[int, Details]:
        """Return the details that are written now; those of too many jobs are given up."""
        taken, rows = {}, 0
        for number, pending in due:
            taken[number], pending.details = pending.details, Details()
            rows += len(taken[number].lanes)
        if rows > MAX_LANES:
            self.lanes_given_up += rows
            for details in taken.values():
                details.lanes = []
        return taken

    def _keep_details(self, details: dict[int, Details]) -> None:
        """Put back what was not written, before what has come since."""
        for number, earlier in details.items():
            pending = self._pending.get(number)
            if pending is not None:
                earlier.add(pending.details)
                pending.details = earlier
                if len(earlier.lanes) > MAX_LANES:
                    self.lanes_given_up += len(earlier.lanes)
                    earlier.lanes = []

    async def _foreign(
        self, connection: AsyncConnection, snapshots: dict[int, Snapshot]
    ) -> set[int]:
        """Return the attempts that another process has taken over."""
        if self._fence is None:
            return set()
        jobs = await self._fence(connection, {one.attempt.job for one in snapshots.values()})
        return {number for number, one in snapshots.items() if one.attempt.job in jobs}

    async def _stage(self, due: list[_Pending]) -> dict[int, Staged]:
        """Store the pieces of the checkpoints that are due; one that fails is left out."""
        staged = {}
        for pending in due:
            captured, pending.checkpoint = pending.checkpoint, None
            if captured is None or pending.snapshot.state == ENDED:
                continue
            try:
                body = captured.body
                if not captured.packed:
                    body = await asyncio.to_thread(pack, body)
                leftovers = self._unnamed[captured.attempt_id]
                made = await checkpoint_store.stage(self._database, captured, body, leftovers)
            except (SQLAlchemyError, OSError) as error:
                self.failures += 1
                _log.error("a checkpoint is not written; the one before counts", error=str(error))
            else:
                staged[captured.attempt_id] = made
        return staged

    async def _tidy(self) -> None:
        """Delete the checkpoints of attempts that nothing was heard of for days."""
        before_ns = self._clock.now_ns() - checkpoint_store.KEEP_S * 10**9
        async with self._database.write() as connection:
            await checkpoint_store.forget_old(connection, before_ns)

    async def _run(self) -> None:
        tidied_s = -TIDY_S
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                async with self._flushing:
                    await self.flush()
                if time.monotonic() - tidied_s > TIDY_S:
                    tidied_s = time.monotonic()
                    await self._tidy()
            except Exception as error:
                self.failures += 1
                _log.error("writing steps and states failed", exc_info=error)


def _packed(snapshots: Sequence[Snapshot]) -> dict[int, bytes]:
    return {one.attempt.id: pack_state(one) for one in snapshots}


def _rows(steps: dict[int, list[Step]]) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of the steps of every attempt; packing them takes too long for the loop.

    An analysis that began anew tells its steps again: each is written once, as it was told last.
    """
    newest = {number: {one.step: one for one in of_one} for number, of_one in steps.items()}
    return {
        number: repository.step_rows(number, [of_one[step] for step in sorted(of_one)])
        for number, of_one in newest.items()
    }
