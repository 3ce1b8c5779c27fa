"""Keeps the incidents of an attempt in step with the findings of its report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.ranks import format_ranks
from paceline_service.incidents import repository
from paceline_service.incidents.offences import Place, places_named, remember

RECOVERED_STEPS = 30
"""A finding that has not touched the newest steps for this long is over. Shorter gaps would make
one trouble many incidents; it equals the steps in which ranks are learned (analysis.options)."""

Json = dict[str, Any]


async def sync_incidents(
    connection: AsyncConnection,
    attempt_id: int,
    findings: list[Json],
    *,
    last_step: int,
    ended: bool,
    places: Mapping[int, Place] | None = None,
    now_wall_ns: int | None = None,
) -> None:
    """Open, update and close incidents so that they say what ``findings`` say.

    Args:
        connection: within the transaction that stores the report.
        attempt_id: whose findings these are.
        findings: of ``paceline.report/1``.
        last_step: the newest analysed step.
        ended: the attempt is over.
        places: where each rank runs, as far as it is known.
        now_wall_ns: the time of the change.
    """
    now_ns = time.time_ns() if now_wall_ns is None else now_wall_ns
    known = await repository.incidents_of(connection, attempt_id)
    seen: set[int] = set()
    for finding in findings:
        reason = closed_reason(finding, last_step, ended)
        values = _values(finding, now_ns)
        match = _match(known, seen, finding)
        if match is None:
            values |= {"attempt_id": attempt_id, "opened_wall_ns": now_ns}
            values |= _closing(reason, now_ns)
            number = await repository.open_incident(connection, values)
            named = places_named(finding, places or {})
            await remember(connection, number, attempt_id, now_ns, named)
            continue
        seen.add(match["id"])
        if bool(match["closed_reason"]) != bool(reason) or reason != match["closed_reason"]:
            values |= _closing(reason, now_ns)
        elif match["finding"] == values["finding"]:
            continue
        await repository.change_incident(connection, match["id"], values)
        named = places_named(finding, places or {})
        await remember(connection, match["id"], attempt_id, match["opened_wall_ns"], named)
    for incident in known:
        if incident["id"] not in seen and incident["closed_wall_ns"] is None:
            closing = _closing("withdrawn", now_ns) | {"updated_wall_ns": now_ns}
            await repository.change_incident(connection, incident["id"], closing)


def _match(known: list[Json], seen: set[int], finding: Json) -> Json | None:
    """Return the incident that a finding continues: the same kind and ranks, the newest."""
    ranks = format_ranks(finding["ranks"])
    for incident in known:
        if incident["id"] in seen or (incident["kind"], incident["ranks"]) != (
            finding["kind"],
            ranks,
        ):
            continue
        # What had recovered and begins again later is a new incident.
        began_later = (finding["first_step"] or 0) > (incident["last_step"] or 0)
        if incident["closed_wall_ns"] is None or not began_later:
            return incident
    return None


def _values(finding: Json, now_ns: int) -> Json:
    return {
        "kind": finding["kind"],
        "ranks": format_ranks(finding["ranks"]),
        "cause": finding["cause"],
        "phase": finding["phase"],
        "first_step": finding["first_step"],
        "last_step": finding["last_step"],
        "updated_wall_ns": now_ns,
        "finding": json.dumps(finding, separators=(",", ":")),
    }


def closed_reason(finding: Json, last_step: int, ended: bool) -> str:
    """Return why a finding no longer goes on, empty while it does."""
    touched = finding["last_step"]
    if touched is not None and touched + RECOVERED_STEPS < last_step:
        return "recovered"
    return "ended" if ended else ""


def _closing(reason: str, now_ns: int) -> Json:
    return {"closed_reason": reason, "closed_wall_ns": now_ns if reason else None}
