"""The audit log: who changed what, when, from where, with the value before and after.

Whatever an administrator does calls ``audit`` in the transaction that does it: the change and its
entry become durable together, or neither does. A log line is written beside it, so that the entry
also leaves the machine where logs are collected.
"""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import HTTPConnection

from paceline_service.access.tokens import Grant
from paceline_service.store.models import AuditEntry

MAX_VALUE_CHARS = 8192
"""Longer values are cut in the log; what is audited is settings, not data."""
_log = structlog.get_logger("paceline.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who does something, and from where."""

    name: str
    address: str


def actor_of(connection: HTTPConnection, grant: Grant) -> Actor:
    """Return who is behind a request: the name of the token or person, and the peer's address."""
    client = connection.client
    return Actor(name=grant.name, address=client.host if client is not None else "")


def local_actor() -> Actor:
    """Return who runs a command on the database itself."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return Actor(name=f"local user {user}", address="local")


async def audit(
    connection: AsyncConnection,
    by: Actor,
    action: str,
    target: str,
    *,
    old: Any = None,
    new: Any = None,
) -> None:
    """Note that ``by`` did ``action`` to ``target``, in the transaction that does it.

    Args:
        connection: of the transaction.
        by: who.
        action: a stable name, ``thing.verb``: ``token.new``, ``settings.change``, ...
        target: what it was done to.
        old: the value before, of JSON's types; never a secret.
        new: the value after.
    """
    values = {
        "at_wall_ns": time.time_ns(),
        "actor": by.name[:256],
        "address": by.address[:64],
        "action": action,
        "target": target[:256],
        "old": _as_json(old),
        "new": _as_json(new),
    }
    await connection.execute(insert(AuditEntry).values(values))
    _log.info(
        "audit", actor=by.name, address=by.address, action=action, target=target,
        old=values["old"], new=values["new"],
    )  # fmt: skip


async def entries(
    connection: AsyncConnection, *, before_id: int | None, limit: int, action: str | None = None
) -> Sequence[Any]:
    """Return entries, the newest first, older than ``before_id``."""
    query = select(AuditEntry.__table__).order_by(AuditEntry.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(AuditEntry.id < before_id)
    if action is not None:
        query = query.where(AuditEntry.action == action)
    return (await connection.execute(query)).all()


async def forget_before(connection: AsyncConnection, wall_ns: int) -> int:
    """Delete the entries from before ``wall_ns``; return how many."""
    gone = await connection.execute(delete(AuditEntry).where(AuditEntry.at_wall_ns < wall_ns))
    return int(gone.rowcount)


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    if len(text) <= MAX_VALUE_CHARS:
        return text
    return json.dumps({"cut": text[: MAX_VALUE_CHARS // 2], "chars": len(text)})
