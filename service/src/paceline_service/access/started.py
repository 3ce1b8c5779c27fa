"""What differs in the settings of a collector since it was started last goes into the audit log.

Retention, limits and who may sign in are set where it is started; this is where such a change is
seen. Secrets are not among what is noted, only whether they are set.
"""

from __future__ import annotations

import json
import re
import socket
from typing import Any

from pydantic import BaseModel, SecretStr
from sqlalchemy import select

from paceline_service.access.audit import audit, local_actor
from paceline_service.store.database import Database
from paceline_service.store.models import AuditEntry

ACTION = "settings.start"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")


async def audit_settings(database: Database, settings: BaseModel) -> None:
    """Note the settings if they are other than at the last start on this host."""
    target = f"collector on {socket.gethostname()}"
    query = (
        select(AuditEntry.new)
        .where(AuditEntry.action == ACTION, AuditEntry.target == target)
        .order_by(AuditEntry.id.desc())
        .limit(1)
    )
    async with database.read() as connection:
        noted = (await connection.execute(query)).scalar_one_or_none()
    before: dict[str, Any] = json.loads(noted) if noted else {}
    now = {
        name: shown
        for name in sorted(type(settings).model_fields)
        if (shown := _shown(getattr(settings, name))) != _shown(_default(settings, name))
    }
    if noted is not None and before == now:
        return
    changed = {n: before.get(n) for n in {*before, *now} if before.get(n) != now.get(n)}
    async with database.write() as connection:
        await audit(
            connection, local_actor(), ACTION, target, old=changed if noted else None, new=now
        )


def _shown(value: Any) -> Any:
    """Return a value as JSON holds it, without secrets."""
    if isinstance(value, SecretStr):
        return "set" if value.get_secret_value() else ""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    return _CREDENTIALS.sub("***@", str(value))


def _default(settings: BaseModel, name: str) -> Any:
    return type(settings).model_fields[name].get_default(call_default_factory=True)
