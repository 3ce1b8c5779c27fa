"""How the analysis reads stored frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from paceline_service.jobs import checkpoint_store, repository
from paceline_service.jobs.checkpoint import Stored
from paceline_service.store.database import Database
from paceline_service.store.frames import AttemptRef, CommittedFrame

Missing = dict[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """How the thread reads stored frames; the coroutines run on the event loop.

    ``page(attempt, after_id)`` returns the next frames in the order of commits, ``[]`` at the end;
    ``missing(attempt)`` the numbers that the store does not hold, per incarnation;
    ``ends(attempt)`` the number of the newest that it holds, per incarnation;
    ``checkpoint(attempt)`` where a replay may begin, if anything was kept.
    """

    page: Callable[[AttemptRef, int], Awaitable[list[CommittedFrame]]]
    missing: Callable[[AttemptRef], Awaitable[Missing]]
    ends: Callable[[AttemptRef], Awaitable[Mapping[str, int]]] | None = None
    checkpoint: Callable[[AttemptRef], Awaitable[Stored | None]] | None = None


def stored_frames(database: Database) -> FrameSource:
    """Return what reads the frames that ``database`` holds."""

    async def page(attempt: AttemptRef, after_id: int) -> list[CommittedFrame]:
        async with database.read() as connection:
            return await repository.frames_after(connection, attempt, after_id)

    async def missing(attempt: AttemptRef) -> Missing:
        async with database.read() as connection:
            return await repository.missing_frames(connection, attempt)

    async def ends(attempt: AttemptRef) -> dict[str, int]:
        async with database.read() as connection:
            return await repository.last_frames(connection, attempt)

    async def checkpoint(attempt: AttemptRef) -> Stored | None:
        async with database.read() as connection:
            return await checkpoint_store.read(connection, attempt.id)

    return FrameSource(page=page, missing=missing, ends=ends, checkpoint=checkpoint)
