"""What running jobs are to record: agreed once per attempt, told with every answer to frames.

It lives on the event loop. What is told comes from memory; the database has it first, so that
a collector that is restarted tells the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, replace

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.wire.bundles import Bundle
from paceline.wire.frames import Frame
from paceline.wire.settings import LaunchSettings
from paceline_service.access.audit import Actor, audit
from paceline_service.control import repository
from paceline_service.control.pace import Pace
from paceline_service.control.schemas import SettingsChange
from paceline_service.control.settings import Agreement, JobSettings
from paceline_service.ending import end_tasks
from paceline_service.store.database import Database
from paceline_service.store.frames import AttemptRef, CommittedFrame

TRY_S = 1.0
"""How often it is tried again to agree on a step with an attempt whose ranks are not known yet."""
FORGET_S = 60.0
"""An attempt that is silent for so long is asked when it is heard of again."""
OWN = Actor(name="paceline serve", address="")
"""Who asks for a stride because the collector cannot keep up."""
_FIRST = JobSettings(
    generation=0, level="full", stride=1, enabled=True, telemetry_interval_s=None,
    updated_wall_ns=0, updated_by="",
)  # fmt: skip
_log = structlog.get_logger("paceline.control")
Launch = tuple[str, str, int]
Fence = Callable[[AsyncConnection, set[str]], Awaitable[set[str]]]
"""Returns which of some jobs this process must not write; holds the others for the transaction."""


class ControlService:
    """Settings of jobs, and what was agreed with their attempts.

    Args:
        database: where both are kept.
        slack_s: see ``Pace``.
        fence: where several processes write: asked before a step is stored.
    """

    def __init__(
        self, database: Database, *, slack_s: float = 0.0, fence: Fence | None = None
    ) -> None:
        self._fence = fence
        self._slack_s = slack_s
        self._database = database
        self._settings: dict[str, JobSettings] = {}
        self._paces: dict[int, tuple[AttemptRef, Pace]] = {}
        self._agreements: dict[int, Agreement] = {}
        self._told: dict[Launch, LaunchSettings] = {}
        self._waiting: set[int] = set()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.on_note: Callable[[AttemptRef, str], None] | None = None
        """Takes what a report is to say about an attempt."""

    async def start(self) -> None:
        """Read what was agreed before, and begin."""
        async with self._database.read() as connection:
            self._settings = await repository.all_settings(connection)
            agreed = await repository.open_agreements(connection)
        for attempt, agreement in agreed:
            self._agreements[attempt.id] = agreement
            self._tell(attempt, agreement)
        self._task = asyncio.create_task(self._run(), name="paceline-control")

    async def stop(self) -> None:
        """End."""
        await end_tasks(self._task)

    async def refresh(self) -> None:
        """Take what other processes were asked for and have agreed on, where there are others."""
        async with self._writing:
            async with self._database.read() as connection:
                settings = await repository.all_settings(connection)
                agreed = await repository.open_agreements(connection)
            changed = {job for job, new in settings.items() if self._settings.get(job) != new}
            self._settings = settings
            for attempt, agreement in agreed:
                if self._agreements.get(attempt.id) != agreement or attempt.job in changed:
                    self._agreements[attempt.id] = agreement
                    self._tell(attempt, agreement)
            open_ids = {attempt.id for attempt, _ in agreed} | set(self._paces)
            for attempt_id in [one for one in self._agreements if one not in open_ids]:
                del self._agreements[attempt_id]
            launches = {_launch(attempt) for attempt, _ in agreed}
            launches |= {_launch(attempt) for attempt, _ in self._paces.values()}
            for launch in [one for one in self._told if one not in launches]:
                del self._told[launch]
        for attempt, _ in list(self._paces.values()):
            if attempt.job in changed:
                self._want(attempt)

    def drop(self, covers: Callable[[str], bool]) -> None:
        """Forget the ranks of jobs that another process hears of from now on."""
        for attempt_id, (attempt, _) in list(self._paces.items()):
            if covers(attempt.job):
                del self._paces[attempt_id]
                self._waiting.discard(attempt_id)

    def note(self, committed: Iterable[CommittedFrame]) -> None:
        """Take frames that became durable; on the hot route."""
        now_s = time.monotonic()
        for item in committed:
            attempt = item.attempt
            known = self._paces.get(attempt.id)
            if known is None:
                pace = Pace(attempt.world_size, now_s, self._slack_s)
                known = self._paces[attempt.id] = (attempt, pace)
                self._want(attempt)
            known[1].note(item.frame, now_s)

    def told(self, frames: Iterable[Frame | Bundle]) -> list[LaunchSettings]:
        """Return what the launches of these frames are to record; none where nobody asked."""
        if not self._told:
            return []
        launches = {(frame.job, frame.run_id, frame.attempt) for frame in frames}
        return [self._told[launch] for launch in launches if launch in self._told]

    def settings(self, job: str) -> JobSettings | None:
        """Return the settings of a job; None where nobody asked for any."""
        return self._settings.get(job)

    def pace(self, attempt_id: int) -> Pace | None:
        """Return what the ranks of an attempt told lately."""
        known = self._paces.get(attempt_id)
        return known[1] if known is not None else None

    async def agreement(self, attempt_id: int) -> Agreement | None:
        """Return what was agreed with an attempt last."""
        if attempt_id in self._agreements:
            return self._agreements[attempt_id]
        async with self._database.read() as connection:
            return await repository.agreement_of(connection, attempt_id)

    async def change(self, job: str, change: SettingsChange, by: Actor) -> None:
        """Change the settings of a job that is known; its running attempts agree on a step."""
        async with self._writing:
            before = self._settings.get(job, _FIRST)
            if not before.level:  # only relief was asked for so far
                before = replace(before, level=_FIRST.level)
            after = replace(
                before,
                **change,
                updated_wall_ns=time.time_ns(),
                updated_by=by.name[:128],
            )
            recorded = (after.told_level, after.told_stride)
            if not before.generation or recorded != (before.told_level, before.told_stride):
                after = _next_generation(before, after)
            async with self._database.write() as connection:
                await repository.save_settings(connection, job, after)
                old, new = asdict(before), asdict(after)
                changed = sorted(name for name in change if old[name] != new[name])
                await audit(
                    connection, by, "settings.change", f"job {job}",
                    old={name: old[name] for name in changed},
                    new={name: new[name] for name in changed},
                )  # fmt: skip
            self._settings[job] = after
        _log.info(
            "settings changed", job=job, by=by.name, level=after.level, stride=after.stride,
            enabled=after.enabled, telemetry_interval_s=after.telemetry_interval_s,
        )  # fmt: skip
        await self._want_all(job)

    async def relieve(self, job: str, stride: int) -> bool:
        """Ask a job for every ``stride``-th step, because the collector cannot keep up; 1: all.

        What somebody asked for stays: the larger stride holds, and the level does not change.

        Returns:
            Whether anything changed.
        """
        async with self._writing:
            before = self._settings.get(job, replace(_FIRST, level="", updated_by=OWN.name))
            if before.relief_stride == stride:
                return False
            after = replace(before, relief_stride=stride)
            if after.told_stride != before.told_stride:
                after = _next_generation(before, after)
            async with self._database.write() as connection:
                if self._fence and await self._fence(connection, {job}):
                    return False
                await repository.save_settings(connection, job, after)
                await audit(
                    connection, OWN, "settings.relief", f"job {job}",
                    old={"relief_stride": before.relief_stride}, new={"relief_stride": stride},
                )  # fmt: skip
            self._settings[job] = after
        await self._want_all(job)
        return True

    def records(self) -> dict[str, int]:
        """Return how many records came of each job that is heard of here."""
        total: Counter[str] = Counter()
        for attempt, pace in self._paces.values():
            total[attempt.job] += pace.records
        return dict(total)

    def can_relieve(self, job: str) -> bool:
        """Whether it is known at which level the ranks of a job record, and they do record."""
        settings = self._settings.get(job)
        if settings is not None and settings.told_level:
            return settings.enabled
        paces = [pace for attempt, pace in self._paces.values() if attempt.job == job]
        return bool(paces) and all(pace.launch_level for pace in paces)

    def relief_stride(self, job: str) -> int:
        """Return the stride that the collector asks a job for by itself; 1: none."""
        settings = self._settings.get(job)
        return settings.relief_stride if settings is not None else 1

    def relieved(self) -> dict[str, int]:
        """Return the jobs that are asked for fewer steps, and the strides."""
        return {
            job: one.relief_stride for job, one in self._settings.items() if one.relief_stride > 1
        }

    def stride_by_hand(self, job: str) -> int:
        """Return the stride that somebody asked for."""
        settings = self._settings.get(job)
        return settings.stride if settings is not None else 1

    async def _want_all(self, job: str) -> None:
        """Agree with the attempts of a job whose settings have changed."""
        for attempt, _ in list(self._paces.values()):
            if attempt.job == job:
                self._want(attempt)
        try:
            await self._agree_with_all()
        except (SQLAlchemyError, OSError) as error:
            _log.error("a step cannot be stored; it is tried again", error=str(error))

    def forget_unused(self, idle_s: float) -> None:
        """Drop what is known of attempts that nothing was heard of for ``idle_s``."""
        limit_s = time.monotonic() - idle_s
        for attempt_id, (attempt, pace) in list(self._paces.items()):
            if pace.heard_mono_s < limit_s:
                del self._paces[attempt_id]
                self._waiting.discard(attempt_id)
                if self._agreements.pop(attempt_id, None) is not None:
                    self._told.pop(_launch(attempt), None)

    def _want(self, attempt: AttemptRef) -> None:
        """Agree with an attempt whose job has settings that it was not told yet."""
        settings = self._settings.get(attempt.job)
        if settings is None:
            return
        agreement = self._agreements.get(attempt.id)
        if agreement is not None and agreement.generation == settings.generation:
            self._tell(attempt, agreement)  # the pace of telemetry may be another one
        else:
            self._waiting.add(attempt.id)
            self._wake.set()

    def _tell(self, attempt: AttemptRef, agreement: Agreement) -> None:
        settings = self._settings.get(attempt.job)
        if settings is None or settings.generation != agreement.generation:
            return
        level = settings.told_level or agreement.level
        if not level:
            return
        self._told[_launch(attempt)] = LaunchSettings(
            job=attempt.job,
            run_id=attempt.run_id,
            attempt=attempt.launch_attempt,
            generation=agreement.generation,
            effective_step=agreement.effective_step,
            level=level,
            stride=settings.told_stride,
            telemetry_interval_s=settings.telemetry_interval_s,
        )

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            try:
                await self._agree_with_all()
            except (SQLAlchemyError, OSError) as error:
                _log.error("a step cannot be stored; it is tried again", error=str(error))
            if not self._waiting:
                self._wake.clear()
            await asyncio.sleep(TRY_S)

    async def _agree_with_all(self) -> None:
        async with self._writing:
            now_s = time.monotonic()
            for attempt_id in sorted(self._waiting):
                attempt, pace = self._paces[attempt_id]
                settings = self._settings[attempt.job]
                if now_s - pace.heard_mono_s > FORGET_S:
                    self._waiting.discard(attempt_id)
                    del self._paces[attempt_id]  # heard of again, it is wanted again
                    continue
                agreement = await self.agreement(attempt_id)
                if agreement is None or agreement.generation != settings.generation:
                    step = _step_for(pace, agreement, now_s)
                    level = "" if settings.told_level else pace.launch_level
                    if step is None or not (level or settings.told_level):
                        continue
                    agreement = Agreement(
                        generation=settings.generation,
                        effective_step=step,
                        agreed_wall_ns=time.time_ns(),
                        level=level,
                    )
                    async with self._database.write() as connection:
                        if self._fence and await self._fence(connection, {attempt.job}):
                            continue  # another process agrees with it
                        await repository.save_agreement(connection, attempt_id, agreement)
                self._agreements[attempt_id] = agreement
                self._waiting.discard(attempt_id)
                self._tell(attempt, agreement)
                _log.info(
                    "setting agreed", job=attempt.job, attempt=attempt.ordinal,
                    level=settings.told_level or agreement.level, stride=settings.told_stride,
                    effective_step=agreement.effective_step,
                )  # fmt: skip
                if settings.relief_stride > settings.stride and self.on_note is not None:
                    self.on_note(
                        attempt,
                        f"from step {agreement.effective_step} on the collector asks for one step "
                        f"in {settings.relief_stride}: it could not keep up with all of them",
                    )


def _step_for(pace: Pace, before: Agreement | None, now_s: float) -> int | None:
    """Return a step that every rank will have heard of in time; None: not yet.

    Args:
        pace: of the attempt.
        before: what was agreed with it last.
        now_s: monotonic.
    """
    if not pace.is_known(now_s):
        return None
    newest, margin = pace.newest_step(now_s), pace.margin_steps()
    if before is not None and newest <= before.effective_step:
        # Replacing it is safe only while no rank can come to it before it hears of this one.
        return before.effective_step if before.effective_step >= newest + margin else None
    return newest + margin


def _next_generation(before: JobSettings, after: JobSettings) -> JobSettings:
    # By the clock, so that another collector's database cannot give it again.
    return replace(after, generation=max(before.generation + 1, int(time.time())))


def _launch(attempt: AttemptRef) -> Launch:
    return (attempt.job, attempt.run_id, attempt.launch_attempt)
