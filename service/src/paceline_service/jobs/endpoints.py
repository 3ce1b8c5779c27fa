"""``/v1/jobs`` and what is below it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from paceline.errors import InputError
from paceline.ranks import parse_ranks
from paceline_service.access.guard import Guard
from paceline_service.errors import READ_PROBLEMS
from paceline_service.jobs import schemas
from paceline_service.jobs.engine import FrameSource
from paceline_service.jobs.event_log import MEDIA_TYPE as EVENT_LOG_MEDIA_TYPE
from paceline_service.jobs.event_log import event_log
from paceline_service.jobs.events import job_events
from paceline_service.jobs.feed import DecodeRecords
from paceline_service.jobs.service import DEFAULT_STEPS, MAX_STEPS, JobService
from paceline_service.jobs.steps import columns
from paceline_service.jobs.timeline import (
    DEFAULT_STEPS as TIMELINE_STEPS,
)
from paceline_service.jobs.timeline import (
    MAX_STEPS as MAX_TIMELINE_STEPS,
)
from paceline_service.jobs.timeline import Asked, Timelines, unpacked
from paceline_service.jobs.what_if import what_if

JobName = Annotated[str, Path(description="Job name.")]
Attempt = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="Attempt, from 1; default: the latest.")
]
Ranks = Annotated[
    str | None, Query(max_length=65536, description="Rank list, for example 0,5-7; default: all.")
]
Without = Annotated[
    list[str] | None,
    Query(description="`rank:3`, `rank:0-3` or `node:NAME`; may be given several times."),
]
MAX_STEP = 2**62
JSON_MEDIA_TYPE = "application/json"
_GZIP = re.compile(r"(^|,)\s*(gzip|\*)\s*(;\s*q\s*=\s*(1|0\.\d*[1-9]\d*)[0.]*)?\s*(,|$)")


class JsonResponse(Response):
    """JSON by msgspec: large answers in a tenth of the time."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return ``content`` as JSON."""
        return content if isinstance(content, bytes) else msgspec.json.encode(content)


def jobs_router(
    service: JobService, guard: Guard, source: FrameSource, decode: DecodeRecords
) -> APIRouter:
    """Return the routes of jobs."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=READ_PROBLEMS)
    timelines = Timelines(service, source, decode)

    @router.get("", response_model=schemas.JobList)
    async def list_jobs(request: Request) -> Response:
        """List the jobs: the latest attempt of each, the newest first."""
        grant = await guard.require(request, "read")
        return JsonResponse({"jobs": await service.list_jobs(grant)})

    @router.get("/{job}", response_model=schemas.JobDetail)
    async def job_detail(request: Request, job: JobName, attempt: Attempt = None) -> Response:
        """Return one attempt of a job, its process groups and nodes, and all its attempts."""
        await guard.require_job(request, "read", job)
        return JsonResponse(await service.detail(job, attempt))

    @router.get("/{job}/ranks", response_model=schemas.RankList)
    async def job_ranks(request: Request, job: JobName, attempt: Attempt = None) -> Response:
        """Return the totals and the state of every rank."""
        await guard.require_job(request, "read", job)
        snapshot = await service.snapshot(await service.resolve(job, attempt))
        return JsonResponse({"ranks": snapshot.ranks})

    @router.get("/{job}/report", response_model=schemas.Report)
    async def job_report(request: Request, job: JobName, attempt: Attempt = None) -> Response:
        """Return the answer about one attempt: `paceline.report/1`."""
        await guard.require_job(request, "read", job)
        snapshot = await service.snapshot(await service.resolve(job, attempt))
        return JsonResponse(snapshot.report_json)

    @router.get("/{job}/what-if", response_model=schemas.WhatIf)
    async def job_what_if(
        request: Request, job: JobName, attempt: Attempt = None, without: Without = None
    ) -> Response:
        """Return what the job would have gained without some ranks or nodes."""
        await guard.require_job(request, "read", job)
        snapshot = await service.snapshot(await service.resolve(job, attempt))
        return JsonResponse(what_if(snapshot, without or []))

    @router.get("/{job}/steps", response_model=schemas.Steps)
    async def job_steps(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        first: Annotated[int | None, Query(alias="from", ge=0, le=MAX_STEP)] = None,
        last: Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP)] = None,
        ranks: Ranks = None,
        limit: Annotated[int, Query(ge=1, le=MAX_STEPS)] = DEFAULT_STEPS,
        phases: Annotated[bool, Query(description="With the self time per phase.")] = False,
    ) -> Response:
        """Return steps as columns: the earliest `limit` from `from`, without it the newest."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        chosen = _ranks(ranks, row.ref.world_size)
        steps = await service.steps(row, first, last, limit)
        shown = chosen if chosen is not None else range(row.ref.world_size)
        return JsonResponse(columns(job, row.ref.ordinal, steps, shown, phases=phases))

    @router.get(
        "/{job}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def events(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        ranks: Ranks = None,
        last_event_id: Annotated[str | None, Header(description="The last step it has.")] = None,
    ) -> Response:
        """Stream events: `report` when it changes, `steps` as they complete; resumes."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        resumed = last_event_id or ""
        stream = job_events(
            service,
            row,
            follow=attempt is None,
            ranks=_ranks(ranks, row.ref.world_size),
            last_event_id=int(resumed) if re.fullmatch(r"[0-9]{1,18}", resumed) else None,
        )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, headers=headers, media_type="text/event-stream")

    @router.get(
        "/{job}/event-log",
        response_class=StreamingResponse,
        responses={200: {"content": {EVENT_LOG_MEDIA_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def export(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        accept_encoding: Annotated[str, Header()] = "",
    ) -> Response:
        """Export the stored frames of an attempt as an event log, `paceline.events/1`."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        gzip = _GZIP.search(accept_encoding.lower()) is not None
        chunks: AsyncIterator[bytes] = event_log(row.ref, source, gzip=gzip)
        headers = {"Vary": "Accept-Encoding"}
        if gzip:
            headers["Content-Encoding"] = "gzip"
        return StreamingResponse(chunks, headers=headers, media_type=EVENT_LOG_MEDIA_TYPE)

    @router.get("/{job}/timeline", response_model=schemas.Timeline)
    async def timeline(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        first: Annotated[int | None, Query(alias="from", ge=0, le=MAX_STEP)] = None,
        last: Annotated[int | None, Query(alias="to", ge=0, le=MAX_STEP)] = None,
        ranks: Ranks = None,
        limit: Annotated[
            int, Query(ge=1, le=MAX_TIMELINE_STEPS, description="Steps at most.")
        ] = TIMELINE_STEPS,
        accept_encoding: Annotated[str, Header()] = "",
    ) -> Response:
        """Draw some steps as a Chrome trace, which Perfetto opens; without `from` the newest."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        chosen = _ranks(ranks, row.ref.world_size)
        asked = Asked(first=first, last=last, ranks=chosen, limit=limit)
        packed = await timelines.make(row, asked)
        headers = {
            "Vary": "Accept-Encoding",
            "Content-Disposition": f'attachment; filename="{job}.trace.json"',
        }
        if _GZIP.search(accept_encoding.lower()) is None:
            return StreamingResponse(unpacked(packed), headers=headers, media_type=JSON_MEDIA_TYPE)
        headers["Content-Encoding"] = "gzip"
        return Response(packed, headers=headers, media_type=JSON_MEDIA_TYPE)

    return router


def _ranks(text: str | None, world_size: int) -> tuple[int, ...] | None:
    """Return the ranks asked for, or None for all.

    Raises:
        InputError: it is no rank list, or names a rank that the job does not have.
    """
    if not text:
        return None
    ranks = parse_ranks(text)
    if max(ranks) >= world_size or len(ranks) > world_size:
        raise InputError(
            f"ranks {text[:80]!r} names rank {max(ranks)} or repeats ranks; the job has ranks 0 "
            f"to {world_size - 1}"
        )
    return ranks
