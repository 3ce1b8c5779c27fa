"""One database, one collector: and what happens while PostgreSQL is away."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.errors import DatabaseInUseError
from paceline_service.store.advisory import ClaimLostError
from paceline_service.store.database import Database
from tests.integration.postgres import PostgresServer
from tests.integration.store.kit import async_url


async def answers(database: Database) -> bool:
    async with database.write() as connection:
        return bool((await connection.execute(text("SELECT 1"))).scalar())


async def test_two_collectors_do_not_use_one_postgresql_database(postgres_url: str) -> None:
    first, second = Database(async_url(postgres_url)), Database(async_url(postgres_url))
    try:
        await first.claim()
        with pytest.raises(DatabaseInUseError, match=r"another collector uses .* --database"):
            await second.claim()
        with pytest.raises(DatabaseInUseError):
            await second.claim(shared=True)
        await first.close()
        await second.claim()
        assert await answers(second)
    finally:
        await first.close()
        await second.close()


async def test_those_that_share_the_jobs_share_the_database(postgres_url: str) -> None:
    analyzers = [Database(async_url(postgres_url)) for _ in range(2)]
    alone = Database(async_url(postgres_url))
    try:
        for analyzer in analyzers:
            await analyzer.claim(shared=True)
            assert await answers(analyzer)
        with pytest.raises(DatabaseInUseError):
            await alone.claim()
    finally:
        for database in (*analyzers, alone):
            await database.close()


async def test_who_lost_the_server_takes_its_claim_again_unless_another_has_it(
    postgres: PostgresServer, postgres_url: str
) -> None:
    first, second = Database(async_url(postgres_url)), Database(async_url(postgres_url))
    try:
        await first.claim()
        assert await answers(first)
        postgres.kill()
        with pytest.raises((SQLAlchemyError, OSError)):
            await answers(first)
        with pytest.raises((SQLAlchemyError, OSError)):
            await first.ping()
        postgres.start()
        assert await answers(first)
        with pytest.raises(DatabaseInUseError):
            await second.claim()
        postgres.stop()
        postgres.start()
        await second.claim()
        with pytest.raises(ClaimLostError, match="stop one of the two"):
            await answers(first)
        assert await answers(second)
    finally:
        await first.close()
        await second.close()


async def test_a_new_sqlite_file_can_give_pages_back_to_the_disk(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'paceline.db'}")
    try:
        async with database.write() as connection:
            await connection.execute(text("CREATE TABLE some (a INTEGER)"))
            assert (await connection.execute(text("PRAGMA auto_vacuum"))).scalar() == 2
            assert (await connection.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
    finally:
        await database.close()
