"""Routes for those who run the collector: health, readiness, metrics, OpenAPI, and the page."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, HTTPException, Request
from starlette.responses import FileResponse, JSONResponse, Response

from paceline_service.answers import accepts_gzip
from paceline_service.collector import Collector
from paceline_service.export import exposition
from paceline_service.readiness import readiness
from paceline_service.scrape import Scraper


def operations_router(
    collector: Collector, openapi: Callable[[], dict[str, Any]], web: Path
) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["operations"])
    scraper = Scraper(collector)

    # Monitors of availability often ask with HEAD.
    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz", response_model=dict[str, bool])
    async def healthz() -> Response:
        """Tell that the process answers; whether it works is told by /readyz."""
        return JSONResponse({"ok": True})

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", response_model=dict[str, Any], responses={503: {"description": "Not."}})
    async def readyz(request: Request) -> Response:
        """Tell whether frames are stored and analysed at present, and what is wrong if not.

        Why it is, which may name hosts and files, is told to who may read.
        """
        checks = await readiness(collector)
        reasons = {name: words for name, words in checks.items() if words}
        body: dict[str, Any] = {
            "ready": not reasons,
            "checks": {name: not words for name, words in checks.items()},
            "failing": sorted(reasons),
        }
        if await collector.guard.may(request, "read"):
            body["reasons"] = reasons
            body["last_commit_error"] = collector.commits.stats.last_error or None
        return JSONResponse(body, 503 if reasons else 200)

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "content": {
                    "text/plain": {"schema": {"type": "string"}},
                    "application/openmetrics-text": {"schema": {"type": "string"}},
                }
            }
        },
    )
    async def scrape(request: Request) -> Response:
        """Return the metrics as text for Prometheus, or as OpenMetrics (docs/metrics.md)."""
        grant = await collector.guard.require(request, "read")
        if grant.job_prefix:
            beyond = "the metrics are of all jobs: use a token without a job prefix"
            raise collector.guard.denied(request, grant, beyond)
        form = exposition.content_type(request.headers.get("accept", ""))
        text = await scraper.text(form)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            text = await asyncio.to_thread(gzip.compress, text, 1)
            headers["Content-Encoding"] = "gzip"
        return Response(text, headers=headers, media_type=form)

    @router.get("/openapi.json", include_in_schema=False)
    async def document() -> Response:
        """Return the OpenAPI document."""
        return Response(msgspec.json.encode(openapi()), media_type="application/json")

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        """Return the page."""
        index = web / "index.html"
        if not index.is_file():
            raise HTTPException(404, "this installation has no page")
        return FileResponse(index, headers={"Cache-Control": "no-cache"})

    return router
