"""How the API answers: JSON with an entity tag, pages, and what it accepts and offers.

``ApiRoute`` is the route class of the JSON API. It refuses a body that is no JSON or too long
before anything reads it, and a request that does not want what the route has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from paceline_service.errors import (
    BodyTooLargeError,
    NotAcceptableError,
    UnsupportedMediaTypeError,
)

MAX_JSON_BYTES = 64 * 1024
"""The longest JSON body; settings and notes need a hundredth of it."""
JSON_MEDIA_TYPE = "application/json"
_NO_QUALITY = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*$")
_ACCEPTS_GZIP = re.compile(r"(^|,)\s*(gzip|\*)\s*(;\s*q\s*=\s*(1|0\.\d*[1-9]\d*)[0.]*)?\s*(,|$)")


class ApiRoute(APIRoute):
    """A route whose request bodies are bounded JSON and whose answers are what is accepted."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, behind the checks."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            check_accept(request, _media_type(self))
            if self.body_field is not None:
                request._body = await _read_json_body(request)
            return await handle(request)

        return checked


def tag_of(body: bytes) -> str:
    """Return the tag of an answer; it is strong: made of its bytes."""
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def answer(
    request: Request,
    content: Any,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    tag: str = "",
) -> Response:
    """Return ``content`` (bytes: JSON already) with its tag; 304 without it where that is known."""
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    tag = tag or tag_of(body)
    told = {"ETag": tag, "Cache-Control": "private, no-cache", **(headers or {})}
    if status == 200 and _knows(request.headers.get("if-none-match", ""), tag):
        return Response(None, 304, told)
    return Response(body, status, told, JSON_MEDIA_TYPE)


def plain(content: Any, status: int = 200) -> Response:
    """Return JSON that no cache may keep: what a change has led to."""
    return Response(
        msgspec.json.encode(content), status, {"Cache-Control": "no-store"}, JSON_MEDIA_TYPE
    )


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header takes gzip."""
    return _ACCEPTS_GZIP.search(header.lower()) is not None


def check_accept(request: Request, offered: str) -> None:
    """Raise where the request does not want ``offered``.

    Raises:
        NotAcceptableError: none of the media ranges of ``Accept`` covers it.
    """
    wanted = ",".join(request.headers.getlist("accept")).lower()
    if not wanted.strip():
        return
    kind = offered.partition("/")[0]
    for part in wanted.split(","):
        name = part.partition(";")[0].strip()
        if name in ("*/*", f"{kind}/*", offered) and not _NO_QUALITY.search(part):
            return
    raise NotAcceptableError(
        f"Accept {wanted[:128]!r} covers nothing that there is; this route offers {offered}"
    )


def _knows(if_none_match: str, tag: str) -> bool:
    tags = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return tag in tags or "*" in tags


def _media_type(route: APIRoute) -> str:
    """Return what a route offers: the media type in its description, else JSON."""
    described = route.responses.get(200, {}).get("content", {})
    return next(iter(described), JSON_MEDIA_TYPE)


async def _read_json_body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_MEDIA_TYPE and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaTypeError(
            f"a body of type {kind[:128] or 'unknown'!r}; this route takes {JSON_MEDIA_TYPE}: say "
            "so in Content-Type"
        )
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_JSON_BYTES:
            raise BodyTooLargeError(
                f"a body of over {MAX_JSON_BYTES} bytes, the limit for JSON; send less at once"
            )
    return body
