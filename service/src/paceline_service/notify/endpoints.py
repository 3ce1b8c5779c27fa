"""Messages over HTTP: who is told, what was told of one incident, and a test of a channel."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from paceline.errors import PacelineError
from paceline_service.access.audit import actor_of, audit
from paceline_service.access.guard import Guard
from paceline_service.answers import ApiRoute, answer, plain
from paceline_service.errors import CHANGE_PROBLEMS, READ_PROBLEMS
from paceline_service.incidents.endpoints import IncidentId, find_covered
from paceline_service.notify import outbox
from paceline_service.notify.channels.base import Channel
from paceline_service.notify.nodes import repository as actions
from paceline_service.notify.nodes.proposals import proposals
from paceline_service.notify.notifier import Notifier, find_channel
from paceline_service.notify.schemas import ChannelList, IncidentNotifications, TestAnswer
from paceline_service.store.database import Database

ChannelName = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Of the channel, as listed.")
]


def notifications_router(database: Database, guard: Guard, notifier: Notifier) -> APIRouter:
    """Return the routes."""
    router = APIRouter(
        prefix="/v1", tags=["incidents"], responses=READ_PROBLEMS, route_class=ApiRoute
    )

    @router.get("/notifications", response_model=ChannelList)
    async def list_channels(request: Request) -> Response:
        """List the channels that messages about incidents go to; scope `admin` over all jobs."""
        await _all_jobs(request)
        async with database.read() as connection:
            counts = await outbox.counts(connection)
        rows = [await asyncio.to_thread(_row, one, counts) for one in notifier.channels]
        return answer(request, {"channels": rows})

    @router.post(
        "/notifications/{channel}/test", response_model=TestAnswer, responses=CHANGE_PROBLEMS
    )
    async def test_channel(request: Request, channel: ChannelName) -> Response:
        """Send a test message to a channel, at once and once; scope `admin` over all jobs."""
        grant = await _all_jobs(request)
        find_channel(notifier.channels, channel)
        async with database.change() as connection:
            await audit(connection, actor_of(request, grant), "notify.test", f"channel {channel}")
        tested, result = await notifier.test(channel)
        told = {
            "channel": tested.name,
            "where": await asyncio.to_thread(_where, tested),
            "delivered": result.verdict == "delivered",
            "reason": result.reason,
        }
        return plain(told)

    @router.get("/incidents/{incident_id}/notifications", response_model=IncidentNotifications)
    async def show_notifications(request: Request, incident_id: IncidentId) -> Response:
        """Show who was told of an incident, what could be done to its nodes, and what was."""
        grant = await guard.require(request, "read")
        async with database.read() as connection:
            row = await find_covered(connection, incident_id, grant)
            told = await outbox.rows_of(connection, [incident_id])
            done = await actions.actions_of(connection, incident_id)
        content = {
            "messages": [
                {
                    "channel": one.channel,
                    "state": one.state,
                    "messages": one.delivered,
                    "told_wall_ns": one.told_wall_ns,
                    "last_error": one.last_error or None,
                }
                for one in sorted(told, key=lambda one: one.channel)
            ],
            "proposals": proposals(json.loads(row["finding"]), incident_id),
            "actions": [one.to_dict() for one in done],
        }
        return answer(request, content)

    async def _all_jobs(request: Request) -> Any:
        grant = await guard.require(request, "admin")
        if grant.job_prefix:
            beyond = "channels are of all jobs: use a token without a job prefix"
            raise guard.denied(request, grant, beyond)
        return grant

    return router


def _row(channel: Channel, counts: dict[tuple[str, str], int]) -> dict[str, Any]:
    return {
        "name": channel.name,
        "kind": channel.kind,
        "where": _where(channel),
        "min_severity": channel.audience.min_severity,
        "jobs": list(channel.audience.jobs),
        "waiting": counts.get((channel.name, outbox.WAITING), 0),
        "failed": counts.get((channel.name, outbox.FAILED), 0),
    }


def _where(channel: Channel) -> str:
    try:
        return channel.where  # it may read a file
    except PacelineError as error:
        return f"unknown: {error}"
