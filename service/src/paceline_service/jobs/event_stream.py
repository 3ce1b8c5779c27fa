"""Sends server-sent events to many clients at once.

A client that does not read is cut off by its connection (``access/connections.py``), with little
waiting for it: events are handed on in small pieces, and made only when those before have gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import structlog
from starlette.responses import Response, StreamingResponse

from paceline.errors import PacelineError
from paceline_service.errors import OverloadedError

MEDIA_TYPE = "text/event-stream"
MAX_STREAMS = 1000
"""Open streams of one process: each keeps a connection and up to a few hundred KiB."""
PIECE_BYTES = 1 << 16
_log = structlog.get_logger("paceline.events")


class EventStreams:
    """Counts the open streams of a process, and bounds them."""

    def __init__(self) -> None:
        self.open = 0

    def respond(self, events: AsyncGenerator[bytes, None]) -> Response:
        """Return the answer that sends ``events``.

        Raises:
            OverloadedError: too many streams are open.
        """
        if self.open >= MAX_STREAMS:
            raise OverloadedError(
                f"{self.open} event streams are open, the limit; close some, or ask "
                "GET /v1/jobs/{job}/report from time to time"
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._pieces(events), headers=headers, media_type=MEDIA_TYPE)

    async def _pieces(self, events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            async for payload in events:
                for begin in range(0, len(payload), PIECE_BYTES):
                    yield payload[begin : begin + PIECE_BYTES]
        except PacelineError as error:
            # The answer has begun: the client hears of the error when it comes back.
            _log.info("an event stream was closed", error=str(error))
        finally:
            self.open -= 1
            await events.aclose()
