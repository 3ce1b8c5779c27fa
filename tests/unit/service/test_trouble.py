from __future__ import annotations

import errno
import sqlite3

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from paceline_service.errors import DatabaseUnusableError
from paceline_service.store.trouble import told_in_words, why

URL = make_url("postgresql://u:secret@db/x")


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


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (wrapped(sqlite3.DatabaseError("file is not a database")), "file is not a database"),
        (wrapped(sqlite3.OperationalError("database or disk is full")), "full: make room"),
    ],
)
def test_what_keeps_a_program_from_beginning_is_told_in_one_line(
    error: Exception, words: str
) -> None:
    with pytest.raises(DatabaseUnusableError) as caught, told_in_words(URL):
        raise error
    told = str(caught.value)
    assert words in told
    assert "postgresql://u:***@db/x" in told
    assert "\n" not in told


def test_a_mistake_of_the_program_is_not_told_as_one_of_the_database() -> None:
    with pytest.raises(ZeroDivisionError), told_in_words(URL):
        raise ZeroDivisionError
