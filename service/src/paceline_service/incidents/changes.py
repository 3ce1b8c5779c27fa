"""What people say about incidents: acknowledged, silenced; ``/v1/silences``."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from paceline.errors import InputError
from paceline_service.access.audit import actor_of, audit
from paceline_service.access.guard import Guard
from paceline_service.access.tokens import Grant
from paceline_service.answers import ApiRoute, answer, plain
from paceline_service.errors import (
    CHANGE_PROBLEMS,
    READ_PROBLEMS,
    ConflictError,
    UnknownIncidentError,
)
from paceline_service.incidents import repository, silences
from paceline_service.incidents.endpoints import (
    DEFAULT_LIMIT,
    IncidentId,
    Limit,
    find_covered,
)
from paceline_service.incidents.schemas import (
    Acknowledge,
    IncidentRow,
    NewSilence,
    SilenceIncident,
    SilenceList,
    SilenceView,
)
from paceline_service.incidents.silences import Silence, SilenceBook
from paceline_service.incidents.view import show_incidents
from paceline_service.paging import (
    Cursor,
    batches,
    link_next,
    pack_cursor,
    page_of,
    unpack_cursor,
)
from paceline_service.parameters import MAX_INT64
from paceline_service.store.database import Database

SilenceId = Annotated[int, Path(ge=1, le=MAX_INT64, description="Of the silence.")]
Json = dict[str, Any]


def changes_router(database: Database, guard: Guard, book: SilenceBook) -> APIRouter:
    """Return the routes that acknowledge and silence incidents."""
    router = APIRouter(
        prefix="/v1/incidents",
        tags=["incidents"],
        responses=READ_PROBLEMS | CHANGE_PROBLEMS,
        route_class=ApiRoute,
    )

    async def shown(incident_id: int, grant: Grant) -> Response:
        async with database.read() as connection:
            row = await find_covered(connection, incident_id, grant)
            return plain((await show_incidents(connection, [row], book))[0])

    @router.post("/{incident_id}/ack", response_model=IncidentRow)
    async def acknowledge(request: Request, incident_id: IncidentId, said: Acknowledge) -> Response:
        """Say that somebody knows of an incident; scope `admin`. The newest one counts."""
        grant = await guard.require(request, "admin")
        by = said.who or grant.name
        async with database.change() as connection:
            row = await find_covered(connection, incident_id, grant)
            values = {"at_wall_ns": time.time_ns(), "by": by, "note": said.note}
            await repository.acknowledge(connection, {"incident_id": incident_id, **values})
            await audit(connection, actor_of(request, grant), "incident.ack", _target(row),
                        new=values)  # fmt: skip
        return await shown(incident_id, grant)

    @router.delete("/{incident_id}/ack", response_model=IncidentRow)
    async def take_back(request: Request, incident_id: IncidentId) -> Response:
        """Take an acknowledgement back; scope `admin`. It stays in the history."""
        grant = await guard.require(request, "admin")
        async with database.change() as connection:
            row = await find_covered(connection, incident_id, grant)
            taken = await repository.withdraw_acknowledgements(
                connection, incident_id, grant.name, time.time_ns()
            )
            if not taken:
                raise ConflictError(f"incident {incident_id} is not acknowledged")
            await audit(connection, actor_of(request, grant), "incident.unack", _target(row))
        return await shown(incident_id, grant)

    @router.post("/{incident_id}/silence", response_model=SilenceView, status_code=201)
    async def silence_incident(
        request: Request, incident_id: IncidentId, wanted: SilenceIncident
    ) -> Response:
        """Silence what an incident is about: its job, kind and ranks; scope `admin`."""
        grant = await guard.require(request, "admin")
        async with database.change() as connection:
            row = await find_covered(connection, incident_id, grant)
            values = {"job": row["job"], "kind": row["kind"], "ranks": row["ranks"],
                      "incident_id": incident_id}  # fmt: skip
            made = await _add(connection, request, grant, wanted, values)
        await book.refresh(at_once=True)
        return plain(made.to_dict(time.time_ns()), 201)

    @router.delete("/{incident_id}/silence", response_model=SilenceList)
    async def unsilence_incident(request: Request, incident_id: IncidentId) -> Response:
        """End the silences that were made for an incident; scope `admin`."""
        grant = await guard.require(request, "admin")
        now_ns = time.time_ns()
        async with database.change() as connection:
            await find_covered(connection, incident_id, grant)
            active = await silences.active_silences(connection, now_ns)
            mine = [one for one in active if one.incident_id == incident_id]
            if not mine:
                raise ConflictError(
                    f"no silence was made for incident {incident_id}, or it is over"
                )
            ended = [await _end(connection, request, grant, one) for one in mine]
        await book.refresh(at_once=True)
        return plain({"silences": [one.to_dict(now_ns) for one in ended], "next": None})

    return router


def silences_router(database: Database, guard: Guard, book: SilenceBook) -> APIRouter:
    """Return ``/v1/silences``."""
    router = APIRouter(
        prefix="/v1/silences",
        tags=["incidents"],
        responses=READ_PROBLEMS | CHANGE_PROBLEMS,
        route_class=ApiRoute,
    )

    @router.get("", response_model=SilenceList)
    async def list_silences(
        request: Request,
        active: Annotated[bool | None, Query(description="Only those that hold, or not.")] = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response:
        """List silences, those that are over too, the newest first."""
        grant = await guard.require(request, "read")
        key = unpack_cursor(cursor, tuple[int])
        now_ns = time.time_ns()
        found: list[Silence] = []
        before, more = (key[0] if key is not None else None), True
        sizes = batches(limit + 1)
        async with database.read() as connection:
            while more and len(found) <= limit:
                size = next(sizes)
                rows = await silences.silences_before(connection, before, size)
                more = len(rows) == size
                before = rows[-1].id if rows else before
                found += [
                    one
                    for one in rows
                    if _may_know(grant, one) and active in (None, one.active(now_ns))
                ]
        rows, more = page_of(found, limit)
        following = pack_cursor(rows[-1].id) if more else None
        content = {"silences": [one.to_dict(now_ns) for one in rows], "next": following}
        return answer(request, content, headers=link_next(request, following))

    @router.post("", response_model=SilenceView, status_code=201)
    async def make_silence(request: Request, wanted: NewSilence) -> Response:
        """Silence whatever lies within all that is given; scope `admin`.

        A token that is bound to a job prefix has to name a job.
        """
        grant = await guard.require(request, "admin")
        values = {"job": wanted.job, "kind": wanted.kind, "ranks": wanted.ranks,
                  "node": wanted.node}  # fmt: skip
        if not any(values.values()):
            raise InputError(
                "a silence of everything would hide every trouble: give job, kind, ranks or node"
            )
        if grant.job_prefix and not (wanted.job and grant.covers(wanted.job)):
            raise guard.denied(request, grant, "name one of them in job")
        async with database.change() as connection:
            made = await _add(connection, request, grant, wanted, values)
        await book.refresh(at_once=True)
        return plain(made.to_dict(time.time_ns()), 201)

    @router.delete("/{silence_id}", response_model=SilenceView)
    async def end_silence(request: Request, silence_id: SilenceId) -> Response:
        """End a silence now; scope `admin`. It stays in the list."""
        grant = await guard.require(request, "admin")
        async with database.change() as connection:
            silence = await silences.find_silence(connection, silence_id)
            if silence is None or not _may_know(grant, silence):
                raise UnknownIncidentError(
                    f"silence {silence_id} is not known here; GET /v1/silences lists those that are"
                )
            if grant.job_prefix and not silence.job:
                raise guard.denied(request, grant, "this silence is of all jobs")
            if not silence.active(time.time_ns()):
                raise ConflictError(f"silence {silence_id} is over already")
            ended = await _end(connection, request, grant, silence)
        await book.refresh(at_once=True)
        return plain(ended.to_dict(time.time_ns()))

    return router


async def _add(
    connection: AsyncConnection,
    request: Request,
    grant: Grant,
    wanted: SilenceIncident,
    values: Json,
) -> Silence:
    now_ns = time.time_ns()
    if len(await silences.active_silences(connection, now_ns)) >= silences.MAX_ACTIVE:
        raise ConflictError(
            f"{silences.MAX_ACTIVE} silences hold already, the limit; end some of them"
        )
    values |= {
        "created_wall_ns": now_ns,
        "created_by": wanted.who or grant.name,
        "note": wanted.note,
        "until_wall_ns": now_ns + int(wanted.for_s * 1e9),
    }
    made = await silences.add_silence(connection, values)
    await audit(connection, actor_of(request, grant), "silence.new", f"silence {made.id}",
                new=values)  # fmt: skip
    return made


async def _end(
    connection: AsyncConnection, request: Request, grant: Grant, silence: Silence
) -> Silence:
    now_ns = time.time_ns()
    await silences.end_silences(connection, [silence.id], grant.name, now_ns)
    await audit(connection, actor_of(request, grant), "silence.end", f"silence {silence.id}",
                old=silence.to_dict(now_ns))  # fmt: skip
    ended = await silences.find_silence(connection, silence.id)
    assert ended is not None
    return ended


def _may_know(grant: Grant, silence: Silence) -> bool:
    return not silence.job or grant.covers(silence.job)


def _target(row: Json) -> str:
    return f"incident {row['id']} of {row['job']}"
