"""An SQLite file from outside: opened for reading alone, plain tables only, work bounded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import numpy as np

from paceline.errors import InputError
from paceline_service.analysis.records import Int64Array

ROWS_AT_A_TIME = 1 << 15
MAX_VALUE_BYTES = 16 << 20
_STEPS_BASE, _STEPS_PER_BYTE = 20_000_000, 4
"""Of SQLite's virtual machine, in one query: a scan takes fewer than one for each byte."""
_STEPS_BETWEEN_CHECKS = 20_000
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA})
_BROKEN = (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError)
"""What comes of a damaged file; the second where a message of SQLite's quotes from it."""
_FUNCTIONS = frozenset({"ifnull", "coalesce", "substr", "min", "max"})


class Database:
    """One file. Nothing of it runs: no views, no triggers, no extensions, no virtual tables.

    Raises:
        InputError: from any method: it is damaged, or not what it should be; names the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._steps_left = 0
        self._distinct: dict[tuple[str, str], list[int]] = {}
        self._budget = _STEPS_BASE + _STEPS_PER_BYTE * path.stat().st_size
        # Immutable: neither a lock nor a journal beside it is looked at, and nothing is written.
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            self._guard()
            self.columns = self._tables()
        except _BROKEN as error:
            raise self._refused(error) from error

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with all these columns."""
        return set(columns) <= self.columns.get(table, frozenset())

    def first_of(self, table: str, *columns: str) -> str:
        """Return the first of these columns that the table has; empty if none."""
        there = self.columns.get(table, frozenset())
        return next((column for column in columns if column in there), "")

    def tables(
        self, table: str, columns: Sequence[str], where: str = "", values: Sequence[int] = ()
    ) -> Iterator[Int64Array]:
        """Yield whole numbers, shape (N, columns), some rows at a time.

        What is no number is 0 and what is missing is -1; a column that the table lacks is -1.
        """
        there = self.columns.get(table, frozenset())
        chosen = ", ".join(
            f'ifnull(CAST("{column}" AS INTEGER), -1)' if column in there else "-1"
            for column in columns
        )
        for rows in self._rows(table, chosen, where, values):
            flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(columns))
            yield flat.reshape(-1, len(columns))

    def rows(
        self, table: str, columns: Sequence[str], where: str = "", values: Sequence[int] = ()
    ) -> Iterator[list[tuple[object, ...]]]:
        """Yield rows as they are, some at a time; a column that the table lacks is None."""
        there = self.columns.get(table, frozenset())
        chosen = ", ".join(f'"{c}"' if c in there else "NULL" for c in columns)
        return self._rows(table, chosen, where, values)

    def distinct(self, table: str, column: str) -> list[int]:
        """Return the different whole numbers of a column, ascending; none if there is no such."""
        if not self.has(table, column):
            return []
        if (table, column) not in self._distinct:
            found: set[int] = set()
            for part in self.tables(table, [column]):
                found.update(np.unique(part).tolist())
            self._distinct[table, column] = sorted(found)
        return self._distinct[table, column]

    def text(self, table: str, key: str, column: str, number: int) -> str:
        """Return one text by its key, which must be ``keyed``; empty where there is none."""
        query = f'SELECT "{column}" FROM "{table}" WHERE "{key}" = ? LIMIT 1'
        try:
            # Counts as work of the query that runs meanwhile.
            row = self._connection.execute(query, (number,)).fetchone()
        except _BROKEN as error:
            raise self._refused(error) from error
        return row[0] if row is not None and isinstance(row[0], str) else ""

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Database:
        """Return the database itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _rows(
        self, table: str, chosen: str, where: str, values: Sequence[int]
    ) -> Iterator[list[tuple[object, ...]]]:
        if table not in self.columns:
            return
        self._steps_left = self._budget
        query = f'SELECT {chosen} FROM "{table}"' + (f" WHERE {where}" if where else "")
        try:
            cursor = self._connection.execute(query, tuple(values))
            while rows := cursor.fetchmany(ROWS_AT_A_TIME):
                yield rows
        except _BROKEN as error:
            raise self._refused(error) from error

    def _tables(self) -> dict[str, frozenset[str]]:
        """Return the plain tables, and of each the columns that are stored and not computed."""
        self._steps_left = self._budget
        names = self._connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        ).fetchmany(4096)
        found = {}
        self.keyed: set[tuple[str, str]] = set()
        """Table and column of whole numbers by which one row is found without a scan."""
        for name, sql in names:
            if not isinstance(name, str) or '"' in name or "VIRTUAL" in str(sql)[:40].upper():
                continue
            listed = self._connection.execute(f'PRAGMA table_info("{name}")').fetchall()
            keys = [row for row in listed if row[5]]
            if len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER":
                self.keyed.add((name, str(keys[0][1])))
            found[name] = frozenset(row[1] for row in listed if '"' not in str(row[1]))
        return found

    def _guard(self) -> None:
        connection = self._connection
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        for pragma in ("trusted_schema = OFF", "query_only = ON", "mmap_size = 0",
                       "cell_size_check = ON", "temp_store = MEMORY"):  # fmt: skip
            connection.execute(f"PRAGMA {pragma}")
        if hasattr(connection, "setlimit"):  # Python 3.11
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.set_authorizer(_authorized)
        connection.set_progress_handler(self._tick, _STEPS_BETWEEN_CHECKS)

    def _tick(self) -> int:
        self._steps_left -= _STEPS_BETWEEN_CHECKS
        return int(self._steps_left < 0)

    def _refused(self, error: Exception) -> InputError:
        if "interrupted" in str(error):
            return InputError(f"{self.path}: reading it takes more work than its size explains")
        why = "its schema is malformed" if isinstance(error, UnicodeDecodeError) else str(error)
        return InputError(f"{self.path}: the SQLite file is damaged or cut short ({why[:200]})")


def _authorized(action: int, first: str | None, second: str | None, *more: object) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if str(second) in _FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
