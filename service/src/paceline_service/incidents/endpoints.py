"""``GET /v1/jobs/{job}/incidents`` and ``GET /v1/offenders``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from paceline_service.access.guard import Guard
from paceline_service.errors import READ_PROBLEMS
from paceline_service.incidents.offences import earlier_incidents, offenders_since
from paceline_service.incidents.repository import incidents_of
from paceline_service.incidents.schemas import IncidentList, OffenderList
from paceline_service.incidents.service import incident_json
from paceline_service.store.database import Database

ResolveAttempt = Callable[[str, int | None], Awaitable[int]]
"""Returns the id of an attempt of a job."""


def incidents_router(database: Database, guard: Guard, resolve: ResolveAttempt) -> APIRouter:
    """Return the routes of incidents."""
    router = APIRouter(prefix="/v1/jobs", tags=["incidents"], responses=READ_PROBLEMS)

    @router.get("/{job}/incidents", response_model=IncidentList)
    async def list_incidents(
        request: Request,
        job: Annotated[str, Path(description="Job name.")],
        attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    ) -> Response:
        """List the incidents of an attempt, the newest first."""
        await guard.require_job(request, "read", job)
        attempt_id = await resolve(job, attempt)
        async with database.read() as connection:
            rows = await incidents_of(connection, attempt_id)
            earlier = await earlier_incidents(connection, attempt_id)
        shown = [incident_json(row, earlier.get(row["id"], 0)) for row in rows]
        return Response(msgspec.json.encode({"incidents": shown}), media_type="application/json")

    return router


def offenders_router(database: Database, guard: Guard) -> APIRouter:
    """Return the route of who offends again, over all jobs that the reader may see."""
    router = APIRouter(prefix="/v1/offenders", tags=["incidents"], responses=READ_PROBLEMS)

    @router.get("", response_model=OffenderList)
    async def list_offenders(
        request: Request,
        days: Annotated[int, Query(ge=1, le=400, description="How far to look back.")] = 30,
    ) -> Response:
        """List the nodes and GPUs that incidents named, first who was named in the most jobs."""
        grant = await guard.require(request, "read")
        since_wall_ns = time.time_ns() - days * 86_400 * 10**9
        async with database.read() as connection:
            offenders = await offenders_since(connection, since_wall_ns, grant.covers)
        body = msgspec.json.encode({"offenders": [one.to_dict() for one in offenders]})
        return Response(body, media_type="application/json")

    return router
