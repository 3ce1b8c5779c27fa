"""The parts of a running collector, connected; they start and stop here."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.telemetry import GPU_UUID
from paceline_service.access.guard import Guard
from paceline_service.access.parts import Access
from paceline_service.bus.wiring import BUS_SLACK_S, bus_parts
from paceline_service.control.relief_watch import ReliefWatch
from paceline_service.control.service import ControlService
from paceline_service.ending import end_tasks
from paceline_service.incidents.offences import Place
from paceline_service.incidents.service import sync_incidents
from paceline_service.incidents.silences import SilenceBook
from paceline_service.ingest.commit import GroupCommit
from paceline_service.ingest.endpoints import FrameSink
from paceline_service.jobs import repository as jobs_repository
from paceline_service.jobs.apart_engine import AnyEngine, ApartEngine, Engines
from paceline_service.jobs.board import Board
from paceline_service.jobs.engine import Engine
from paceline_service.jobs.making import analyses
from paceline_service.jobs.persist import Persister
from paceline_service.jobs.service import JobService
from paceline_service.jobs.snapshot import Snapshot, Update
from paceline_service.jobs.source import FrameSource, stored_frames
from paceline_service.notify.notifier import Notifier
from paceline_service.scale_settings import GATEWAY
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database
from paceline_service.store.frames import CommittedFrame
from paceline_service.store.housekeeping import Housekeeping
from paceline_service.store.migrate import migrate
from paceline_service.store.reader import let_read
from paceline_service.store.trouble import told_in_words

if TYPE_CHECKING:
    from paceline_service.bus.parts import BusParts

_log = structlog.get_logger("paceline.collector")


@dataclass(slots=True)
class Collector:
    """The parts of a running collector; one per process, made by ``build``."""

    settings: CollectorSettings
    database: Database
    guard: Guard
    access: Access
    board: Board
    engine: AnyEngine
    source: FrameSource
    commits: GroupCommit
    persister: Persister
    housekeeping: Housekeeping
    jobs: JobService
    control: ControlService
    silences: SilenceBook
    relief: ReliefWatch
    notifier: Notifier
    bus: BusParts | None = None
    """None: everything is in this process."""
    token_file: Path | None = None
    rebuild: asyncio.Task[None] | None = field(default=None)

    @classmethod
    def build(cls, settings: CollectorSettings) -> Collector:
        """Connect the parts; nothing runs yet."""
        database = Database(settings.database_url)
        access = Access.build(settings, database)
        board = Board()
        bus = bus_parts(settings, database)
        fence = bus.fence if bus is not None else None
        persister = Persister(database, _sync_incidents, fence)

        source = stored_frames(database)

        def publish(update: Update) -> None:
            board.post(update)
            persister.put(update)

        make_analysis = analyses(settings)
        near = Engine(settings, source, publish, board.forget, make_analysis)
        engine: AnyEngine = near
        if bus is None and settings.apart_ranks and settings.has_database_file:
            engine = Engines(near, ApartEngine(settings, publish, board.forget),
                             most_ranks=settings.apart_ranks)  # fmt: skip
        slack_s = BUS_SLACK_S if bus is not None else 0.0
        control = ControlService(database, slack_s=slack_s, fence=fence)
        control.on_note = lambda attempt, text: engine.note(attempt.id, text)

        def committed(frames: list[CommittedFrame]) -> None:
            if bus is not None:  # what was given away while it was written is read by its owner
                frames = [one for one in frames if bus.owns(one.attempt.job)]
                if not frames:
                    return
            control.note(frames)
            engine.put(frames)

        def forget() -> None:
            commits.registry.forget_unused(settings.live_window_s)
            control.forget_unused(settings.live_window_s)

        commits = GroupCommit(
            database,
            committed,
            queue_bytes=settings.queue_bytes,
            analysis_has_room=lambda: engine.has_room,
            fence=fence,
        )

        def load() -> tuple[float, int, float]:
            ratio = max(
                engine.backlog_bytes / settings.backlog_bytes,
                commits.waiting_bytes / settings.queue_bytes,
            )
            # Frames that are not there have no lag, however late the last ones were.
            lag_s = engine.stats.lag_seconds if engine.backlog_bytes else 0.0
            return ratio, sum(commits.stats.refused.values()), lag_s

        if bus is not None:
            bus.connect(
                board=board, engine=near, commits=commits, control=control,
                make_analysis=make_analysis,
            )  # fmt: skip
        housekeeping = Housekeeping(
            database,
            settings,
            on_deleted=commits.registry.forget_before,
            on_pass=forget,
        )
        jobs = JobService(
            database, board, engine, rebuild_window_s=settings.rebuild_window_s,
            others=bus.states if bus is not None else None,
        )  # fmt: skip
        silences = SilenceBook(database)
        notifier = Notifier(
            settings, database, silences, page_url=settings.page_url, fence=fence,
            owns=bus.owns if bus is not None else None,
        )  # fmt: skip
        return cls(
            settings, database, access.guard, access, board, engine, source, commits, persister,
            housekeeping, jobs, control, silences,
            ReliefWatch(control, load, max_stride=settings.relief_max_stride), notifier, bus=bus,
        )  # fmt: skip

    @property
    def analyses(self) -> bool:
        """Whether frames are stored and analysed here."""
        return self.settings.role != GATEWAY

    @property
    def sink(self) -> FrameSink | None:
        """Where the frames of requests go; None where none are taken."""
        return self.commits if self.bus is None else self.bus.publisher

    @property
    def rebuilt(self) -> bool:
        """Whether everything is in memory that ran when the process before this one ended."""
        done = self.rebuild is not None and self.rebuild.done()
        return done and (self.bus is None or self.bus.rebuilt)

    async def start(self) -> None:
        """Open the database, and begin to work; does nothing when that was done.

        Raises:
            ConfigError: the database is in use, newer, or of no use, or a token is missing.
        """
        if self.rebuild is not None:
            return
        with told_in_words(self.database.url):
            await self.database.claim(shared=self.bus is not None)
            await migrate(self.database)
            if self.settings.database_reader:
                await let_read(self.database, self.settings.database_reader)
            self.token_file = await self.access.start()
            await self.control.start()
        if self.analyses:
            self.engine.start()
            await self.commits.start()
            self.persister.start()
            await self.housekeeping.start()
            self.relief.start()
            await self.notifier.start()
        self.rebuild = asyncio.create_task(self._rebuild_recent(), name="paceline-rebuild")

    async def stop(self) -> None:
        """Finish what was begun, and close the database."""
        self.board.close()
        await end_tasks(self.rebuild)
        if self.bus is not None:
            await self.bus.stop()
        if self.analyses:
            await self.notifier.stop()
            await self.relief.stop()
            await self.commits.stop()
        await self.control.stop()
        if self.analyses:
            await self.engine.stop()
            await self.persister.stop()
            await self.housekeeping.stop()
        if self.bus is not None:
            await self.bus.close()
        await self.access.stop()
        await self.database.close()

    async def _rebuild_recent(self) -> None:
        """Analyse again what was running when the process before this one ended."""
        if self.bus is not None:  # by partition, as they are taken
            await self.bus.start()
            return
        since_ns = time.time_ns() - int(self.settings.rebuild_window_s * 1e9)
        async with self.database.read() as connection:
            rows = await jobs_repository.unfinished_since(connection, since_ns)
        for row in rows:
            await self.engine.load(row.ref)
        if rows:
            _log.info("analysed recent jobs again", attempts=len(rows))


async def _sync_incidents(connection: AsyncConnection, snapshot: Snapshot) -> None:
    await sync_incidents(
        connection,
        snapshot.attempt.id,
        snapshot.report["findings"],
        last_step=snapshot.last_step,
        ended=snapshot.state == "ended",
        places=_places(snapshot),
    )


def _places(snapshot: Snapshot) -> dict[int, Place]:
    """Return where the ranks run; the UUID of a GPU is known where telemetry told it."""
    found = {}
    for row in snapshot.ranks:
        values = (row.get("telemetry") or {}).get("values", {})
        found[row["rank"]] = Place(row.get("node") or "", str(values.get(GPU_UUID, "")))
    return found
