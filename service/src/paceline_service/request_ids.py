"""A name for every request: in its answer, and in every line of the log about it."""

from __future__ import annotations

import itertools
import os
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

HEADER = b"x-request-id"
_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


class RequestIdMiddleware:
    """Takes the name that the sender gave in ``X-Request-Id``, or makes one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._process = os.urandom(4).hex()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its name."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        if not _GIVEN.match(given):
            given = b"%s-%d" % (self._process.encode(), next(self._numbers))

        async def send_with_name(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (HEADER, given)]
            await send(message)

        with bound_contextvars(request_id=given.decode()):
            await self._app(scope, receive, send_with_name)
