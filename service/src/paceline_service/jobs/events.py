"""Server-sent events of one job: its report when it changes, its steps as they complete.

The ``id`` of an event is ``ATTEMPT-STEP``: the last step that was told. A client that comes back
with it gets what followed, if that is not too much; else the event ``reload`` tells it to begin
anew. ``jobs/event_stream.py`` sends them.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from paceline.counted import counted
from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.service import JobService
from paceline_service.jobs.snapshot import Snapshot
from paceline_service.jobs.steps import Step, columns

FIRST_STEPS = 60
MAX_MISSED_STEPS = 5000
"""Who has missed more begins anew: history that nobody draws would be sent first."""
MAX_MISSED_CELLS = 2_000_000
"""The same, as steps times ranks: 40 MB of JSON."""
EVENT_CELLS = 100_000
"""Steps times ranks of one event; more come in several."""
KEEP_ALIVE_S = 10.0
RECHECK_S = 30.0
"""How often it is asked whether the reader may still read."""
_ID = re.compile(r"(?:(\d{1,9})-)?(\d{1,18})\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The last step that a client has; ``attempt`` 0 in ids of collectors before this one."""

    attempt: int
    step: int

    @staticmethod
    def parse(text: str | None) -> Place | None:
        """Return the place in a Last-Event-ID header, None where it holds none."""
        found = _ID.match(text or "")
        if found is None:
            return None
        return Place(attempt=int(found[1] or 0), step=int(found[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client wants to hear.

    Attributes:
        follow: go on with the next attempt of the job when there is one.
        ranks: of whom steps are told; None for all.
        place: where the client was, when it resumes.
        still_allowed: raises when the reader may no longer read.
    """

    follow: bool
    ranks: tuple[int, ...] | None
    place: Place | None
    still_allowed: Callable[[], Awaitable[object]]


async def job_events(
    service: JobService, row: AttemptRow, wanted: Wanted
) -> AsyncGenerator[bytes, None]:
    """Yield the events of an attempt until the collector stops or the reader may not read."""
    board = service.board
    sent_report = b""
    yield b"retry: 2000\n\n"
    snapshot = await service.snapshot(row)
    ranks = len(wanted.ranks) if wanted.ranks is not None else row.ref.world_size
    after, reason = resume(wanted.place, row.ref.ordinal, snapshot.last_step, ranks)
    if reason:
        yield _event("reload", "", msgspec.json.encode({"reason": reason}))
    spoken_s = checked_s = time.monotonic()
    while not board.closing:
        version = board.version
        latest = board.latest(row.ref.job) if wanted.follow else None
        if latest is not None and latest.attempt.ordinal > row.ref.ordinal:
            row, after, sent_report = await service.resolve(row.ref.job), None, b""
        snapshot = await service.snapshot(row)
        told = False
        async for payload, step in _steps_events(service, row, snapshot, wanted, after):
            after, told = step, True
            yield payload
        if snapshot.report_json != sent_report:
            sent_report, told = snapshot.report_json, True
            yield _event("report", _identity(row, after), sent_report)
        now_s = time.monotonic()
        if told:
            spoken_s = now_s
        await board.wait(version, max(KEEP_ALIVE_S - (now_s - spoken_s), 0.05))
        now_s = time.monotonic()
        if now_s - spoken_s >= KEEP_ALIVE_S:
            yield b": keep-alive\n\n"
            spoken_s = now_s
        if now_s - checked_s >= RECHECK_S:
            checked_s = now_s
            await wanted.still_allowed()


def resume(
    place: Place | None, attempt: int, newest_step: int, ranks: int
) -> tuple[int | None, str]:
    """Return the step to go on behind, or None and why the client has to begin anew.

    Args:
        place: where the client was; None at its first visit, which is no reason.
        attempt: that is told of now.
        newest_step: of it.
        ranks: of how many steps are told.
    """
    if place is None:
        return None, ""
    if place.attempt not in (0, attempt):
        return None, f"the job is at attempt {attempt}, not {place.attempt}"
    if place.step > newest_step:
        return None, f"the newest step is {newest_step}, not {place.step}"
    missed = newest_step - place.step
    most = min(MAX_MISSED_STEPS, max(MAX_MISSED_CELLS // ranks, 1))
    if missed > most:
        return None, f"missed: {counted(missed, 'step')}; at most {most:,} can be told again"
    return place.step, ""


async def _steps_events(
    service: JobService, row: AttemptRow, snapshot: Snapshot, wanted: Wanted, after: int | None
) -> AsyncIterator[tuple[bytes, int]]:
    """Yield the events of the steps behind ``after``, each with its last step."""
    shown = wanted.ranks if wanted.ranks is not None else range(row.ref.world_size)
    at_once = max(EVENT_CELLS // len(shown), 1)
    if after is None and snapshot.last_step >= 0:
        newest = await service.steps(row, None, None, FIRST_STEPS, phases=False)
        for begin in range(0, len(newest), at_once):
            part = newest[begin : begin + at_once]
            after = part[-1].step
            yield _steps_event(row, part, shown), after
    while after is not None and after < snapshot.last_step:
        steps = await service.steps(row, after + 1, None, at_once, phases=False)
        if not steps:
            return
        after = steps[-1].step
        yield _steps_event(row, steps, shown), after


def _steps_event(row: AttemptRow, steps: Sequence[Step], shown: Sequence[int]) -> bytes:
    body = columns(row.ref.job, row.ref.ordinal, steps, shown, phases=False)
    return _event("steps", _identity(row, steps[-1].step), msgspec.json.encode(body))


def _identity(row: AttemptRow, step: int | None) -> str:
    return "" if step is None else f"{row.ref.ordinal}-{step}"


def _event(name: str, identity: str, data: bytes) -> bytes:
    head = f"event: {name}\n" + (f"id: {identity}\n" if identity else "")
    return head.encode() + b"data: " + data + b"\n\n"
