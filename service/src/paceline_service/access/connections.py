"""How long and how much one connection may take: uvicorn itself bounds neither.

A client that opens connections and sends little or nothing, headers without end, or never reads
what it asked for, is cut off; the rest does not notice. Times are looked at by one task every few
seconds, so that a request costs no timer.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paceline_service.errors import PROBLEM_MEDIA_TYPE, problem_body

MAX_HEAD_BYTES = 32 << 10
"""Request line and headers together."""
SPARE_FILES = 256
"""File descriptors for everything that is no connection."""
BODY_TIMES = 20
"""A body that moves on may take so many time-outs altogether."""
_log = structlog.get_logger("paceline.connections")
_IDLE, _HEAD, _BODY, _WHOLE = range(4)


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Shared by the connections of one server."""

    most: int
    timeout_s: float
    refused: Counter[str] = field(default_factory=Counter)
    """Connections that were cut off, by reason."""


class Connection(HttpToolsProtocol):
    """One connection of a client."""

    limits: ClassVar[ConnectionLimits]
    _phase = _HEAD
    _began_s = 0.0
    _moved_s = 0.0
    _stalled_s = 0.0
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or close it with 503 where there are too many."""
        self._began_s = self._moved_s = time.monotonic()
        if len(self.connections) >= self.limits.most:
            self.transport = transport
            self.limits.refused["connections"] += 1
            transport.write(TOO_MANY)
            transport.close()
            return
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        now_s = self._moved_s = time.monotonic()
        if self._phase == _IDLE:
            self._phase, self._began_s, self._head_bytes = _HEAD, now_s, 0
        if self._phase == _HEAD:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._phase == _HEAD and self._head_bytes > MAX_HEAD_BYTES:
            self._too_large()

    def on_headers_complete(self) -> None:
        """Go on with the body, if the headers are not too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            self._too_large()
            return
        self._phase, self._began_s = _BODY, self._moved_s
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, unless the connection was given up."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is here."""
        if not self.transport.is_closing():
            self._phase = _WHOLE
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn's keep-alive bounds that."""
        if self._phase == _WHOLE:
            self._phase = _IDLE
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._stalled_s = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self._stalled_s = 0.0
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self.limits.refused["no_http"] += 1
        super().send_400_response(msg)

    def check(self, now_s: float) -> None:
        """Cut the connection off if it takes too long."""
        reason = self._fault(now_s)
        if not reason or self.transport.is_closing():
            return
        self.limits.refused[reason] += 1
        _log.debug("connection cut off", reason=reason, client=self.client)
        self.transport.abort()

    def _fault(self, now_s: float) -> str:
        limit_s = self.limits.timeout_s
        if self._stalled_s and now_s - self._stalled_s > 2 * limit_s:
            return "slow_reader"
        if self._phase == _HEAD and now_s - self._began_s > limit_s:
            return "slow_head"
        if self._phase == _BODY and not self.flow.read_paused:
            if now_s - self._moved_s > limit_s:
                return "slow_body"
            if now_s - self._began_s > limit_s * BODY_TIMES:
                return "slow_body"
        return ""

    def _too_large(self) -> None:
        if not self.transport.is_closing():
            self.limits.refused["head_size"] += 1
            self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()


def connection_class(limits: ConnectionLimits) -> type[Connection]:
    """Return the protocol of a server with those limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits})


async def watch(connections: Callable[[], Iterable[Any]], limits: ConnectionLimits) -> None:
    """Cut off, for ever, the connections that take too long."""
    period_s = min(limits.timeout_s / 4, 5.0)
    while True:
        slept_s = time.monotonic()
        await asyncio.sleep(period_s)
        now_s = time.monotonic()
        if now_s - slept_s > 2 * period_s:
            continue  # we were late ourselves: what clients sent may be waiting to be read
        for connection in list(connections()):
            connection.check(now_s)


def raise_file_limit(wanted: int) -> int:
    """Let this process open as many files as it may; return how many connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + SPARE_FILES
    spread = 2 * wanted + SPARE_FILES  # connections whose TLS is being agreed on are not counted
    if soft == resource.RLIM_INFINITY or soft >= spread:
        return wanted
    soft = spread if hard == resource.RLIM_INFINITY else max(soft, min(spread, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft >= files:
        return wanted
    allowed = max(soft - SPARE_FILES, 64)
    _log.warning(
        "fewer connections than wanted: the limit on open files is too low (ulimit -n)",
        wanted=wanted, allowed=allowed, files=soft,
    )  # fmt: skip
    return int(allowed)


def _answer(status: int, problem: str, detail: str, retry_after_s: int | None = None) -> bytes:
    more = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
    body = problem_body(status, problem, detail, **more)
    retry = "" if retry_after_s is None else f"Retry-After: {retry_after_s}\r\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {PROBLEM_MEDIA_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n"
    )
    return head.encode() + body


TOO_MANY = _answer(
    503, "too-many-connections",
    "as many connections are open as may be: try again, or raise PACELINE_SERVE_MAX_CONNECTIONS",
    retry_after_s=5,
)  # fmt: skip
HEAD_TOO_LARGE = _answer(
    431, "headers-too-large",
    f"request line and headers take more than {MAX_HEAD_BYTES} bytes, which is the limit: send "
    "less in them",
)  # fmt: skip
