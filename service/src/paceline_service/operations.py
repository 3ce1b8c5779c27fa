"""Routes for those who run the collector: health, readiness, metrics, OpenAPI, and the page."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, HTTPException, Request
from starlette.responses import FileResponse, JSONResponse, Response

from paceline import metrics
from paceline.metrics import Metric
from paceline_service.collector import Collector
from paceline_service.errors import PermissionDeniedError
from paceline_service.export import prometheus
from paceline_service.export.labels import bounded_reasons
from paceline_service.export.prometheus import JobSample, Sample
from paceline_service.incidents.service import closed_reason
from paceline_service.jobs.live import STEP_BUCKETS_S
from paceline_service.jobs.snapshot import Snapshot
from paceline_service.readiness import free_bytes, readiness
from paceline_service.store.drops import read_drops


def operations_router(
    collector: Collector, openapi: Callable[[], dict[str, Any]], web: Path
) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz", response_model=dict[str, bool])
    async def healthz() -> Response:
        """Tell that the process answers; whether it works is told by /readyz."""
        return JSONResponse({"ok": True})

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
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def scrape(request: Request) -> Response:
        """Return the metrics in Prometheus' text format (docs/metrics.md)."""
        grant = await collector.guard.require(request, "read")
        if grant.job_prefix:
            raise PermissionDeniedError(
                f"token {grant.name!r} is for jobs of {grant.job_prefix!r}; the metrics are of all "
                "jobs: use a token without a job prefix"
            )
        await collector.silences.refresh()
        async with collector.database.read() as connection:
            stored = await read_drops(connection)
        drops: Counter[tuple[str, str]] = Counter()
        for (_, stage, reason), count in (stored + collector.commits.unstored_rejects).items():
            drops[stage, reason] += count
        text = await asyncio.to_thread(
            prometheus.render, lambda: take_sample(collector, drops), collector.settings.rank_series
        )
        return Response(text, media_type=prometheus.CONTENT_TYPE)

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


def take_sample(collector: Collector, stored_drops: Counter[tuple[str, str]]) -> Sample:
    """Return what one scrape shows."""
    stats, engine = collector.commits.stats, collector.engine
    if collector.bus is not None and collector.bus.publisher is not None:
        stats = collector.bus.publisher.stats if not collector.analyses else stats
    latest: dict[str, Snapshot] = {}
    drops = Counter(stored_drops)
    for snapshot in collector.board.all():
        for row in snapshot.ranks:
            for reason, count in row["dropped"].items():
                stage = "analysis" if reason in _LOST_HERE else "agent"
                drops[stage, reason] += count
        known = latest.get(snapshot.attempt.job)
        if known is None or known.attempt.ordinal < snapshot.attempt.ordinal:
            latest[snapshot.attempt.job] = snapshot
    values: dict[Metric, float] = {
        metrics.INGEST_FRAMES: stats.frames,
        metrics.INGEST_RECORDS: stats.records,
        metrics.INGEST_BYTES: stats.raw_bytes,
        metrics.INGEST_DUPLICATES: stats.duplicates,
        metrics.INGEST_COMMITS: stats.commits,
        metrics.INGEST_COMMIT_SECONDS: stats.commit_seconds,
        metrics.INGEST_COMMIT_FAILURES: stats.failures,
        metrics.INGEST_QUEUE_BYTES: collector.commits.waiting_bytes,
        metrics.ANALYSIS_BACKLOG_BYTES: engine.backlog_bytes,
        metrics.ANALYSIS_LAG_SECONDS: engine.stats.lag_seconds,
        metrics.ANALYSIS_FAILURES: engine.stats.failures,
        metrics.ANALYSIS_ATTEMPTS: engine.stats.loaded,
        metrics.ANALYSIS_FRAMES: engine.stats.frames,
        metrics.ANALYSIS_TICKS: engine.stats.ticks,
        metrics.ANALYSIS_TICK_SECONDS: engine.stats.tick_seconds,
        metrics.CHECKPOINTS: engine.checkpoints.stats.made,
        metrics.CHECKPOINT_SECONDS: engine.checkpoints.stats.seconds,
        metrics.CHECKPOINT_BYTES: engine.checkpoints.stats.raw_bytes,
        metrics.CHECKPOINTS_USED: engine.checkpoints.stats.used,
        metrics.CHECKPOINTS_REFUSED: engine.checkpoints.stats.refused,
        metrics.STORE_RAW_BYTES: collector.housekeeping.raw_bytes,
        metrics.PERSIST_WAITING_STEPS: collector.persister.waiting_steps,
        metrics.PERSIST_FAILURES: collector.persister.failures,
        metrics.PROCESS_CPU_SECONDS: time.process_time(),
        metrics.PROCESS_RESIDENT_BYTES: _resident_bytes(),
    }
    free = free_bytes(collector.database)
    if free is not None:
        values[metrics.STORE_FREE_BYTES] = free
    bus = collector.bus.stats if collector.bus is not None else None
    if bus is not None:
        values.update(bus.values())
    return Sample(
        jobs=tuple(_job_sample(snapshot) for snapshot in latest.values()),
        values=values,
        labelled={
            metrics.INGEST_REJECTED: {(name,): n for name, n in stats.rejects.items()},
            metrics.ACCESS_REFUSED: {(name,): n for name, n in collector.guard.refused.items()},
            metrics.INGEST_REFUSED: {(name,): n for name, n in stats.refused.items()},
            metrics.RANK_SILENCED: _silenced(collector, latest.values()),
            metrics.DROPPED: bounded_reasons(drops),
            metrics.RELIEF_STRIDE: {
                (job,): stride for job, stride in collector.control.relieved().items()
            },
            metrics.RELIEF_CHANGES: {(way,): n for way, n in collector.relief.changes.items()},
            metrics.PERSIST_GIVEN_UP: {
                ("steps",): collector.persister.steps_given_up,
                ("lanes",): collector.persister.lanes_given_up,
            },
            **(bus.labelled() if bus is not None else {}),
        },
        histograms={
            metrics.INGEST_COMMIT_DURATION_SECONDS: collector.commits.stats.durations.sample(),
            metrics.VERDICT_LAG_SECONDS: engine.stats.verdict_lag.sample(),
        },
    )


def _resident_bytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def _silenced(collector: Collector, snapshots: Iterable[Snapshot]) -> dict[tuple[str, ...], float]:
    """Return the labels of the flags that a silence covers."""
    rows: dict[tuple[str, ...], float] = {}
    for snapshot in snapshots:
        job = snapshot.attempt.job
        for finding in _open_findings(snapshot):
            if collector.silences.covering(job, finding) is not None:
                for rank in finding["ranks"]:
                    rows[job, str(rank), finding["kind"], finding["cause"]] = 1.0
    return rows


def _open_findings(snapshot: Snapshot) -> tuple[dict[str, Any], ...]:
    ended = snapshot.state == "ended"
    findings = snapshot.report["findings"]
    return tuple(f for f in findings if not closed_reason(f, snapshot.last_step, ended))


def _job_sample(snapshot: Snapshot) -> JobSample:
    ended = snapshot.state == "ended"
    return JobSample(
        job=snapshot.attempt.job,
        state=snapshot.state,
        report=snapshot.report,
        ranks_seen=snapshot.ranks_seen,
        last_step=snapshot.last_step,
        open_findings=_open_findings(snapshot),
        step_bounds_s=STEP_BUCKETS_S,
        step_buckets=snapshot.step_totals.buckets,
        step_sum_s=snapshot.step_totals.sum_ns / 1e9,
        pending_s={} if ended else {
            row["rank"]: row.get("pending_s") or 0.0 for row in snapshot.ranks
        },
    )  # fmt: skip


_LOST_HERE = frozenset(
    {
        "frames_missing", "frames_late", "frames_deleted", "bad_group", "unknown_kind",
        "unknown_group", "out_of_range",
    }
)  # fmt: skip
"""Reasons that the collector gives itself (``jobs.stream``, ``jobs.sanitize``)."""
