"""The database of one collector: connections, durability, and one writer at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Insert, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from paceline_service.errors import DatabaseInUseError, StoreUnavailableError
from paceline_service.store.advisory import AdvisoryLock
from paceline_service.store.models import Base

_SQLITE_PRAGMAS = (
    # These two take effect in a new file only. Frames are 1 to 5 KB: on pages of 4 KB each would
    # take a page, and a third of the disk would hold nothing.
    "PRAGMA page_size=16384",
    # Pages that retention frees can be given back to the disk.
    "PRAGMA auto_vacuum=INCREMENTAL",
    "PRAGMA journal_mode=WAL",
    # FULL: an acknowledged frame survives a power cut, not only a crash of the process.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=5000",
    "PRAGMA foreign_keys=ON",
    # What a burst, or a migration, made of the log does not stay on the disk.
    "PRAGMA journal_size_limit=67108864",
)
_CHECKPOINT_BYTES = 16 << 20
"""How long the log gets before it is brought into the file."""
_POSTGRESQL_ARGUMENTS = {
    "timeout": 10,
    # A server that does not answer any more fails the statement, and the sender keeps its frames.
    "command_timeout": 60,
}
_END_IDLE = text("SET LOCAL idle_in_transaction_session_timeout = '20s'")


class Database:
    """An engine, a lock that keeps writers apart, and one that keeps collectors apart."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self._writer = asyncio.Lock()
        self._lock_file: int | None = None
        self._advisory: AdvisoryLock | None = None
        options = {} if self.is_sqlite else {"connect_args": dict(_POSTGRESQL_ARGUMENTS)}
        # Errors are logged, and told by /readyz: what was bound stays out of their text.
        self.engine: AsyncEngine = create_async_engine(self.url, hide_parameters=True, **options)
        if self.is_sqlite:
            event.listen(self.engine.sync_engine, "connect", _configure_sqlite)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    async def claim(self, *, shared: bool = False) -> None:
        """Take the database for this process.

        Args:
            shared: together with others that take it so (PostgreSQL only).

        Raises:
            DatabaseInUseError: another collector has it.
        """
        if self.is_sqlite:
            self._claim_file()
            return
        self._advisory = AdvisoryLock(self.url, shared=shared)
        await self._advisory.take()

    def _claim_file(self) -> None:
        if not self.url.database:
            return
        self.make_directory()
        path = Path(self.url.database)
        lock_path = path.with_name(path.name + ".lock")
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DatabaseInUseError(
                f"another collector (pid {holder}) uses {path}; stop it, or give this one "
                "another --database"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._lock_file = descriptor

    def make_directory(self) -> None:
        """Make the directory of a SQLite file, private to its user, where there is none."""
        if self.is_sqlite and self.url.database:
            directory = Path(self.url.database).parent
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """One transaction; committed when the block ends well, and durable then.

        Raises:
            ClaimLostError: another collector took the database while the server was away.
        """
        async with self._writer:
            if self._advisory is not None and not self._advisory.held:
                await self._advisory.take_again()
            async with self.begin() as connection:
                yield connection

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction beside the one writer's.

        Should this process stand still, PostgreSQL ends it: what it has locked, as leases are,
        could nobody else take until it goes on.
        """
        async with self._connect() as connection, connection.begin():
            if not self.is_sqlite:
                await connection.execute(_END_IDLE)
            yield connection

    @asynccontextmanager
    async def change(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that somebody waits for.

        Raises:
            StoreUnavailableError: the database did not take it.
        """
        try:
            async with self.write() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailableError(
                "the database does not take the change; nothing was changed"
            ) from error

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection to read from; it sees what was committed."""
        async with self._connect() as connection:
            yield connection

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncConnection]:
        """A connection from the pool; what keeps it from being made is an ``OSError``."""
        try:
            connection = await self.engine.connect()
        except (SQLAlchemyError, OSError):
            raise
        except Exception as error:  # of the driver: the server is starting, the name is unknown
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        try:
            yield connection
        finally:
            await asyncio.shield(connection.close())

    async def ping(self) -> None:
        """Raise what the database raises, if it does."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    async def close(self) -> None:
        """Close every connection and let go of the database."""
        await self.engine.dispose()
        if self._advisory is not None:
            await self._advisory.release()
            self._advisory = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def insert_or_ignore(connection: AsyncConnection, model: type[Base]) -> Insert:
    """Return an insert that leaves out rows whose key is there already."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(model).on_conflict_do_nothing()
    return postgresql.insert(model).on_conflict_do_nothing()


def _configure_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in _SQLITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.execute("PRAGMA page_size")
    page_bytes = cursor.fetchone()[0]
    cursor.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_BYTES // page_bytes}")
    cursor.close()
