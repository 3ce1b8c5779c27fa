"""``/v1/tokens`` and ``/v1/audit``: for administrators."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from paceline_service.access import audit, service
from paceline_service.access.guard import Guard
from paceline_service.access.repository import list_tokens
from paceline_service.access.schemas import AuditList, MadeToken, NewToken, TokenList, TokenView
from paceline_service.answers import ApiRoute
from paceline_service.errors import (
    CHANGE_PROBLEMS,
    READ_PROBLEMS,
    UnknownTokenError,
)
from paceline_service.store.database import Database

_NO_STORE = {"Cache-Control": "no-store"}
_ID = Annotated[int, Path(ge=1, le=2**63 - 1, description="Of the token, as listed.")]


def tokens_router(database: Database, guard: Guard) -> APIRouter:
    """Return the routes of tokens."""
    router = APIRouter(
        prefix="/v1/tokens",
        tags=["access"],
        responses=READ_PROBLEMS | CHANGE_PROBLEMS,
        route_class=ApiRoute,
    )

    @router.get("", response_model=TokenList)
    async def show_tokens(
        request: Request,
        after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> Response:
        """List tokens, revoked and expired ones too; scope `admin`.

        An administrator of a job prefix sees those within it.
        """
        grant = await guard.require(request, "admin")
        async with database.read() as connection:
            rows = await list_tokens(connection, after_id=after, limit=limit)
        shown = [service.token_json(row) for row in rows if grant.covers_prefix(row.job_prefix)]
        more = rows[-1].id if len(rows) == limit else None
        return JSONResponse({"tokens": shown, "next_after": more}, headers=_NO_STORE)

    @router.post("", status_code=201, response_model=MadeToken)
    async def make_token(request: Request, wanted: NewToken) -> Response:
        """Make a token; scope `admin`. No other answer ever shows it."""
        by = await guard.require(request, "admin")
        grant = service.make_grant(**wanted.model_dump())
        if not by.covers_prefix(grant.job_prefix):
            beyond = f"this reaches beyond: {grant.job_prefix or 'all jobs'!r}"
            raise guard.denied(request, by, beyond)
        async with database.change() as connection:
            token, row = await service.create_token(connection, grant, audit.actor_of(request, by))
        guard.tokens.refresh()
        return JSONResponse({**service.token_json(row), "token": token}, 201, headers=_NO_STORE)

    @router.delete("/{token_id}", response_model=TokenView)
    async def revoke_token(request: Request, token_id: _ID) -> Response:
        """Revoke a token, for ever; scope `admin`. The answer shows it as it was before."""
        by = await guard.require(request, "admin")
        async with database.change() as connection:
            row = await service.revoke(
                connection, token_id, audit.actor_of(request, by), reaches=by.covers_prefix
            )
            if row is None:
                raise UnknownTokenError(
                    f"no token {token_id} within the reach of this one: list them with "
                    "`paceline tokens list`"
                )
        guard.tokens.refresh()
        return JSONResponse(service.token_json(row), headers=_NO_STORE)

    return router


def audit_router(database: Database, guard: Guard) -> APIRouter:
    """Return the route of the audit log."""
    router = APIRouter(
        prefix="/v1/audit", tags=["access"], responses=READ_PROBLEMS, route_class=ApiRoute
    )

    @router.get("", response_model=AuditList)
    async def show_audit(
        request: Request,
        before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        action: Annotated[str | None, Query(pattern=r"^[a-z0-9.-]{0,64}$")] = None,
    ) -> Response:
        """List what administrators did, the newest first; scope `admin` over all jobs."""
        grant = await guard.require(request, "admin")
        if grant.job_prefix:
            beyond = "the audit log is of all jobs: use a token without a job prefix"
            raise guard.denied(request, grant, beyond)
        async with database.read() as connection:
            rows = await audit.entries(connection, before_id=before, limit=limit, action=action)
        shown = [_entry(row) for row in rows]
        more = shown[-1]["id"] if len(shown) == limit else None
        return JSONResponse({"entries": shown, "next_before": more}, headers=_NO_STORE)

    return router


def _entry(row: Any) -> dict[str, Any]:
    entry = dict(row._mapping)
    for key in ("old", "new"):
        entry[key] = None if entry[key] is None else json.loads(entry[key])
    return entry
