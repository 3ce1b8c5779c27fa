"""The SQL of what was done to nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import NodeAction

BEGUN, DONE, FAILED, REFUSED = "begun", "done", "failed", "refused"
MAX_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A row of the table."""

    id: int
    incident_id: int
    job: str
    node: str
    action: str
    mode: str
    state: str
    takes_capacity: bool
    request: str
    result: str
    attempts: int
    begun_wall_ns: int
    ended_wall_ns: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "action": self.action,
            "node": self.node,
            "mode": self.mode,
            "state": self.state,
            "request": json.loads(self.request),
            "result": self.result,
            "begun_wall_ns": self.begun_wall_ns,
            "ended_wall_ns": self.ended_wall_ns,
        }


async def actions_of(connection: AsyncConnection, incident_id: int) -> list[Action]:
    """Return what was done because of an incident, the oldest first."""
    query = (
        select(NodeAction.__table__)
        .where(NodeAction.incident_id == incident_id)
        .order_by(NodeAction.id)
        .limit(MAX_ROWS)
    )
    return [Action(**row) for row in (await connection.execute(query)).mappings()]


async def known(
    connection: AsyncConnection, incident_ids: list[int], mode: str
) -> set[tuple[int, str, str]]:
    """Return what was begun already in that mode, as incident, node and action."""
    query = select(NodeAction.incident_id, NodeAction.node, NodeAction.action).where(
        NodeAction.incident_id.in_(incident_ids), NodeAction.mode == mode
    )
    return {(row[0], row[1], row[2]) for row in (await connection.execute(query)).all()}


async def begun(connection: AsyncConnection) -> list[Action]:
    """Return what was begun and not ended, the oldest first."""
    query = (
        select(NodeAction.__table__)
        .where(NodeAction.state == BEGUN)
        .order_by(NodeAction.id)
        .limit(MAX_ROWS)
    )
    return [Action(**row) for row in (await connection.execute(query)).mappings()]


async def nodes_taken(connection: AsyncConnection, mode: str, since_wall_ns: int) -> set[str]:
    """Return the nodes that were taken out of service since then, or are being so."""
    query = (
        select(NodeAction.node)
        .distinct()
        .where(
            NodeAction.takes_capacity,
            NodeAction.mode == mode,
            NodeAction.state.in_((BEGUN, DONE, FAILED)),
            NodeAction.begun_wall_ns >= since_wall_ns,
        )
    )
    return set((await connection.execute(query)).scalars())


async def add(connection: AsyncConnection, values: dict[str, Any]) -> int:
    """Store an action, and return its number."""
    made = await connection.execute(insert(NodeAction).values(**values).returning(NodeAction.id))
    return int(made.scalar_one())


async def end(connection: AsyncConnection, number: int, values: dict[str, Any]) -> None:
    """Store how an action went."""
    await connection.execute(update(NodeAction).where(NodeAction.id == number).values(values))


async def forget_before(connection: AsyncConnection, wall_ns: int) -> int:
    """Delete what was begun before then; return how many."""
    old = delete(NodeAction).where(
        NodeAction.begun_wall_ns < wall_ns,
        NodeAction.id < select(func.max(NodeAction.id)).scalar_subquery(),
    )
    return int((await connection.execute(old)).rowcount)
