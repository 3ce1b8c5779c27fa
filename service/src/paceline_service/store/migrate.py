"""Bring a database to the schema of this program, or say why that cannot be."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from paceline_service.errors import DatabaseVersionError
from paceline_service.store.advisory import MIGRATIONS
from paceline_service.store.database import Database

SCRIPTS = Path(__file__).parent / "migrations"


async def migrate(database: Database) -> None:
    """Upgrade ``database`` to the newest schema.

    Raises:
        DatabaseVersionError: a newer program wrote it.
    """
    shown_url = database.url.render_as_string(hide_password=True)
    if database.is_sqlite:
        async with database.write() as connection:
            await connection.run_sync(_upgrade, shown_url)
        return
    # On a connection of its own: to rewrite a large table may take longer than a statement may.
    engine = create_async_engine(database.url, poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            # Several collectors of one database start at the same time: the first one migrates.
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATIONS})"))
            await connection.run_sync(_upgrade, shown_url)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection, shown_url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    present = MigrationContext.configure(connection).get_current_revision()
    if present is not None and present not in known:
        raise DatabaseVersionError(
            f"{shown_url} has schema {present}; this program knows up to "
            f"{scripts.get_current_head()}: it was written by a newer version. Install that "
            "version, or give another --database"
        )
    if present != scripts.get_current_head():
        command.upgrade(config, "head")
