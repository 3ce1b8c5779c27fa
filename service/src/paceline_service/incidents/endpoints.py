"""Reading incidents: ``/v1/incidents``, ``/v1/jobs/{job}/incidents`` and ``/v1/offenders``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from paceline_service.access.guard import Guard
from paceline_service.access.tokens import Grant
from paceline_service.answers import ApiRoute, answer
from paceline_service.errors import READ_PROBLEMS, UnknownIncidentError
from paceline_service.incidents import repository
from paceline_service.incidents.offences import offenders_since
from paceline_service.incidents.repository import Chosen, Values
from paceline_service.incidents.schemas import (
    IncidentDetail,
    IncidentList,
    OffenderList,
)
from paceline_service.incidents.silences import SilenceBook
from paceline_service.incidents.view import show_incidents
from paceline_service.paging import (
    MAX_LIMIT,
    Cursor,
    batches,
    link_next,
    pack_cursor,
    unpack_cursor,
)
from paceline_service.parameters import MAX_INT64, Attempt, JobName, SinceWallNs
from paceline_service.report_schema import Kind
from paceline_service.store.database import Database

ResolveAttempt = Callable[[str, int | None], Awaitable[int]]
"""Returns the id of an attempt of a job."""
IncidentId = Annotated[int, Path(ge=1, le=MAX_INT64, description="Of the incident.")]
IncidentState = Annotated[
    Literal["open", "closed"] | None, Query(description="Only those that last, or are over.")
]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Rows of one page.")]
OfKind = Annotated[Kind | None, Query(description="Only of this kind.")]
DEFAULT_LIMIT = 200
MAX_SCANNED = 20_000
"""Rows that one request looks through for those that its token may know of."""


def incidents_router(
    database: Database, guard: Guard, resolve: ResolveAttempt, book: SilenceBook
) -> APIRouter:
    """Return the routes that list incidents."""
    router = APIRouter(
        prefix="/v1", tags=["incidents"], responses=READ_PROBLEMS, route_class=ApiRoute
    )

    @router.get("/jobs/{job}/incidents", response_model=IncidentList)
    async def job_incidents(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        state: IncidentState = None,
        kind: OfKind = None,
        since: SinceWallNs = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response:
        """List the incidents of an attempt, the newest first."""
        grant = await guard.require_job(request, "read", job)
        attempt_id = await resolve(job, attempt)
        chosen = Chosen(
            attempt_id=attempt_id, kind=kind, is_open=_is_open(state), since_wall_ns=since
        )
        return await _page(request, grant, chosen, limit, cursor)

    @router.get("/incidents", response_model=IncidentList)
    async def list_incidents(
        request: Request,
        job: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9._-]{1,128}$")] = None,
        state: IncidentState = None,
        kind: OfKind = None,
        since: SinceWallNs = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response:
        """List the incidents of all jobs that the token may read, the newest first."""
        grant = await guard.require(request, "read")
        chosen = Chosen(job=job, kind=kind, is_open=_is_open(state), since_wall_ns=since)
        return await _page(request, grant, chosen, limit, cursor)

    @router.get("/incidents/{incident_id}", response_model=IncidentDetail)
    async def show_incident(request: Request, incident_id: IncidentId) -> Response:
        """Show one incident, with the history of what people said about it."""
        grant = await guard.require(request, "read")
        await book.refresh()
        async with database.read() as connection:
            row = await find_covered(connection, incident_id, grant)
            shown = (await show_incidents(connection, [row], book))[0]
            said = await repository.acknowledgements(connection, [incident_id])
        return answer(request, {**shown, "acknowledgements": said.get(incident_id, [])})

    async def _page(
        request: Request, grant: Grant, chosen: Chosen, limit: int, cursor: str | None
    ) -> Response:
        key = unpack_cursor(cursor, tuple[int])
        before = key[0] if key is not None else None
        rows: list[Values] = []
        scanned, more, sizes = 0, True, batches(limit)
        await book.refresh()
        async with database.read() as connection:
            while more and len(rows) < limit and scanned < MAX_SCANNED:
                size = next(sizes)
                found = await repository.incidents_before(
                    connection, chosen, limit=size + 1, before_id=before
                )
                more = len(found) > size
                scanned += len(found)
                for row in found[:size]:
                    before = row["id"]
                    if grant.covers(row["job"]):
                        rows.append(row)
                    if len(rows) == limit:
                        more = more or row is not found[-1]
                        break
            shown = await show_incidents(connection, rows, book)
        following = pack_cursor(before) if more and before is not None else None
        content = {"incidents": shown, "next": following}
        return answer(request, content, headers=link_next(request, following))

    return router


async def find_covered(connection: AsyncConnection, incident_id: int, grant: Grant) -> Values:
    """Return an incident with ``job`` and ``attempt``.

    Raises:
        UnknownIncidentError: there is none, or ``grant`` does not cover its job.
    """
    row = await repository.find_incident(connection, incident_id)
    if row is None or not grant.covers(row["job"]):
        raise UnknownIncidentError(
            f"incident {incident_id} is not known here; GET /v1/incidents lists those that are"
        )
    return row


def offenders_router(database: Database, guard: Guard) -> APIRouter:
    """Return the route of who offends again, over all jobs that the reader may see."""
    router = APIRouter(
        prefix="/v1/offenders", tags=["incidents"], responses=READ_PROBLEMS, route_class=ApiRoute
    )

    @router.get("", response_model=OffenderList)
    async def list_offenders(
        request: Request,
        days: Annotated[int, Query(ge=1, le=400, description="How far to look back.")] = 30,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response:
        """List the nodes and GPUs that incidents named, first who was named in the most jobs."""
        grant = await guard.require(request, "read")
        since_wall_ns = time.time_ns() - days * 86_400 * 10**9
        after = unpack_cursor(cursor, tuple[int, int, str, str])
        async with database.read() as connection:
            offenders = await offenders_since(connection, since_wall_ns, grant.covers)
        left = [one for one in offenders if after is None or one.order > after]
        shown = left[:limit]
        following = pack_cursor(*shown[-1].order) if len(left) > limit else None
        content = {"offenders": [one.to_dict() for one in shown], "next": following}
        return answer(request, content, headers=link_next(request, following))

    return router


def _is_open(state: str | None) -> bool | None:
    return None if state is None else state == "open"
