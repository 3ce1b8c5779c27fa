"""What administrators do with tokens; each change is audited in its own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.errors import ConfigError
from paceline_service.access.audit import Actor, audit
from paceline_service.access.repository import (
    TokenRow,
    add_token,
    find_token,
    revoke_token,
)
from paceline_service.access.tokens import Grant, check_prefix, new_token, parse_scopes, token_hash

MAX_NAME_CHARS = 128


def make_grant(
    *,
    scopes: str | Sequence[str],
    name: str = "",
    job_prefix: str = "",
    expires_in_s: float | None = None,
    requests_per_s: float | None = None,
    bytes_per_s: float | None = None,
) -> Grant:
    """Return what a new token is to grant.

    Raises:
        ConfigError: a value makes no sense.
    """
    text = scopes if isinstance(scopes, str) else ",".join(scopes)
    parsed = parse_scopes(text)
    name = name or f"{','.join(sorted(parsed))} {job_prefix}".strip()
    if len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise ConfigError(
            f"name {name[:40]!r} has {len(name)} characters; at most {MAX_NAME_CHARS}, all "
            "printable: write a shorter one"
        )
    expires_wall_ns = None
    if expires_in_s is not None:
        expires_wall_ns = time.time_ns() + int(expires_in_s * 1e9)
    return Grant(
        name=name, scopes=parsed, job_prefix=check_prefix(job_prefix),
        expires_wall_ns=expires_wall_ns, requests_per_s=requests_per_s, bytes_per_s=bytes_per_s,
    )  # fmt: skip


async def create_token(
    connection: AsyncConnection, grant: Grant, by: Actor
) -> tuple[str, TokenRow]:
    """Make a token in the transaction of ``connection``; return it, this once, and its row.

    Raises:
        ConfigError: there are too many.
    """
    token = new_token()
    row = await add_token(connection, token_hash(token), grant, by.name)
    await audit(connection, by, "token.new", _target(row), new=token_json(row))
    return token, row


async def revoke(
    connection: AsyncConnection,
    token_id: int,
    by: Actor,
    *,
    reaches: Callable[[str], bool] = lambda job_prefix: True,
) -> TokenRow | None:
    """Revoke a token in the transaction of ``connection``.

    Args:
        connection: of the transaction.
        token_id: of the token.
        by: who does it.
        reaches: whether that one may revoke tokens of a job prefix.

    Returns:
        The token as it was before; None: there is none, or it is beyond reach.
    """
    before = await find_token(connection, token_id)
    if before is None or not reaches(before.job_prefix):
        return None
    if before.revoked_wall_ns is None:
        await revoke_token(connection, token_id)
        await audit(connection, by, "token.revoke", _target(before), old=token_json(before))
    return before


def token_json(row: TokenRow) -> dict[str, Any]:
    """Return a token as the API shows it."""
    now_wall_ns = time.time_ns()
    state = "usable"
    if row.revoked_wall_ns is not None:
        state = "revoked"
    elif row.expires_wall_ns is not None and row.expires_wall_ns <= now_wall_ns:
        state = "expired"
    return {
        "id": row.id, "name": row.name, "scopes": list(row.scopes), "job_prefix": row.job_prefix,
        "state": state, "created_wall_ns": row.created_wall_ns, "created_by": row.created_by,
        "expires_wall_ns": row.expires_wall_ns, "revoked_wall_ns": row.revoked_wall_ns,
        "last_used_wall_ns": row.last_used_wall_ns, "requests_per_s": row.requests_per_s,
        "bytes_per_s": row.bytes_per_s,
    }  # fmt: skip


def _target(row: TokenRow) -> str:
    return f"token {row.id} ({row.name})"
