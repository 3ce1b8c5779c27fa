"""What dashboards may read of the database: a role of PostgreSQL is given the tables that hold it.

The tables are made by migrations, so nobody can give them away before the first start; and a
role that may read everything would read tokens' hashes, addresses and the audit log.
"""

from __future__ import annotations

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.store.database import Database

READABLE = (
    "acknowledgements",
    "incidents",
    "job_attempts",
    "jobs",
    "lanes",
    "offences",
    "rank_incarnations",
    "rank_windows",
    "step_summaries",
)
"""What docs/tables.md tells of, and what its rows refer to."""
_log = structlog.get_logger("paceline.store")


async def let_read(database: Database, role: str) -> bool:
    """Let ``role`` read the tables of dashboards; say whether it may.

    A role that does not exist keeps no collector from starting: frames matter more than a panel.
    """
    if database.is_sqlite:
        _log.warning("SQLite knows no roles", setting="PACELINE_SERVE_DATABASE_READER", role=role)
        return False
    name = database.engine.dialect.identifier_preparer.quote_identifier(role)
    try:
        async with database.write() as connection:
            # Not text(): a colon in the name would begin a parameter.
            await connection.exec_driver_sql(f"GRANT SELECT ON {', '.join(READABLE)} TO {name}")
    except SQLAlchemyError as error:
        _log.warning(
            "dashboards cannot read the database",
            role=role,
            error=str(getattr(error, "orig", error)).splitlines()[0],
            remedy=f"CREATE ROLE {name} LOGIN PASSWORD '...'; then restart the collector",
        )
        return False
    return True
