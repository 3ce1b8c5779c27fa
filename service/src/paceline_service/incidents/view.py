"""Incidents as the API shows them: the finding, its life, and what people say about it."""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.incidents import repository
from paceline_service.incidents.offences import earlier_incidents
from paceline_service.incidents.silences import SilenceBook

Json = dict[str, Any]


async def show_incidents(
    connection: AsyncConnection, rows: list[Json], book: SilenceBook
) -> list[Json]:
    """Return rows of the repository, which have ``job`` and ``attempt``, as the API shows them."""
    ids = [row["id"] for row in rows]
    said = await repository.acknowledgements(connection, ids)
    earlier = await earlier_incidents(connection, ids)
    shown = []
    for row in rows:
        history = said.get(row["id"], [])
        standing = [one for one in history if one["withdrawn_wall_ns"] is None]
        shown.append(
            {
                **incident_json(row, earlier.get(row["id"], 0)),
                "job": row["job"],
                "attempt": row["attempt"],
                "acknowledged": standing[0] if standing else None,
                "silenced": _silenced(row, book),
            }
        )
    return shown


def incident_json(row: Json, earlier: int = 0) -> Json:
    """Return a row of the table: the finding, its life, its repetitions."""
    return {
        **json.loads(row["finding"]),
        "id": row["id"],
        "open": row["closed_wall_ns"] is None,
        "opened_wall_ns": row["opened_wall_ns"],
        "updated_wall_ns": row["updated_wall_ns"],
        "closed_wall_ns": row["closed_wall_ns"],
        "closed_reason": row["closed_reason"] or None,
        "earlier_incidents": earlier,
    }


def _silenced(row: Json, book: SilenceBook) -> Json | None:
    if row["closed_wall_ns"] is not None:
        return None
    silence = book.covering(row["job"], json.loads(row["finding"]))
    return None if silence is None else silence.to_dict(time.time_ns())
