"""Tokens and the audit log on the database itself: before a collector runs, or beside it.

A running collector notices within ``known.FRESH_S``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paceline.errors import InputError
from paceline_service.access import service
from paceline_service.access.audit import local_actor
from paceline_service.access.repository import list_tokens
from paceline_service.access.tokens import Grant
from paceline_service.store.database import Database
from paceline_service.store.migrate import migrate
from paceline_service.store.trouble import told_in_words

Json = dict[str, Any]


async def make_local_token(database_url: str, grant: Grant) -> Json:
    """Make a token; the answer holds it.

    Raises:
        ConfigError: there are too many, or the database is newer than this program.
    """
    async with _opened(database_url) as database, database.write() as connection:
        token, row = await service.create_token(connection, grant, local_actor())
    return {**service.token_json(row), "token": token}


async def list_local_tokens(database_url: str) -> list[Json]:
    """Return all tokens, as the API shows them."""
    async with _opened(database_url) as database, database.read() as connection:
        return [service.token_json(row) for row in await list_tokens(connection)]


async def revoke_local_token(database_url: str, token_id: int) -> Json:
    """Revoke a token; return it as it was before.

    Raises:
        InputError: there is none with that number.
    """
    async with _opened(database_url) as database, database.write() as connection:
        row = await service.revoke(connection, token_id, local_actor())
    if row is None:
        raise InputError(f"no token {token_id}: list them with `paceline tokens list --local`")
    return service.token_json(row)


@asynccontextmanager
async def _opened(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    try:
        with told_in_words(database.url):
            database.make_directory()
            await migrate(database)
        yield database
    finally:
        await database.close()
