"""Why a database did not take something, in words for whoever can change it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from paceline_service.errors import DatabaseUnusableError

UNKNOWN = "the collector's log tells why"
_FULL = ("database or disk is full", "no space left on device", "could not extend file")
_FULL_STATE = "53100"
"""PostgreSQL's code for a full disk; those of a server that is not there begin as below."""
_AWAY_STATES = ("08", "57P")
_CONTRADICTION_STATES = "23"
_AWAY = "it cannot be reached"


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
            return _AWAY
        if "connection" in type(cause).__name__.lower():
            return _AWAY
    return UNKNOWN


def contradicts(error: BaseException) -> bool:
    """Whether rows were refused for others: those they refer to are gone, or they are there."""
    return any(
        isinstance(cause, IntegrityError)
        or str(getattr(cause, "sqlstate", None) or "").startswith(_CONTRADICTION_STATES)
        for cause in _causes(error)
    )


@contextmanager
def told_in_words(url: URL) -> Iterator[None]:
    """Begin to use a database; what keeps it from being used is told in a sentence.

    Raises:
        DatabaseUnusableError: it cannot be opened, reached or understood.
    """
    try:
        yield
    except Exception as error:
        of_driver = type(error).__module__.startswith("asyncpg")
        if not (of_driver or isinstance(error, SQLAlchemyError | OSError)):
            raise
        reason = why(error)
        if reason in (UNKNOWN, _AWAY):
            reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        shown_url = url.render_as_string(hide_password=True)
        raise DatabaseUnusableError(
            f"the database {shown_url} cannot be used: {reason} (docs/operations.md)"
        ) from error


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
