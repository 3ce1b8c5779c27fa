"""Why a database did not take something, in words for whoever can change it."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

UNKNOWN = "the collector's log tells why"
_FULL = ("database or disk is full", "no space left on device", "could not extend file")
_FULL_STATE = "53100"
"""PostgreSQL's code for a full disk; those of a server that is not there begin as below."""
_AWAY_STATES = ("08", "57P")


def why(error: BaseException) -> str:
    """Return what is wrong with the database, without its address or any value."""
    for cause in _causes(error):
        state = str(getattr(cause, "sqlstate", None) or "")
        if state == _FULL_STATE or getattr(cause, "errno", None) == errno.ENOSPC:
            return "its disk is full: make room"
        if any(words in str(cause).lower() for words in _FULL):
            return "its disk is full: make room"
        if "database is locked" in str(cause):
            return "another program holds its lock"
        if "readonly database" in str(cause) or getattr(cause, "errno", None) == errno.EROFS:
            return "it is read-only"
        if state.startswith(_AWAY_STATES) or isinstance(cause, OSError | TimeoutError):
            return "it cannot be reached"
        if "connection" in type(cause).__name__.lower():
            return "it cannot be reached"
    return UNKNOWN


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(8):
        if found is None:
            return
        yield found
        driver = (
            found.orig if isinstance(found, SQLAlchemyError) and hasattr(found, "orig") else None
        )
        found = driver or found.__cause__ or found.__context__
