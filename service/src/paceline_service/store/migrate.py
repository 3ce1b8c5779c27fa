"""Bring a database to the schema of this program, or say why that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from paceline.errors import ConfigError
from paceline_service.errors import DatabaseVersionError
from paceline_service.store.advisory import MIGRATIONS
from paceline_service.store.database import Database

SCRIPTS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Where the schema of a database is, and what this program knows."""

    present: str | None
    """None: there are no tables."""
    newest: str
    known: tuple[str, ...]
    """The oldest first."""


async def migrate(database: Database) -> None:
    """Upgrade ``database`` to the newest schema.

    Raises:
        DatabaseVersionError: a newer program wrote it.
    """
    await _alone(database, _upgrade)


async def take_back(database: Database, revision: str) -> None:
    """Bring the schema of ``database`` back to that of an older program.

    Raises:
        DatabaseVersionError: a newer program wrote it.
        ConfigError: there is no such revision, or it is not an older one.
    """

    def work(connection: Connection, shown_url: str) -> None:
        config, found = _config(connection), _find(connection)
        _refuse_newer(found, shown_url)
        older = found.known[: found.known.index(found.present)] if found.present else ()
        if revision not in older:
            raise ConfigError(
                f"{shown_url} has schema {found.present}; it can be taken back to "
                f"{', '.join(older) or 'nothing'}, not to {revision!r}"
            )
        command.downgrade(config, revision)

    await _alone(database, work)


async def find_revision(database: Database) -> Revision:
    """Return where the schema of ``database`` is."""
    async with database.read() as connection:
        return await connection.run_sync(_find)


async def _alone(database: Database, work: Callable[[Connection, str], None]) -> None:
    """Do something with the schema while nobody else does."""
    shown_url = database.url.render_as_string(hide_password=True)
    if database.is_sqlite:
        async with database.write() as connection:
            await connection.run_sync(work, shown_url)
        return
    # On a connection of its own: to rewrite a large table may take longer than a statement may.
    engine = create_async_engine(database.url, poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            # Several collectors of one database start at the same time: the first one migrates.
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATIONS})"))
            await connection.run_sync(work, shown_url)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection, shown_url: str) -> None:
    found = _find(connection)
    _refuse_newer(found, shown_url)
    if found.present != found.newest:
        command.upgrade(_config(connection), "head")


def _refuse_newer(found: Revision, shown_url: str) -> None:
    if found.present is not None and found.present not in found.known:
        raise DatabaseVersionError(
            f"{shown_url} has schema {found.present}; this program knows up to {found.newest}: it "
            "was written by a newer version. Install that version, or give another --database"
        )


def _find(connection: Connection) -> Revision:
    scripts = ScriptDirectory.from_config(_config(connection))
    known = tuple(script.revision for script in scripts.walk_revisions())[::-1]
    present = MigrationContext.configure(connection).get_current_revision()
    return Revision(present=present, newest=known[-1], known=known)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
