"""A lock of PostgreSQL that lives as long as a connection: it keeps collectors apart."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from paceline_service.errors import DatabaseInUseError

COLLECTORS = 0x7061_6365_0001
"""Held for as long as a collector runs: alone, or together with others that share the jobs."""
MIGRATIONS = 0x7061_6365_0002
HOUSEKEEPING = 0x7061_6365_0003
NODE_ACTIONS = 0x7061_6365_0004
"""One collector at a time counts how many nodes were taken out of service, and takes one more."""
TIMEOUT_S = 10


class ClaimLostError(OSError):
    """Another collector took the database while this one had lost its connection."""


class AdvisoryLock:
    """The claim of one process, on a connection of its own.

    Args:
        url: of the database.
        shared: others may hold it as well, if they share it.
    """

    def __init__(self, url: URL, *, shared: bool) -> None:
        arguments = {"timeout": TIMEOUT_S, "command_timeout": TIMEOUT_S}
        self._shown = url.render_as_string(hide_password=True)
        self._engine = create_async_engine(url, poolclass=NullPool, connect_args=arguments)
        self._function = "pg_try_advisory_lock_shared" if shared else "pg_try_advisory_lock"
        self._connection: AsyncConnection | None = None
        self._driver: Any = None

    @property
    def held(self) -> bool:
        """Whether the connection that holds it is open, as far as this side knows."""
        return self._driver is not None and not self._driver.is_closed()

    async def take(self) -> None:
        """Take it.

        Raises:
            DatabaseInUseError: somebody else has it.
        """
        if not await self._try():
            raise DatabaseInUseError(
                f"another collector uses {self._shown}; stop it, or give this one another "
                "--database"
            )

    async def take_again(self) -> None:
        """Take it after its connection was lost, because the server restarted for example.

        Raises:
            ClaimLostError: somebody else has it by now.
        """
        if not await self._try():
            raise ClaimLostError(
                f"another collector took {self._shown} while this one had lost its connection; "
                "stop one of the two"
            )

    async def release(self) -> None:
        """Let go of it."""
        await self._drop()
        await self._engine.dispose()

    async def _try(self) -> bool:
        await self._drop()
        connection = await self._engine.connect()
        try:
            query = f"SELECT {self._function}({COLLECTORS})"
            taken = bool((await connection.exec_driver_sql(query)).scalar())
            await connection.commit()  # the lock is the session's, not the transaction's
        except BaseException:
            await connection.close()
            raise
        if not taken:
            await connection.close()
            return False
        self._connection = connection
        self._driver = (await connection.get_raw_connection()).driver_connection
        return True

    async def _drop(self) -> None:
        connection, self._connection, self._driver = self._connection, None, None
        if connection is not None:
            await connection.invalidate()
            await connection.close()
