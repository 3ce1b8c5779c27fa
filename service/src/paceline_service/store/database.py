"""The database of one collector: connections, durability, and one writer at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from paceline_service.errors import DatabaseInUseError

_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # FULL: an acknowledged frame survives a power cut, not only a crash of the process.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=5000",
    "PRAGMA foreign_keys=ON",
    "PRAGMA wal_autocheckpoint=4000",
)


class Database:
    """An engine, a lock that keeps writers apart, and a file lock that keeps collectors apart."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self._writer = asyncio.Lock()
        self._lock_file: int | None = None
        self.engine: AsyncEngine = create_async_engine(self.url)
        if self.is_sqlite:
            event.listen(self.engine.sync_engine, "connect", _configure_sqlite)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is a SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    def claim(self) -> None:
        """Take the database for this process.

        Raises:
            DatabaseInUseError: another collector has it.
        """
        if not self.is_sqlite or not self.url.database:
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
        """One transaction; committed when the block ends well, and durable then."""
        async with self._writer, self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection to read from; it sees what was committed."""
        async with self.engine.connect() as connection:
            yield connection

    async def ping(self) -> None:
        """Raise what the database raises, if it does."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    async def close(self) -> None:
        """Close every connection and let go of the database."""
        await self.engine.dispose()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def _configure_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in _SQLITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.close()
