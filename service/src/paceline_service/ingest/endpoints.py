"""``POST /v1/frames``: the hot route, outside FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.wire.bundles import Bundle
from paceline.wire.codec import Rejected
from paceline.wire.frames import Frame
from paceline.wire.settings import LaunchSettings
from paceline_service.access.guard import Guard
from paceline_service.errors import (
    NothingDecodableError,
    OverloadedError,
    PermissionDeniedError,
    answer_to,
)
from paceline_service.ingest.bodies import Bodies
from paceline_service.ingest.commit import Outcome
from paceline_service.ingest.decoding import IncomingFrame, decode_body, sort_out
from paceline_service.settings import CollectorSettings

INLINE_BYTES = 64 << 10
"""Bodies up to here are decoded on the event loop: a thread would cost more than it frees."""
MAX_REASONS_SHOWN = 100
FRAMES_PATH = "/v1/frames"
ToldSettings = Callable[[Iterable[Frame | Bundle]], list[LaunchSettings]]
"""Returns what the launches of some frames are to record; asked for every request."""


class FrameSink(Protocol):
    """Where frames go: into the database, or onto the bus."""

    def count_rejects(self, reasons: Sequence[str]) -> None:
        """Count frames that never came this far."""

    async def submit(self, frames: Sequence[IncomingFrame]) -> Outcome:
        """Return when ``frames`` are durable."""


class FramesEndpoint:
    """Takes frames, and answers when they are durable."""

    def __init__(
        self,
        guard: Guard,
        commits: FrameSink,
        settings: CollectorSettings,
        told: ToldSettings,
    ) -> None:
        self._guard = guard
        self._told = told
        self._commits = commits
        self._settings = settings
        self._bodies = Bodies(
            longest_bytes=settings.max_body_bytes,
            most_bytes=settings.reading_bytes,
            refused=guard.refused,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST, as an application of its own."""
        request = Request(scope, receive)
        try:
            response = await self.post(request)
        except Exception as error:
            response = await answer_to(request, error)
        await response(scope, receive, send)

    async def post(self, request: Request) -> Response:
        """Answer one POST."""
        grant = await self._guard.require(request, "ingest")
        async with self._bodies.read(request, grant.bearer) as body:
            self._guard.spend(grant, len(body))
            limits = {
                "max_unpacked_bytes": self._settings.max_unpacked_bytes,
                "max_world_size": self._settings.max_world_size,
            }
            if len(body) <= INLINE_BYTES:
                decoded = decode_body(body, grant, **limits)
            else:
                decoded = await asyncio.to_thread(decode_body, body, grant, **limits)
        if self._guard.cardinality is not None:
            sort_out(decoded, grant, self._guard.cardinality)
        self._commits.count_rejects(decoded.reasons)
        if not decoded.frames:
            first = decoded.rejected[0].reason if decoded.rejected else "the body is empty"
            if decoded.forbidden:
                raise PermissionDeniedError(f"no frame of this body may be sent: {first}")
            raise NothingDecodableError(
                f"no frame of this body can be decoded: {first} (docs/wire.md)"
            )
        try:
            outcome = await self._commits.submit(decoded.frames)
        except OverloadedError as error:
            # Whoever sends too much must hear of it with the very answer that refuses him.
            error.settings = self._told(item.frame for item in decoded.frames)
            raise
        rejected = sorted(decoded.rejected + outcome.rejected, key=lambda item: item.offset)
        answer = {
            "accepted": outcome.accepted,
            "duplicate": outcome.duplicate,
            "rejected": _told_rejections(rejected, decoded.forbidden),
            "settings": self._told(item.frame for item in decoded.frames),
        }
        return Response(msgspec.json.encode(answer), media_type="application/json")


def _told_rejections(rejected: list[Rejected], forbidden: set[int]) -> list[dict[str, object]]:
    """Return every rejection, since a sender counts by them; many are told without their words."""
    told: list[dict[str, object]] = []
    for number, item in enumerate(rejected):
        reason = item.reason if number < MAX_REASONS_SHOWN else "like others before"
        told.append({"offset": item.offset, "reason": reason})
        if item.offset in forbidden:
            told[-1]["problem"] = PermissionDeniedError.problem
    return told
