"""A role for dashboards: it reads what they show, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.models import Base
from paceline_service.store.reader import READABLE, let_read
from tests.integration.postgres import PostgresServer, rows
from tests.integration.store.kit import async_url

ROLE = 'grafana: "of" team-a'


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    made = Database(async_url(postgres_url))
    await migrate(made)
    yield made
    await made.close()


@pytest.fixture
def role(postgres: PostgresServer) -> Iterator[str]:
    quoted = '"' + ROLE.replace('"', '""') + '"'
    postgres.psql(f"CREATE ROLE {quoted} LOGIN")
    yield quoted
    postgres.psql(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")


async def test_reader_reads_what_dashboards_show_and_changes_nothing(
    database: Database, postgres_url: str, postgres: PostgresServer, role: str
) -> None:
    assert await let_read(database, ROLE)
    assert await let_read(database, ROLE), "every start says it again"
    name = postgres_url.rpartition("/")[2]
    privileges = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE"
    allowed = {
        table: [
            one
            for one in privileges.split(", ")
            if rows(postgres_url, "SELECT has_table_privilege(?, ?, ?)", ROLE, table, one)[0][0]
        ]
        for table in Base.metadata.tables
    }
    assert {table for table, what in allowed.items() if what} == set(READABLE)
    assert all(allowed[table] == ["SELECT"] for table in READABLE)
    for table in READABLE:  # partitions too, by way of their table
        postgres.psql(f"SET ROLE {role}; SELECT count(*) FROM {table}", name)
    postgres.psql(f"DROP OWNED BY {role}", name)


async def test_role_that_does_not_exist_is_told_and_keeps_nobody_from_starting(
    database: Database,
) -> None:
    with structlog.testing.capture_logs() as lines:
        assert not await let_read(database, "nobody-made-it")
    (line,) = lines
    assert "CREATE ROLE" in line["remedy"]
    assert "nobody-made-it" in line["error"]
