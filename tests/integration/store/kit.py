"""Migrations step by step, and rows for every table."""

from __future__ import annotations

from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Inspector, MetaData, Table, func, inspect, select

from paceline_service.store.database import Database
from paceline_service.store.migrate import SCRIPTS
from paceline_service.store.models import Base

Rows = dict[str, list[dict[str, Any]]]


def async_url(url: str) -> str:
    """Return the URL of a PostgreSQL database as SQLAlchemy wants it."""
    return url.replace("postgresql:", "postgresql+asyncpg:", 1)


def revisions() -> list[str]:
    """Return all revisions, the first one first."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    found = ScriptDirectory.from_config(config).walk_revisions()
    return [script.revision for script in found][::-1]


async def move(database: Database, revision: str) -> None:
    """Bring a database to a revision, forward or back."""

    def step(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        context = _present(connection)
        forward = context is None or (revision != "base" and revision > context)
        (command.upgrade if forward else command.downgrade)(config, revision)

    async with database.write() as connection:
        await connection.run_sync(step)


def _present(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


async def shape(database: Database) -> dict[str, Any]:
    """Return tables with their columns, keys and indexes, as the database tells them."""

    def look(connection: Connection) -> dict[str, Any]:
        inspector = inspect(connection)
        return {name: _table(inspector, name) for name in inspector.get_table_names()}

    async with database.read() as connection:
        return await connection.run_sync(look)


def _table(inspector: Inspector, name: str) -> dict[str, Any]:
    columns = inspector.get_columns(name)
    return {
        "columns": {c["name"]: (str(c["type"]), c["nullable"]) for c in columns},
        "key": inspector.get_pk_constraint(name)["constrained_columns"],
        "unique": sorted(u["name"] for u in inspector.get_unique_constraints(name)),
        "references": sorted(k["name"] for k in inspector.get_foreign_keys(name)),
        "indexes": sorted(i["name"] for i in inspector.get_indexes(name)),
    }


async def fill(database: Database) -> None:
    """Put a row into every table that there is at present."""

    def work(connection: Connection) -> None:
        metadata = MetaData()
        metadata.reflect(connection)
        for table in metadata.sorted_tables:
            if table.name in Base.metadata.tables and not _count(connection, table):
                connection.execute(table.insert().values(**_row(table)))

    async with database.write() as connection:
        await connection.run_sync(work)


async def contents(database: Database) -> Rows:
    """Return every row of the tables that a model describes."""

    def work(connection: Connection) -> Rows:
        metadata = MetaData()
        metadata.reflect(connection)
        return {
            name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for name, table in metadata.tables.items()
            if name in Base.metadata.tables
        }

    async with database.read() as connection:
        return await connection.run_sync(work)


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def _row(table: Table) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for column in table.columns:
        kind = column.type.python_type
        values[column.name] = {int: 1, str: "x", bytes: b"x", float: 1.5, bool: True}[kind]
    return values
