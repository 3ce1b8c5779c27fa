"""Which partitions this process owns: leases renewed, shared fairly, taken over, given back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.bus import leases
from paceline_service.bus.subjects import PARTITIONS, partition_of
from paceline_service.ending import end_tasks
from paceline_service.store.database import Database

BEATS_PER_LEASE = 3
PATIENCE_BEATS = 2 * BEATS_PER_LEASE
"""An analyzer that cannot work for so long while others can gives its partitions to them."""
_log = structlog.get_logger("paceline.leases")


class Ownership:
    """Keeps leases while the process lives.

    Args:
        database: PostgreSQL.
        owner: a name that no other process has or had.
        ttl_s: how long a lease holds without being renewed.
        on_taken: called with the epochs of partitions that are new.
        on_lost: called with the partitions that go, before they are given back.
        able: whether this process can work on what it owns at present.
    """

    def __init__(
        self,
        database: Database,
        owner: str,
        *,
        ttl_s: float,
        on_taken: Callable[[dict[int, int]], Awaitable[None]],
        on_lost: Callable[[set[int]], Awaitable[None]],
        able: Callable[[], bool],
    ) -> None:
        self.owner = owner
        self.epochs: dict[int, int] = {}
        """By partition that is owned."""
        self.beat_mono_s = 0.0
        """When the database took the last heartbeat."""
        self.ttl_s = ttl_s
        self._database = database
        self._ttl_ns = int(ttl_s * 1e9)
        self._on_taken = on_taken
        self._on_lost = on_lost
        self._able = able
        self._useless_beats = 0
        """For how long others could work and this process could not."""
        self._soon = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; the database may be away at this moment."""
        self._task = asyncio.create_task(self._run(), name="paceline-leases")

    async def stop(self) -> None:
        """Take and renew nothing any more; what is owned stays so until ``leave``."""
        await end_tasks(self._task)

    async def leave(self) -> None:
        """Give everything back."""
        try:
            async with self._database.begin() as connection:
                await leases.leave(connection, self.owner)
        except Exception as error:  # whatever the driver says of a server that is gone
            _log.warning("leases are not given back, and run out", error=str(error))
        self.epochs.clear()

    @property
    def fresh(self) -> bool:
        """Whether the database has taken a heartbeat within the time of a lease."""
        return time.monotonic() - self.beat_mono_s < self.ttl_s

    def owns(self, job: str) -> bool:
        """Whether ``job`` is analysed here, as far as is known."""
        return partition_of(job) in self.epochs

    async def fence(self, connection: AsyncConnection, jobs: set[str]) -> set[str]:
        """Return those of ``jobs`` that this process must not write, and hold the others."""
        held = await leases.hold(connection, self.owner, {partition_of(job) for job in jobs})
        foreign = set()
        for job in jobs:
            partition = partition_of(job)
            if partition not in held or held[partition] != self.epochs.get(partition):
                foreign.add(job)
        if foreign:
            self._soon.set()  # to learn at once what else is lost
        return foreign

    async def holds(self, partition: int, epoch: int) -> bool:
        """Ask the database whether this process has the lease of that epoch."""
        async with self._database.begin() as connection:
            held = await leases.hold(connection, self.owner, {partition})
        return held.get(partition) == epoch

    async def _run(self) -> None:
        while True:
            try:
                await self._beat()
            except (SQLAlchemyError, OSError, asyncio.TimeoutError) as error:
                why = str(error) or type(error).__name__
                _log.error("leases cannot be renewed; it is tried again", error=why)
            except Exception as error:
                _log.error("leases cannot be kept; it is tried again", exc_info=error)
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._soon.wait(), self.ttl_s / BEATS_PER_LEASE)
            self._soon.clear()

    async def _beat(self) -> None:
        able = self._able()
        alive, renewed = await asyncio.wait_for(self._renew(able), self.ttl_s)
        self.beat_mono_s = time.monotonic()
        lost = {number for number, epoch in self.epochs.items() if renewed.get(number) != epoch}
        if lost:
            _log.warning("partitions were taken over by another analyzer", partitions=len(lost))
            await self._drop(lost)
        # Those that were taken in a transaction whose end was not heard of.
        await self._adopt({n: epoch for n, epoch in renewed.items() if n not in self.epochs})
        if not able:
            # Where nobody can work, nothing is gained by moving everything.
            others = any(name != self.owner for name in alive)
            self._useless_beats = self._useless_beats + 1 if others else 0
            if self.epochs and self._useless_beats > PATIENCE_BEATS:
                await self._give_back(set(self.epochs))
            return
        self._useless_beats = 0
        share = share_of(alive, self.owner)
        excess = len(self.epochs) - share
        if excess > 0:
            await self._give_back(set(sorted(self.epochs)[-excess:]))
        elif excess < 0:
            await self._adopt(await asyncio.wait_for(self._take(-excess), self.ttl_s))

    async def _renew(self, able: bool) -> tuple[list[str], dict[int, int]]:
        async with self._database.begin() as connection:
            if not self.beat_mono_s:
                await leases.prepare(connection)
            if able:
                await leases.beat(connection, self.owner)
            alive = await leases.alive(connection, self._ttl_ns)
            return alive, await leases.renew(connection, self.owner, self._ttl_ns)

    async def _take(self, count: int) -> dict[int, int]:
        async with self._database.begin() as connection:
            return await leases.take(connection, self.owner, count, self._ttl_ns)

    async def _adopt(self, taken: dict[int, int]) -> None:
        if taken:
            self.epochs.update(taken)
            _log.info("partitions taken", partitions=len(taken), owned=len(self.epochs))
            await self._on_taken(taken)

    async def _drop(self, partitions: set[int]) -> None:
        for number in partitions:  # first: from here on the fence refuses what is under way
            del self.epochs[number]
        await self._on_lost(partitions)

    async def _give_back(self, partitions: set[int]) -> None:
        await self._drop(partitions)
        async with self._database.begin() as connection:
            await leases.release(connection, self.owner, partitions)
        _log.info("partitions given to others", partitions=len(partitions), owned=len(self.epochs))


def share_of(alive: list[str], owner: str) -> int:
    """Return how many partitions are due to ``owner``: all numbers differ by one at most."""
    if owner not in alive:
        return 0
    return PARTITIONS // len(alive) + (alive.index(owner) < PARTITIONS % len(alive))
