"""The last place where an error of an endpoint is caught.

It stands within the middleware that names requests and adds headers, so that the answer 500 has
both, and its line in the log the same name. What is caught here goes no further: the server would
log it a second time, as text.
"""

from __future__ import annotations

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline_service.errors import answer_to

_log = structlog.get_logger("paceline.errors")


class UnforeseenMiddleware:
    """Answers what no handler of errors knows."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; 500 if that raises."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def noted(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if began:  # the server cuts off an answer that was not ended
                _log.error("an answer broke off", path=scope["path"], exc_info=error)
                return
            request = Request(scope, receive)
            await (await answer_to(request, error))(scope, receive, send)
