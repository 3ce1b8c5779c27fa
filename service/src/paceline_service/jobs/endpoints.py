"""``/v1/jobs`` and what is below it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from paceline.errors import InputError
from paceline.ranks import parse_ranks
from paceline_service.access.guard import Guard
from paceline_service.answers import JSON_MEDIA_TYPE, ApiRoute, accepts_gzip, answer
from paceline_service.errors import READ_PROBLEMS
from paceline_service.jobs import schemas
from paceline_service.jobs.event_log import MEDIA_TYPE as EVENT_LOG_MEDIA_TYPE
from paceline_service.jobs.event_log import event_log
from paceline_service.jobs.event_stream import MEDIA_TYPE as EVENTS_MEDIA_TYPE
from paceline_service.jobs.event_stream import EventStreams
from paceline_service.jobs.events import Place, Wanted, job_events
from paceline_service.jobs.expected import expected_answer
from paceline_service.jobs.feed import DecodeRecords
from paceline_service.jobs.pages import StepPages, ranks_page
from paceline_service.jobs.service import DEFAULT_STEPS, MAX_STEPS, ChosenJobs, JobService
from paceline_service.jobs.source import FrameSource
from paceline_service.jobs.timeline import (
    DEFAULT_STEPS as TIMELINE_STEPS,
)
from paceline_service.jobs.timeline import (
    MAX_STEPS as MAX_TIMELINE_STEPS,
)
from paceline_service.jobs.timeline import Asked, Timelines, unpacked
from paceline_service.jobs.what_if import what_if
from paceline_service.paging import MAX_LIMIT, Cursor, link_next, pack_cursor, unpack_cursor
from paceline_service.parameters import Attempt, JobName, SinceWallNs
from paceline_service.report_schema import Verdict

Ranks = Annotated[
    str | None, Query(max_length=65536, description="Rank list, for example 0,5-7; default: all.")
]
Without = Annotated[
    list[str] | None,
    Query(description="`rank:3`, `rank:0-3` or `node:NAME`; may be given several times."),
]
MAX_STEP = 2**62
MAX_FLOPS = 1e30
MAX_RANK_ROWS = 65_536
DEFAULT_RANK_ROWS = 16_384


def jobs_router(
    service: JobService, guard: Guard, source: FrameSource, decode: DecodeRecords
) -> APIRouter:
    """Return the routes of jobs."""
    router = APIRouter(
        prefix="/v1/jobs", tags=["jobs"], responses=READ_PROBLEMS, route_class=ApiRoute
    )
    timelines, streams = Timelines(service, source, decode), EventStreams()
    pages = StepPages(service)

    @router.get("", response_model=schemas.JobList)
    async def list_jobs(
        request: Request,
        state: Annotated[Literal["running", "silent", "ended"] | None, Query()] = None,
        verdict: Annotated[Verdict | None, Query(description="Of the report.")] = None,
        prefix: Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{0,128}$")] = "",
        since: SinceWallNs = None,
        limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = MAX_LIMIT,
        cursor: Cursor = None,
    ) -> Response:
        """List the jobs: the latest attempt of each, the newest first."""
        grant = await guard.require(request, "read")
        chosen = ChosenJobs(state=state, verdict=verdict, prefix=prefix, since_wall_ns=since)
        before = unpack_cursor(cursor, tuple[int, int])
        rows, last = await service.list_jobs(grant, chosen, limit=limit, before=before)
        following = pack_cursor(*last) if last is not None else None
        content = {"jobs": rows, "next": following}
        return answer(request, content, headers=link_next(request, following))

    @router.get("/{job}", response_model=schemas.JobDetail)
    async def job_detail(request: Request, job: JobName, attempt: Attempt = None) -> Response:
        """Return one attempt of a job, its process groups and nodes, and its newest attempts."""
        await guard.require_job(request, "read", job)
        return answer(request, await service.detail(job, attempt))

    @router.get("/{job}/ranks", response_model=schemas.RankList)
    async def job_ranks(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        ranks: Ranks = None,
        limit: Annotated[int, Query(ge=1, le=MAX_RANK_ROWS)] = DEFAULT_RANK_ROWS,
        cursor: Cursor = None,
    ) -> Response:
        """Return the totals and the state of every rank."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        chosen = _ranks(ranks, row.ref.world_size)
        snapshot = await service.snapshot(row)
        content = ranks_page(snapshot.ranks, chosen, limit, cursor)
        return answer(request, content, headers=link_next(request, content["next"]))

    @router.get("/{job}/report", response_model=schemas.Report)
    async def job_report(request: Request, job: JobName, attempt: Attempt = None) -> Response:
        """Return the answer about one attempt: `paceline.report/1`."""
        await guard.require_job(request, "read", job)
        snapshot = await service.snapshot(await service.resolve(job, attempt))
        return answer(request, snapshot.report_json)

    @router.get("/{job}/what-if", response_model=schemas.WhatIf)
    async def job_what_if(
        request: Request, job: JobName, attempt: Attempt = None, without: Without = None
    ) -> Response:
        """Return what the job would have gained without some ranks or nodes."""
        await guard.require_job(request, "read", job)
        snapshot = await service.snapshot(await service.resolve(job, attempt))
        return answer(request, what_if(snapshot, without or []))

    @router.get("/{job}/expected", response_model=schemas.Expected)
    async def job_expected(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        flops_per_step: Annotated[
            float | None, Query(gt=0, le=MAX_FLOPS, description="FLOP of a step of the whole job.")
        ] = None,
        parameters: Annotated[float | None, Query(gt=0, le=MAX_FLOPS)] = None,
        tokens_per_step: Annotated[
            float | None, Query(gt=0, le=MAX_FLOPS, description="With them FLOP are 6 P b.")
        ] = None,
    ) -> Response:
        """Return the step that healthy ranks would take, and what was fitted for it."""
        await guard.require_job(request, "read", job)
        snapshot = await service.snapshot(await service.resolve(job, attempt))
        content = expected_answer(
            snapshot, flops_per_step=flops_per_step, parameters=parameters,
            tokens_per_step=tokens_per_step,
        )  # fmt: skip
        return answer(request, content)

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
        cursor: Cursor = None,
    ) -> Response:
        """Return steps as columns: the earliest `limit` from `from`, without it the newest."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        shown = _ranks(ranks, row.ref.world_size) or range(row.ref.world_size)
        page = await pages.make(row, first, last, shown, limit=limit, cursor=cursor, phases=phases)
        headers = link_next(request, page.following)
        return answer(request, page.body, tag=page.tag, headers=headers)

    @router.get(
        "/{job}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {EVENTS_MEDIA_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def events(
        request: Request,
        job: JobName,
        attempt: Attempt = None,
        ranks: Ranks = None,
        last_event_id: Annotated[
            str | None, Header(description="`id` of the last event it has: `ATTEMPT-STEP`.")
        ] = None,
    ) -> Response:
        """Stream events: `report` when it changes, `steps` as they complete; resumes."""
        await guard.require_job(request, "read", job)
        row = await service.resolve(job, attempt)
        wanted = Wanted(
            follow=attempt is None,
            ranks=_ranks(ranks, row.ref.world_size),
            place=Place.parse(last_event_id),
            still_allowed=lambda: guard.require_job(request, "read", job),
        )
        return streams.respond(job_events(service, row, wanted))

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
        gzip = accepts_gzip(accept_encoding)
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
        if not accepts_gzip(accept_encoding):
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
