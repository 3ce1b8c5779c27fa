"""Errors of the collector, and the one place where any error becomes problem+json (RFC 9457).

The ``type`` of a problem is stable (``urn:paceline:problem:...``); its ``detail`` gives the value,
the limit and the remedy. docs/api.md lists them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Mount

from paceline.errors import ConfigError, PacelineError
from paceline.wire.settings import LaunchSettings

PROBLEM_MEDIA_TYPE = "application/problem+json"
_log = structlog.get_logger("paceline.errors")


class ProblemPart(BaseModel):
    """What is wrong with one parameter or one field of a body."""

    where: str
    message: str


class Problem(BaseModel):
    """RFC 9457; ``type`` is stable (docs/api.md)."""

    type: str = Field(
        pattern="^urn:paceline:problem:[a-z-]+$", examples=["urn:paceline:problem:unknown-job"]
    )
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(
        description="The value, the limit and the remedy.",
        examples=["job 'llm' is not known here; GET /v1/jobs lists those that are"],
    )
    errors: list[ProblemPart] = Field(
        default_factory=list, description="With 422: each thing that is wrong."
    )
    retry_after_s: int | None = Field(None, description="With 429 and 503: also in Retry-After.")
    settings: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Of refused frames with 429: what their launches are to record (docs/wire.md).",
    )


_CONTENT = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
Responses = dict[int | str, dict[str, Any]]
READ_PROBLEMS: Responses = {
    400: {"description": "A parameter makes no sense here.", "content": _CONTENT},
    401: {"description": "No token, or an unknown one.", "content": _CONTENT},
    403: {"description": "The token may not do this.", "content": _CONTENT},
    404: {"description": "What the path names is not known.", "content": _CONTENT},
    406: {"description": "The route has nothing of what Accept wants.", "content": _CONTENT},
    421: {"description": "The Host header is not a name of this collector.", "content": _CONTENT},
    422: {"description": "A parameter is not valid.", "content": _CONTENT},
    429: {"description": "Too much at once: Retry-After.", "content": _CONTENT},
    503: {"description": "The database does not answer: Retry-After.", "content": _CONTENT},
}
"""What every endpoint about a job may answer, for the OpenAPI document."""
CHANGE_PROBLEMS: Responses = {
    409: {"description": "It contradicts what is there now.", "content": _CONTENT},
    413: {"description": "The body is too long.", "content": _CONTENT},
    415: {"description": "The body is not JSON.", "content": _CONTENT},
}
"""What a route that changes something may answer beside these."""


class ServiceError(PacelineError):
    """Base of what the collector answers with a status of its own."""

    problem = "internal"
    retry_after_s: int | None = None
    settings: Sequence[LaunchSettings] = ()
    """What launches whose frames were refused are to record."""


class AuthenticationError(ServiceError):
    """There is no token, or none that this collector knows."""

    http_status = 401
    problem = "unauthenticated"


class PermissionDeniedError(ServiceError):
    """The token is known, but not allowed to do this."""

    http_status = 403
    problem = "forbidden"


class UnknownJobError(ServiceError):
    """No job, or no attempt of a job, has that name."""

    http_status = 404
    problem = "unknown-job"


class UnknownTokenError(ServiceError):
    """No token has that number, or it is beyond the reach of who asks."""

    http_status = 404
    problem = "unknown-token"


class UnknownIncidentError(ServiceError):
    """No incident, or no silence, has that number."""

    http_status = 404
    problem = "unknown-incident"


class UnknownChannelError(ServiceError):
    """No channel of messages has that name."""

    http_status = 404
    problem = "unknown-channel"


class NotKeptError(ServiceError):
    """What is asked about was recorded once, or never, but is not stored now."""

    http_status = 404
    problem = "not-kept"


class BodyTooLargeError(ServiceError):
    """A request body, or what it promises to unpack to, is over its limit."""

    http_status = 413
    problem = "body-too-large"


class NotAcceptableError(ServiceError):
    """The request does not accept what the route has."""

    http_status = 406
    problem = "not-acceptable"


class ConflictError(ServiceError):
    """The change contradicts what is there now."""

    http_status = 409
    problem = "conflict"


class UnsupportedMediaTypeError(ServiceError):
    """The body is of a type that the route does not take."""

    http_status = 415
    problem = "unsupported-media-type"


class UntrustedHostError(ServiceError):
    """The Host header is not one of this collector's names: perhaps DNS rebinding."""

    http_status = 421
    problem = "untrusted-host"


class NothingDecodableError(ServiceError):
    """A body of frames held not a single good frame."""

    http_status = 400
    problem = "no-frame"


class OverloadedError(ServiceError):
    """More is waiting for its commit or its analysis than memory is set aside for."""

    http_status = 429
    problem = "overloaded"
    retry_after_s = 1


class RateLimitedError(ServiceError):
    """One token asks for more than its share."""

    http_status = 429
    problem = "rate-limited"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailableError(ServiceError):
    """The database does not take writes at present; nothing was acknowledged."""

    http_status = 503
    problem = "store-unavailable"
    retry_after_s = 5


class LeaseLostError(StoreUnavailableError):
    """Another analyzer owns the job by now; what this one would write is refused."""


class BusUnavailableError(ServiceError):
    """The bus does not take frames at present; nothing was acknowledged."""

    http_status = 503
    problem = "bus-unavailable"
    retry_after_s = 5


class ProviderUnavailableError(ServiceError):
    """The provider that people sign in with does not answer, or not as it should."""

    http_status = 503
    problem = "provider-unavailable"
    retry_after_s = 5


class DatabaseVersionError(ConfigError):
    """The database was written by a newer program."""


class DatabaseUnusableError(ConfigError):
    """The database cannot be opened, reached or understood."""


class DatabaseInUseError(ConfigError):
    """Another collector has this database open."""


def problem_body(status: int, problem: str, detail: str, **more: object) -> bytes:
    """Return the JSON of one problem."""
    return msgspec.json.encode(
        {
            "type": f"urn:paceline:problem:{problem}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": detail,
            **more,
        }
    )


def problem_response(error: PacelineError) -> Response:
    """Return the answer that tells a client about ``error``."""
    status = error.http_status
    headers: dict[str, str] = {}
    more: dict[str, object] = {}
    problem = "bad-request" if status == 400 else "internal"
    if isinstance(error, ServiceError):
        problem = error.problem
        if error.retry_after_s is not None:
            headers["Retry-After"] = str(error.retry_after_s)
            more["retry_after_s"] = error.retry_after_s
        if error.settings:
            more["settings"] = error.settings
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="paceline"'
    body = problem_body(status, problem, str(error), **more)
    return Response(body, status, headers, PROBLEM_MEDIA_TYPE)


def install_error_handlers(app: FastAPI) -> None:
    """Map what endpoints of ``app`` are expected to raise to problem+json."""
    for kind, handler in _HANDLERS.items():
        if kind is not Exception:  # see unforeseen.py
            app.add_exception_handler(kind, handler)


async def answer_to(request: Request, error: Exception) -> Response:
    """Return the same answers for what is no endpoint of the application."""
    handler = next(_HANDLERS[kind] for kind in type(error).__mro__ if kind in _HANDLERS)
    return await handler(request, error)


async def _on_paceline_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PacelineError)
    if error.http_status >= 500:
        _log.error("request failed", path=request.url.path, error=str(error))
    return problem_response(error)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    parts = [
        {"where": ".".join(str(part) for part in item["loc"]), "message": item["msg"]}
        for item in error.errors()
    ]
    detail = "; ".join(f"{part['where']}: {part['message']}" for part in parts)
    body = problem_body(422, "invalid-parameter", detail, errors=parts)
    return Response(body, 422, media_type=PROBLEM_MEDIA_TYPE)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    problem = _PROBLEM_OF_STATUS.get(status, "http")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    headers = dict(error.headers or {})
    if status == 405:
        headers["Allow"] = ", ".join(_methods_of(request))
    return Response(problem_body(status, problem, detail), status, headers, PROBLEM_MEDIA_TYPE)


def _methods_of(request: Request) -> list[str]:
    """Return what the path of a request takes; each route knows only of its own methods."""
    path = {name: request.scope[name] for name in ("type", "path", "root_path", "headers")}
    return [
        method
        for method in ("DELETE", "GET", "POST", "PUT")
        if any(
            route.matches({**path, "method": method})[0] is Match.FULL
            for route in request.app.routes
            if not isinstance(route, Mount)
        )
    ] or ["GET"]  # files


async def _on_database_error(request: Request, error: Exception) -> Response:
    _log.error("request failed: the database does not answer", path=request.url.path,
               error=str(error))  # fmt: skip
    told = StoreUnavailableError("the database does not answer at present; try again")
    return problem_response(told)


async def _on_client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _on_anything_else(request: Request, error: Exception) -> Response:
    _log.error("request failed", path=request.url.path, exc_info=error)
    detail = "the collector met an error of its own; its log has the details"
    return Response(problem_body(500, "internal", detail), 500, media_type=PROBLEM_MEDIA_TYPE)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    PacelineError: _on_paceline_error,
    RequestValidationError: _on_invalid_request,
    HTTPException: _on_http_exception,
    OperationalError: _on_database_error,
    InterfaceError: _on_database_error,
    PoolTimeoutError: _on_database_error,
    ConnectionError: _on_database_error,
    ClientDisconnect: _on_client_gone,
    Exception: _on_anything_else,
}
_PROBLEM_OF_STATUS = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "unsupported-media-type",
}
