"""What is asked about jobs: from memory where an attempt is live, else from the store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from paceline_service.access.tokens import Grant
from paceline_service.errors import StoreUnavailableError, UnknownJobError
from paceline_service.jobs import repository
from paceline_service.jobs.apart_engine import AnyEngine
from paceline_service.jobs.board import Board
from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.snapshot import (
    ENDED,
    RUNNING,
    RUNNING_WINDOW_S,
    SILENT,
    Snapshot,
    unpack_state,
)
from paceline_service.jobs.steps import Step
from paceline_service.paging import batches
from paceline_service.store.database import Database
from paceline_service.store.drops import read_drops

Json = dict[str, Any]
DEFAULT_STEPS = 200
MAX_STEPS = 5000
MAX_SCANNED = 20_000
"""Jobs that one request looks through for those that were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenJobs:
    """Which jobs are asked for; None: any."""

    state: str | None = None
    verdict: str | None = None
    prefix: str = ""
    since_wall_ns: int | None = None

    def includes(self, row: Json) -> bool:
        """Whether the row of a job is one of them."""
        return (
            row["job"].startswith(self.prefix)
            and self.state in (None, row["state"])
            and self.verdict in (None, row["verdict"])
        )


class StatesOfOthers(Protocol):
    """States of jobs that other processes analyse (``bus/states.py``)."""

    def owns(self, job: str) -> bool:
        """Whether ``job`` is analysed in this process."""

    async def snapshot(self, row: AttemptRow) -> Snapshot:
        """Return the newest stored state of an attempt."""


class JobService:
    """The read side of jobs.

    Args:
        database: the store.
        board: what is analysed here.
        engine: analyses again what is not in memory.
        rebuild_window_s: stored states of jobs that ran so recently may lack something.
        others: what is analysed elsewhere; None where there is one process.
    """

    def __init__(
        self,
        database: Database,
        board: Board,
        engine: AnyEngine,
        *,
        rebuild_window_s: float,
        others: StatesOfOthers | None = None,
    ) -> None:
        self._others = others
        self.database = database
        self._rebuild_window_s = rebuild_window_s
        self.board = board
        self._engine = engine

    async def list_jobs(
        self,
        grant: Grant,
        chosen: ChosenJobs,
        *,
        limit: int,
        before: tuple[int, int] | None = None,
    ) -> tuple[list[Json], tuple[int, int] | None]:
        """Return a row per job that ``grant`` covers, the newest first.

        Returns:
            The rows, at most ``limit``, and behind which row there may be more.
        """
        found: list[Json] = []
        scanned, more, sizes = 0, True, batches(limit)
        async with self.database.read() as connection:
            while more and len(found) < limit and scanned < MAX_SCANNED:
                size = next(sizes)
                rows = await repository.latest_attempts(
                    connection, limit=size + 1, before=before, since_wall_ns=chosen.since_wall_ns
                )
                more = len(rows) > size
                scanned += len(rows)
                for row in rows[:size]:
                    before = (row.ref.first_seen_wall_ns, row.ref.id)
                    shown = self.row_json(row) if grant.covers(row.ref.job) else None
                    if shown is not None and chosen.includes(shown):
                        found.append(shown)
                    if len(found) == limit:
                        more = more or row is not rows[-1]
                        break
        return found, before if more else None

    async def resolve(self, job: str, ordinal: int | None = None) -> AttemptRow:
        """Return an attempt of ``job``, the latest where ``ordinal`` is None.

        Raises:
            UnknownJobError: there is none.
        """
        async with self.database.read() as connection:
            row = await repository.find_attempt(connection, job, ordinal)
        if row is None:
            which = f"attempt {ordinal} of job {job!r}" if ordinal is not None else f"job {job!r}"
            raise UnknownJobError(f"{which} is not known here; GET /v1/jobs lists those that are")
        return row

    async def detail(self, job: str, ordinal: int | None) -> Json:
        """Return one attempt with its groups and nodes, and the list of all attempts."""
        row = await self.resolve(job, ordinal)
        async with self.database.read() as connection:
            attempts = await repository.attempts_of(connection, job)
        snapshot = await self.snapshot(row)
        return {
            **self.row_json(row, snapshot),
            "attempts": [self._attempt_json(attempt) for attempt in attempts],
            "groups": snapshot.groups,
            "nodes": snapshot.nodes,
            "expected": snapshot.report.get("expected"),
        }

    async def snapshot(self, row: AttemptRow) -> Snapshot:
        """Return what is known of an attempt, analysing it again where nothing newer is kept."""
        live = self.board.get(row.ref.id)
        if live is not None:
            return live
        if self._others is not None and not self._others.owns(row.ref.job):
            return await self._others.snapshot(row)
        stored = await self._stored(row)
        if stored is not None:
            return stored
        await self._engine.load(row.ref)
        live = self.board.get(row.ref.id)
        if live is None:
            raise StoreUnavailableError(
                f"the stored frames of job {row.ref.job!r} cannot be read at present; try again"
            )
        return live

    async def newer(self, row: AttemptRow) -> AttemptRow | None:
        """Return the latest attempt of the same job, if it came after this one."""
        if self._others is None or self._others.owns(row.ref.job):
            latest = self.board.latest(row.ref.job)
            if latest is None or latest.attempt.ordinal <= row.ref.ordinal:
                return None
        found = await self.resolve(row.ref.job)
        return found if found.ref.ordinal > row.ref.ordinal else None

    async def steps(
        self,
        row: AttemptRow,
        first: int | None,
        last: int | None,
        limit: int,
        *,
        phases: bool = True,
    ) -> list[Step]:
        """Return steps in order: the earliest ``limit`` from ``first``, or the newest."""
        snapshot = await self.snapshot(row)
        recent = snapshot.recent
        bounds = recent.bounds if recent is not None else None
        high = last if last is not None else max(snapshot.last_step, 0)
        found: list[Step] = []
        if recent is not None and bounds is not None:
            found = recent.between(first or 0, high)
        below = min(high, bounds[0] - 1) if bounds is not None else high
        async with self.database.read() as connection:
            if first is not None:
                if first <= below:
                    older = await repository.steps_between(
                        connection, row.ref.id, first, below, limit, phases=phases
                    )
                    found = older + found
                return found[:limit]
            if len(found) < limit and below >= 0:
                older = await repository.newest_steps(
                    connection, row.ref.id, limit - len(found), up_to=below, phases=phases
                )
                found = older + found
        return found[-limit:]

    def row_json(self, row: AttemptRow, snapshot: Snapshot | None = None) -> Json:
        """Return the row of one attempt, as newly as memory has it."""
        live = snapshot or self.board.get(row.ref.id)
        return {
            "job": row.ref.job,
            "run_id": row.ref.run_id,
            "attempt": row.ref.ordinal,
            "launch_attempt": row.ref.launch_attempt,
            "world_size": row.ref.world_size,
            "ranks_seen": live.ranks_seen if live else row.ranks_seen,
            "state": self._state(row),
            "first_seen_wall_ns": row.ref.first_seen_wall_ns,
            "last_seen_wall_ns": max(row.last_seen_wall_ns, live.last_seen_wall_ns if live else 0),
            "steps": live.steps if live else row.steps,
            "verdict": (live.verdict if live else row.verdict) or "insufficient_evidence",
            "headline": live.headline if live else row.headline,
            "slowdown": live.slowdown if live else row.slowdown,
        }

    def _attempt_json(self, row: AttemptRow) -> Json:
        whole = self.row_json(row)
        names = ("attempt", "run_id", "launch_attempt", "first_seen_wall_ns", "state", "verdict")
        return {name: whole[name] for name in names}

    def _state(self, row: AttemptRow) -> str:
        live = self.board.get(row.ref.id)
        if live is not None:
            return live.state
        if row.ended:
            return ENDED
        quiet_s = (time.time_ns() - row.last_seen_wall_ns) / 1e9
        return RUNNING if quiet_s < RUNNING_WINDOW_S else SILENT

    async def _stored(self, row: AttemptRow) -> Snapshot | None:
        """Return the stored state, unless analysing its frames again would tell more."""
        age_s = (time.time_ns() - row.last_seen_wall_ns) / 1e9
        if not row.ended and age_s < self._rebuild_window_s:
            return None  # it was running when the process before this one ended
        async with self.database.read() as connection:
            blob = await repository.state_blob(connection, row.ref.id)
            if blob is None:
                return None
            if row.report_frame_id != row.last_frame_id:
                drops = await read_drops(connection, [row.ref.id])
                if not any(stage == "store" for _, stage, _ in drops):
                    return None
        return unpack_state(row.ref, blob, row.report_frame_id)
