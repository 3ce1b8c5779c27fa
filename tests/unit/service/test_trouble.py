from __future__ import annotations

import errno
import sqlite3

import pytest
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from paceline_service.store.trouble import why


class DriverError(Exception):
    """As asyncpg's: a code says what it is."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("whatever")
        self.sqlstate = sqlstate


def wrapped(error: BaseException) -> SQLAlchemyError:
    return OperationalError("INSERT INTO secrets VALUES (?)", ("value",), error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (wrapped(sqlite3.OperationalError("database or disk is full")), "disk is full"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk is full"),
        (wrapped(DriverError("53100")), "disk is full"),
        (wrapped(DriverError("57P01")), "cannot be reached"),
        (wrapped(DriverError("08006")), "cannot be reached"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "cannot be reached"),
        (TimeoutError(), "cannot be reached"),
        (wrapped(sqlite3.OperationalError("database is locked")), "lock"),
        (wrapped(sqlite3.OperationalError("attempt to write a readonly database")), "read-only"),
        (wrapped(sqlite3.OperationalError("no such table: frames")), "log tells why"),
    ],
)
def test_what_is_wrong_with_a_database_is_said_without_values(
    error: BaseException, words: str
) -> None:
    said = why(error)
    assert words in said
    assert "value" not in said
    assert "secrets" not in said
