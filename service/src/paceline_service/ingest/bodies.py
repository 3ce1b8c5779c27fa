"""Reads the bodies of POSTs; what they hold meanwhile is bounded, of all and of each bearer.

Thousands of sidecars come back at once after an outage, each with megabytes; and who sends slowly
keeps what he sent in memory for minutes. A body counts with its declared length from its first
byte until it is decoded, so that what cannot be read to its end is refused before it is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from paceline_service.errors import BodyTooLargeError, OverloadedError


class Bodies:
    """Bodies that are being read. On the event loop.

    Args:
        longest_bytes: of one body.
        most_bytes: of all at once; one bearer has half of it, so that nobody shuts out all others.
        refused: counts what was refused, by reason.
    """

    def __init__(self, *, longest_bytes: int, most_bytes: int, refused: Counter[str]) -> None:
        self._longest_bytes = longest_bytes
        self._most_bytes = most_bytes
        self._refused = refused
        self._held: Counter[str] = Counter()
        """By bearer."""
        self.held_bytes = 0

    @asynccontextmanager
    async def read(self, request: Request, bearer: str) -> AsyncIterator[bytes]:
        """Read the body of ``request``; it counts as held until the block ends.

        Raises:
            BodyTooLargeError: it is too long.
            OverloadedError: bodies hold as much as they may.
        """
        declared = request.headers.get("content-length", "")
        taken = int(declared) if declared.isdigit() else 0
        self._check_length(taken)
        self._take(bearer, taken)
        try:
            chunks = []
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
                self._check_length(size)
                if size > taken:
                    self._take(bearer, size - taken)
                    taken = size
                chunks.append(chunk)
            yield chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            self._give_back(bearer, taken)

    def _check_length(self, size: int) -> None:
        if size > self._longest_bytes:
            raise BodyTooLargeError(
                f"a body of {size} bytes or more; the limit is {self._longest_bytes}: send fewer "
                "frames at once"
            )

    def _take(self, bearer: str, size: int) -> None:
        own, every = self._held[bearer], self.held_bytes
        half = self._most_bytes // 2
        if (own and own + size > half) or (every and every + size > self._most_bytes):
            self._refused["bodies"] += 1
            raise OverloadedError(
                f"bodies that are being read hold {every} bytes, {own} of them of this token; the "
                f"limit is {self._most_bytes}, half of it for one token: keep the frames and send "
                "them again"
            )
        self._held[bearer] = own + size
        self.held_bytes = every + size

    def _give_back(self, bearer: str, size: int) -> None:
        self.held_bytes -= size
        self._held[bearer] -= size
        if not self._held[bearer]:
            del self._held[bearer]  # of a Counter: nothing is amiss if it is not there
