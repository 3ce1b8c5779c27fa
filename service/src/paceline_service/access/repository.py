"""The tokens table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.errors import ConfigError
from paceline_service.access.tokens import Grant
from paceline_service.store.database import Database
from paceline_service.store.models import Token

MAX_TOKENS = 10_000
"""Usable tokens of one collector: all of them are kept in its memory."""
Fingerprint = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """What is known of a token; the token itself is not."""

    id: int
    name: str
    scopes: tuple[str, ...]
    job_prefix: str
    created_wall_ns: int
    created_by: str
    expires_wall_ns: int | None
    revoked_wall_ns: int | None
    last_used_wall_ns: int | None
    requests_per_s: float | None
    bytes_per_s: float | None


async def add_token(
    connection: AsyncConnection, sha256: str, grant: Grant, created_by: str
) -> TokenRow:
    """Store a token's hash and grant.

    Raises:
        ConfigError: there are too many.
    """
    usable = select(func.count(Token.id)).where(_usable(time.time_ns()))
    if (await connection.execute(usable)).scalar_one() >= MAX_TOKENS:
        raise ConfigError(
            f"there are {MAX_TOKENS} usable tokens, which is the limit: revoke some, or give "
            "several sidecars one token"
        )
    values = {
        "sha256": sha256,
        "name": grant.name[:128],
        "scopes": ",".join(sorted(grant.scopes)),
        "job_prefix": grant.job_prefix,
        "created_wall_ns": time.time_ns(),
        "created_by": created_by[:256],
        "expires_wall_ns": grant.expires_wall_ns,
        "requests_per_s": grant.requests_per_s,
        "bytes_per_s": grant.bytes_per_s,
    }
    await connection.execute(insert(Token).values(values))
    row = await _one(connection, Token.sha256 == sha256)
    assert row is not None  # it was written just now, in this transaction
    return row


async def find_token(connection: AsyncConnection, token_id: int) -> TokenRow | None:
    """Return a token by its number, also when it was revoked or has expired."""
    return await _one(connection, Token.id == token_id)


async def revoke_token(connection: AsyncConnection, token_id: int) -> None:
    """Make a token useless for ever."""
    change = update(Token).where(Token.id == token_id).values(revoked_wall_ns=time.time_ns())
    await connection.execute(change)


async def list_tokens(
    connection: AsyncConnection, *, after_id: int = 0, limit: int = MAX_TOKENS
) -> Sequence[TokenRow]:
    """Return tokens in the order in which they were made, revoked and expired ones too."""
    query = _QUERY.where(Token.id > after_id).order_by(Token.id).limit(limit)
    return [_row(row) for row in (await connection.execute(query)).all()]


class TokenRepository:
    """Reads and writes tokens by their hash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, sha256: str) -> TokenRow | None:
        """Return the token with that hash, also when it was revoked or has expired."""
        async with self._database.read() as connection:
            return await _one(connection, Token.sha256 == sha256)

    async def add(self, sha256: str, grant: Grant, created_by: str = "") -> TokenRow:
        """Store a token's hash and grant.

        Raises:
            ConfigError: there are too many.
        """
        async with self._database.write() as connection:
            return await add_token(connection, sha256, grant, created_by)

    async def count(self) -> int:
        """Return how many tokens can be used."""
        query = select(func.count(Token.id)).where(_usable(time.time_ns()))
        async with self._database.read() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def fingerprint(self) -> Fingerprint:
        """Return what differs as soon as a token was made or revoked by anybody."""
        query = select(func.count(Token.id), func.max(Token.id), func.count(Token.revoked_wall_ns))
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one()
        return int(row[0]), int(row[1] or 0), int(row[2])

    async def usable(self) -> dict[str, Grant]:
        """Return the grants of the tokens that can be used, by their hash."""
        query = _QUERY.add_columns(Token.sha256).where(_usable(time.time_ns())).limit(MAX_TOKENS)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
        return {row.sha256: _grant(_row(row)) for row in rows}

    async def note_used(self, used: Mapping[int, int]) -> None:
        """Store when tokens were used last; by id, ns since the epoch."""
        change = (
            update(Token)
            .where(Token.id == bindparam("token"))
            .values(last_used_wall_ns=bindparam("used"))
        )
        async with self._database.write() as connection:
            rows = [{"token": token_id, "used": wall_ns} for token_id, wall_ns in used.items()]
            await connection.execute(change, rows)


def _usable(now_wall_ns: int) -> Any:
    return Token.revoked_wall_ns.is_(None) & or_(
        Token.expires_wall_ns.is_(None), Token.expires_wall_ns > now_wall_ns
    )


async def _one(connection: AsyncConnection, condition: Any) -> TokenRow | None:
    row = (await connection.execute(_QUERY.where(condition))).one_or_none()
    return None if row is None else _row(row)


def _row(row: Any) -> TokenRow:
    return TokenRow(
        id=row.id, name=row.name, scopes=tuple(row.scopes.split(",")), job_prefix=row.job_prefix,
        created_wall_ns=row.created_wall_ns, created_by=row.created_by,
        expires_wall_ns=row.expires_wall_ns, revoked_wall_ns=row.revoked_wall_ns,
        last_used_wall_ns=row.last_used_wall_ns, requests_per_s=row.requests_per_s,
        bytes_per_s=row.bytes_per_s,
    )  # fmt: skip


def _grant(row: TokenRow) -> Grant:
    return Grant(
        name=row.name, scopes=frozenset(row.scopes), job_prefix=row.job_prefix, token_id=row.id,
        expires_wall_ns=row.expires_wall_ns, requests_per_s=row.requests_per_s,
        bytes_per_s=row.bytes_per_s,
    )  # fmt: skip


_QUERY = select(
    Token.id, Token.name, Token.scopes, Token.job_prefix, Token.created_wall_ns,
    Token.created_by, Token.expires_wall_ns, Token.revoked_wall_ns, Token.last_used_wall_ns,
    Token.requests_per_s, Token.bytes_per_s,
)  # fmt: skip
