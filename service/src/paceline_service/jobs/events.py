"""Server-sent events of one job: its report when it changes, its steps as they complete."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.service import MAX_STEPS, JobService
from paceline_service.jobs.snapshot import Snapshot
from paceline_service.jobs.steps import columns

FIRST_STEPS = 60
KEEP_ALIVE_S = 10.0


async def job_events(
    service: JobService,
    row: AttemptRow,
    *,
    follow: bool,
    ranks: tuple[int, ...] | None,
    last_event_id: int | None,
) -> AsyncIterator[bytes]:
    """Yield the events of an attempt until the client goes or the collector stops.

    Args:
        service: the read side.
        row: the attempt to begin with.
        follow: go on with the next attempt of the job when there is one.
        ranks: of whom steps are told; None for all.
        last_event_id: the last step that the client has, when it resumes.
    """
    board = service.board
    after: int | None = last_event_id
    sent_report = b""
    yield b"retry: 2000\n\n"
    spoken_s = time.monotonic()
    while not board.closing:
        version = board.version
        newer = await service.newer(row) if follow else None
        if newer is not None:
            row, after, sent_report = newer, None, b""
        snapshot = await service.snapshot(row)
        if after is not None and after > snapshot.last_step:
            after = None  # it comes from another attempt, or from before the store was replaced
        payload, after = await _steps_event(service, row, snapshot, ranks, after)
        identity = after if after is not None else -1
        if snapshot.report_json != sent_report:
            sent_report = snapshot.report_json
            payload += _event("report", identity, sent_report)
        if payload:
            yield payload
            spoken_s = time.monotonic()
        await board.wait(version, max(KEEP_ALIVE_S - (time.monotonic() - spoken_s), 0.05))
        if time.monotonic() - spoken_s >= KEEP_ALIVE_S:
            yield b": keep-alive\n\n"
            spoken_s = time.monotonic()


async def _steps_event(
    service: JobService,
    row: AttemptRow,
    snapshot: Snapshot,
    ranks: tuple[int, ...] | None,
    after: int | None,
) -> tuple[bytes, int | None]:
    if snapshot.last_step < 0 or after == snapshot.last_step:
        return b"", after
    if after is None:
        steps = await service.steps(row, None, None, FIRST_STEPS)
    else:
        steps = await service.steps(row, after + 1, None, MAX_STEPS)
    if not steps:
        return b"", after
    shown = ranks if ranks is not None else range(row.ref.world_size)
    body: dict[str, Any] = columns(row.ref.job, row.ref.ordinal, steps, shown, phases=False)
    return _event("steps", steps[-1].step, msgspec.json.encode(body)), steps[-1].step


def _event(name: str, identity: int, data: bytes) -> bytes:
    head = f"event: {name}\n" + (f"id: {identity}\n" if identity >= 0 else "")
    return head.encode() + b"data: " + data + b"\n\n"
