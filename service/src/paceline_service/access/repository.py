"""The tokens table."""

from __future__ import annotations

import time

from sqlalchemy import func, insert, select

from paceline_service.access.tokens import Grant
from paceline_service.store.database import Database
from paceline_service.store.models import Token


class TokenRepository:
    """Reads and writes tokens by their hash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, sha256: str) -> Grant | None:
        """Return the grant of the token with that hash."""
        query = select(Token.name, Token.scopes, Token.job_prefix).where(Token.sha256 == sha256)
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        return Grant(
            name=row.name, scopes=frozenset(row.scopes.split(",")), job_prefix=row.job_prefix
        )

    async def add(self, sha256: str, grant: Grant) -> None:
        """Store a token's hash and grant."""
        values = {
            "sha256": sha256,
            "name": grant.name,
            "scopes": ",".join(sorted(grant.scopes)),
            "job_prefix": grant.job_prefix,
            "created_wall_ns": time.time_ns(),
        }
        async with self._database.write() as connection:
            await connection.execute(insert(Token), [values])

    async def count(self) -> int:
        """Return how many tokens there are."""
        async with self._database.read() as connection:
            return int((await connection.execute(select(func.count(Token.id)))).scalar_one())
