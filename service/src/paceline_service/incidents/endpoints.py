"""``GET /v1/jobs/{job}/incidents``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from paceline_service.access.guard import Guard
from paceline_service.errors import READ_PROBLEMS
from paceline_service.incidents.repository import incidents_of
from paceline_service.incidents.schemas import IncidentList
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
        body = msgspec.json.encode({"incidents": [incident_json(row) for row in rows]})
        return Response(body, media_type="application/json")

    return router
