from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from paceline_service.bus import leases
from paceline_service.bus.ownership import Ownership
from paceline_service.bus.subjects import partition_of
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from tests.integration.postgres import PostgresServer

TTL_S = 0.9


class Member:
    """One analyzer's leases, and what it was told of them."""

    def __init__(self, database: Database, name: str) -> None:
        self.taken: list[int] = []
        self.lost: list[int] = []
        self.able = True
        self.ownership = Ownership(
            database, name, ttl_s=TTL_S, on_taken=self._taken, on_lost=self._lost,
            able=lambda: self.able,
        )  # fmt: skip

    @property
    def owned(self) -> int:
        return len(self.ownership.epochs)

    async def _taken(self, epochs: dict[int, int]) -> None:
        self.taken += sorted(epochs)

    async def _lost(self, partitions: set[int]) -> None:
        self.lost += sorted(partitions)


@pytest.fixture(scope="module")
def leases_url(postgres: PostgresServer) -> Iterator[str]:
    """A database of this file: only leases are written in it, and they are deleted."""

    async def prepare() -> None:
        database = Database(url)
        await migrate(database)
        await database.close()

    name = f"leases{os.getpid()}"
    url = CollectorSettings(database=postgres.create(name)).database_url
    asyncio.run(prepare())
    yield url
    postgres.drop(name)


@pytest.fixture
async def members(leases_url: str) -> AsyncIterator[list[Member]]:
    """Three, of which none runs; each has connections of its own."""
    databases = [Database(leases_url) for _ in range(3)]
    made = [Member(one, f"member-{number}") for number, one in enumerate(databases)]
    yield made
    for one in made:
        await one.ownership.stop()
    async with databases[0].write() as connection:
        await connection.execute(text("TRUNCATE leases, analyzers"))
    for database in databases:
        await database.close()


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.03)
    raise AssertionError("not so after 30 s")


async def test_partitions_are_shared_anew_when_members_come_leave_and_die(
    members: list[Member],
) -> None:
    first, second, third = members
    await first.ownership.start()
    await until(lambda: first.owned == 64)
    await second.ownership.start()
    await third.ownership.start()
    await until(lambda: sorted(one.owned for one in members) == [21, 21, 22])
    await third.ownership.stop()
    await third.ownership.leave()
    await until(lambda: first.owned == second.owned == 32)
    before = dict(second.ownership.epochs)
    await second.ownership.stop()  # it dies: nobody gives anything back
    await until(lambda: first.owned == 64)
    assert all(first.ownership.epochs[number] > epoch for number, epoch in before.items())


async def test_who_lost_a_lease_is_fenced_off_and_learns_of_it(members: list[Member]) -> None:
    first, second, _ = members
    await first.ownership.start()
    await until(lambda: first.owned == 64)
    await first.ownership.stop()  # it stands still
    await second.ownership.start()
    await until(lambda: second.owned == 64)
    job = "train"
    async with first.ownership._database.write() as connection:
        assert await first.ownership.fence(connection, {job}) == {job}
    async with second.ownership._database.write() as connection:
        assert await second.ownership.fence(connection, {job}) == set()
    await first.ownership.start()  # and goes on
    await until(lambda: partition_of(job) in first.lost)
    await until(lambda: first.owned == second.owned == 32)


async def test_a_lease_cannot_be_taken_while_a_transaction_of_its_owner_is_open(
    members: list[Member],
) -> None:
    first, second, _ = members
    await first.ownership.start()
    await until(lambda: first.owned == 64)
    await first.ownership.stop()
    async with first.ownership._database.write() as connection:
        assert await first.ownership.fence(connection, {"train"}) == set()
        await second.ownership.start()
        await until(lambda: second.owned == 63)
        await asyncio.sleep(2 * TTL_S)
        assert partition_of("train") not in second.ownership.epochs
    await until(lambda: second.owned == 64)


async def test_who_cannot_work_gives_its_partitions_to_those_who_can(
    members: list[Member],
) -> None:
    first, second, _ = members
    await first.ownership.start()
    await second.ownership.start()
    await until(lambda: first.owned == second.owned == 32)
    first.able = second.able = False
    await asyncio.sleep(3 * TTL_S)
    assert first.owned == second.owned == 32  # nobody can: nothing moves
    second.able = True
    await until(lambda: (first.owned, second.owned) == (0, 64))
    first.able = True
    await until(lambda: first.owned == second.owned == 32)


async def test_an_analyzer_that_starts_while_its_tables_are_out_of_reach_begins_later(
    members: list[Member],
) -> None:
    first, second, _ = members
    async with second.ownership._database.write() as connection:
        await connection.execute(text("ALTER TABLE leases RENAME TO away"))
    await first.ownership.start()
    await asyncio.sleep(TTL_S)
    assert not first.ownership.fresh
    async with second.ownership._database.write() as connection:
        await connection.execute(text("ALTER TABLE away RENAME TO leases"))
    await until(lambda: first.owned == 64)


async def test_partitions_are_given_back_without_a_deadlock_with_a_transaction_under_way(
    members: list[Member],
) -> None:
    """Both lock in the order of partitions, wherever the rows lie."""
    first, second, _ = members
    await first.ownership.start()
    await until(lambda: first.owned == 64)
    await first.ownership.stop()
    low, high = 5, 9
    database, owner = first.ownership._database, first.ownership.owner
    async with database.write() as connection:  # a row that is written moves behind the others
        await connection.execute(
            text("UPDATE leases SET owner = :o WHERE partition = :p"), {"o": owner, "p": low}
        )
        await connection.execute(text("ANALYZE leases"))  # as the server does now and then

    async def release() -> None:
        async with second.ownership._database.write() as connection:
            await leases.release(connection, owner, {low, high})

    async with database.write() as connection:
        assert set(await leases.hold(connection, owner, {low})) == {low}
        releasing = asyncio.create_task(release())
        await asyncio.sleep(0.3)
        assert set(await leases.hold(connection, owner, {high})) == {high}
    await releasing


async def test_leases_that_a_process_has_locked_and_stands_still_are_free_after_a_while(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = members
    await first.ownership.start()
    await until(lambda: first.owned == 64)
    await first.ownership.stop()
    short = text("SET LOCAL idle_in_transaction_session_timeout = '3s'")
    monkeypatch.setattr("paceline_service.store.database._END_IDLE", short)

    async def stands_still() -> None:
        async with first.ownership._database.write() as connection:
            await first.ownership.fence(connection, {"train"})
            await second.ownership.start()
            await until(lambda: second.owned == 63)
            await until(lambda: second.owned == 64)

    with pytest.raises(DBAPIError):
        await stands_still()
