"""The analyzer's side of the bus: partitions that are owned, worked on, taken over and left."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from paceline_service.bus.connection import Bus
from paceline_service.bus.ownership import Ownership
from paceline_service.bus.stats import BusStats
from paceline_service.bus.subjects import partition_of
from paceline_service.bus.worker import PartitionWorker
from paceline_service.ending import end_tasks
from paceline_service.ingest.commit import GroupCommit
from paceline_service.jobs import repository as jobs_repository
from paceline_service.jobs.engine import Engine
from paceline_service.store.database import Database

LAG_S = 5.0
LOAD_RETRY_S = 2.0
_log = structlog.get_logger("paceline.bus")


@dataclass(slots=True, kw_only=True)
class _Running:
    worker: PartitionWorker
    tasks: tuple[asyncio.Task[None], ...]


class Analyzer:
    """Owns partitions, and forgets a job as soon as another analyzer may have it.

    Args:
        bus: where messages come from.
        database: where leases and frames are.
        commits: writes the frames.
        engine: analyses them.
        forget: called with a test for the jobs that go.
        owner: a name that no other process has or had.
        ttl_s: of a lease.
        rebuild_window_s: jobs heard of this recently are analysed again when they are taken over.
        max_world_size: most ranks of one job.
        stats: what is counted.
    """

    def __init__(
        self,
        bus: Bus,
        database: Database,
        commits: GroupCommit,
        engine: Engine,
        forget: Callable[[Callable[[str], bool]], None],
        *,
        owner: str,
        ttl_s: float,
        rebuild_window_s: float,
        max_world_size: int,
        stats: BusStats,
    ) -> None:
        self.ownership = Ownership(
            database, owner, ttl_s=ttl_s, on_taken=self._taken, on_lost=self._lost,
            able=lambda: bus.connected,
        )  # fmt: skip
        self._bus = bus
        self._database = database
        self._commits = commits
        self._engine = engine
        self._forget = forget
        self._rebuild_window_s = rebuild_window_s
        self._max_world_size = max_world_size
        self._stats = stats
        self._running: dict[int, _Running] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._lag: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to own partitions."""
        await self.ownership.start()
        self._lag = asyncio.create_task(self._watch_lag(), name="paceline-lag")

    async def stop(self) -> None:
        """Take no more messages; what is owned is kept until ``leave``."""
        await self.ownership.stop()
        await end_tasks(self._lag, *self._loads)
        await end_tasks(*(task for one in self._running.values() for task in one.tasks))

    async def leave(self) -> None:
        """Give every partition back: all that this process had to write is written."""
        await self.ownership.leave()

    @property
    def rebuilt(self) -> bool:
        """Whether the jobs of every partition that was taken are in memory."""
        return self.ownership.beat_mono_s > 0 and not self._loads

    @property
    def taking(self) -> bool:
        """Whether messages of every owned partition are taken."""
        return all(one.worker.bound for one in self._running.values())

    async def _taken(self, epochs: Mapping[int, int]) -> None:
        # Others may have written what this process remembers otherwise.
        self._commits.registry.forget_jobs(_within(epochs))
        for partition, epoch in epochs.items():
            worker = PartitionWorker(
                self._bus, partition, epoch, self._commits, lambda: self._engine.has_room,
                partial(self.ownership.holds, partition, epoch),
                max_world_size=self._max_world_size, stats=self._stats,
            )  # fmt: skip
            task = asyncio.create_task(worker.run(), name=f"paceline-partition-{partition}")
            self._running[partition] = _Running(worker=worker, tasks=(task,))
        self._stats.takeovers += len(epochs)
        self._stats.owned = len(self._running)
        load = asyncio.create_task(self._load(frozenset(epochs)), name="paceline-take-over")
        self._loads.add(load)
        load.add_done_callback(self._loads.discard)

    async def _lost(self, partitions: set[int]) -> None:
        gone = [self._running.pop(one) for one in partitions if one in self._running]
        await end_tasks(*(task for one in gone for task in one.tasks))
        self._commits.registry.forget_jobs(_within(partitions))
        self._forget(_within(partitions))
        self._stats.owned = len(self._running)
        for partition in partitions:
            self._stats.lag.pop(partition, None)

    async def _load(self, partitions: frozenset[int]) -> None:
        """Analyse again what ran when these partitions were taken."""
        since_ns = time.time_ns() - int(self._rebuild_window_s * 1e9)
        while True:
            try:
                async with self._database.read() as connection:
                    rows = await jobs_repository.unfinished_since(connection, since_ns)
                break
            except Exception as error:
                _log.error("jobs cannot be taken over; it is tried again",
                           error=f"{type(error).__name__}: {error}")  # fmt: skip
                await asyncio.sleep(LOAD_RETRY_S)
        for row in rows:
            number = partition_of(row.ref.job)
            if number in partitions and number in self._running:
                await self._engine.load(row.ref)

    async def _watch_lag(self) -> None:
        while True:
            for partition, one in list(self._running.items()):
                if one.worker.bound:
                    with contextlib.suppress(Exception):  # the one before stands
                        lag = await one.worker.lag()
                        if self._running.get(partition) is one:  # and not lost meanwhile
                            self._stats.lag[partition] = lag
            await asyncio.sleep(LAG_S)


def _within(partitions: Mapping[int, int] | set[int]) -> Callable[[str], bool]:
    chosen = frozenset(partitions)
    return lambda job: partition_of(job) in chosen
