"""What ``--bus`` adds to a collector, by its role; it starts and stops here."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable

import structlog
from nats.js import api
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.bus.analyzer import Analyzer
from paceline_service.bus.connection import Bus
from paceline_service.bus.publisher import Publisher
from paceline_service.bus.states import StoredStates
from paceline_service.bus.stats import BusStats
from paceline_service.control.service import ControlService
from paceline_service.ending import end_tasks
from paceline_service.ingest.commit import GroupCommit
from paceline_service.jobs.board import Board
from paceline_service.jobs.engine import Engine
from paceline_service.jobs.live import MakeAnalysis
from paceline_service.scale_settings import ANALYZER, GATEWAY, BusSettings
from paceline_service.store.database import Database
from paceline_service.store.drops import add_drops

FOLLOW_S = 1.0
"""How often settings are read that other processes were asked for."""
_log = structlog.get_logger("paceline.bus")


class BusParts:
    """Everything of one process that has to do with the bus.

    Args:
        settings: of the collector.
        database: PostgreSQL.
        limits: ``queue_bytes``, ``max_world_size`` and ``rebuild_window_s`` of the settings.
    """

    def __init__(
        self,
        settings: BusSettings,
        database: Database,
        *,
        queue_bytes: int,
        max_world_size: int,
        rebuild_window_s: float,
    ) -> None:
        self.stats = BusStats()
        self.owner = f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.bus = Bus(
            settings.bus_servers,
            stream=settings.bus_stream,
            limits=_limits(settings),
            credentials=settings.bus_credentials,
            ca=settings.bus_ca,
            name=f"paceline-{settings.role}-{self.owner}",
        )
        self.publisher: Publisher | None = None
        self.analyzer: Analyzer | None = None
        self.states: StoredStates | None = None
        if settings.role != ANALYZER:
            self.publisher = Publisher(self.bus, queue_bytes=queue_bytes, stats=self.stats)
        self._analyses = settings.role != GATEWAY
        self._lease_s = settings.lease_s
        self._max_world_size = max_world_size
        self._rebuild_window_s = rebuild_window_s
        self._database = database
        self._control: ControlService | None = None
        self._task: asyncio.Task[None] | None = None

    def connect(
        self,
        *,
        board: Board,
        engine: Engine,
        commits: GroupCommit,
        control: ControlService,
        make_analysis: MakeAnalysis,
    ) -> None:
        """Connect it with the parts of the collector that need it to be made first."""
        self._control = control
        self.states = StoredStates(self._database, board, self.owns, make_analysis)
        if not self._analyses:
            return

        def forget(covers: Callable[[str], bool]) -> None:
            control.drop(covers)
            engine.drop(covers)

        self.analyzer = Analyzer(
            self.bus, self._database, commits, engine, forget,
            owner=self.owner, ttl_s=self._lease_s, rebuild_window_s=self._rebuild_window_s,
            max_world_size=self._max_world_size, stats=self.stats,
        )  # fmt: skip

    async def fence(self, connection: AsyncConnection, jobs: set[str]) -> set[str]:
        """Return those of ``jobs`` that this process must not write, and hold the others."""
        if self.analyzer is None:
            return jobs
        return await self.analyzer.ownership.fence(connection, jobs)

    async def start(self) -> None:
        """Begin; the rest of the collector runs."""
        assert self.states is not None, "connect() comes first"
        self.bus.start()
        self.states.start()
        self._task = asyncio.create_task(self._follow(), name="paceline-follow")
        if self.analyzer is not None:
            await self.analyzer.start()

    async def stop(self) -> None:
        """Take nothing new; the rest of the collector may finish what was begun."""
        if self.analyzer is not None:
            await self.analyzer.stop()
        await end_tasks(self._task)
        if self.states is not None:
            await self.states.stop()

    async def close(self) -> None:
        """Everything is written: let others go on, and leave the bus."""
        if self.analyzer is not None:
            await self.analyzer.leave()
        await self._store_rejects()
        await self.bus.close()

    @property
    def rebuilt(self) -> bool:
        """Whether the jobs of the partitions that are owned are in memory."""
        return self.analyzer is None or self.analyzer.rebuilt

    def readiness(self) -> dict[str, str]:
        """Return what this process needs to do its part: what is wrong with it, or nothing."""
        checks = {"bus": self.bus.trouble}
        if self.analyzer is not None:
            checks["leases"] = (
                ""
                if self.analyzer.ownership.fresh
                else ("the database has taken no heartbeat within the time of a lease")
            )
            checks["partitions"] = (
                "" if self.analyzer.taking else ("messages of some partitions are not taken yet")
            )
        return checks

    def owns(self, job: str) -> bool:
        """Whether ``job`` is analysed in this process."""
        return self.analyzer is not None and self.analyzer.ownership.owns(job)

    async def _follow(self) -> None:
        assert self._control is not None, "connect() comes first"
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                await self._control.refresh()
            except Exception as error:  # whatever it is: the next time it may be over
                why = f"{type(error).__name__}: {error}"
                _log.warning("settings are not read; those before count", error=why)
            await self._store_rejects()

    async def _store_rejects(self) -> None:
        if self.publisher is None or not self.publisher.unstored_rejects:
            return
        rejects, self.publisher.unstored_rejects = self.publisher.unstored_rejects, Counter()
        try:
            async with self._database.write() as connection:
                await add_drops(connection, rejects)
        except Exception as error:
            self.publisher.unstored_rejects.update(rejects)
            why = f"{type(error).__name__}: {error}"
            _log.warning("rejections are not stored; they are tried again", error=why)


def _limits(settings: BusSettings) -> api.StreamConfig:
    window_s, age_s = settings.bus_duplicate_window_s, settings.bus_max_age_s
    return api.StreamConfig(
        max_bytes=settings.bus_max_bytes,
        max_age=age_s,
        duplicate_window=min(window_s, age_s) if age_s else window_s,
        num_replicas=settings.bus_replicas,
    )
