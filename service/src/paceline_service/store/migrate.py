"""Bring a database to the schema of this program, or say why that cannot be."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from paceline_service.errors import DatabaseVersionError
from paceline_service.store.database import Database

SCRIPTS = Path(__file__).parent / "migrations"


async def migrate(database: Database) -> None:
    """Upgrade ``database`` to the newest schema.

    Raises:
        DatabaseVersionError: a newer program wrote it.
    """
    async with database.write() as connection:
        await connection.run_sync(_upgrade, database.url.render_as_string(hide_password=True))


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
