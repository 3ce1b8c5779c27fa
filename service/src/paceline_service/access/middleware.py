"""What every request passes and every answer carries: the Host check and security headers.

Plain ASGI: this runs on the hot route too.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline_service.errors import UntrustedHostError, problem_response

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", b"default-src 'self'; object-src 'none'; base-uri 'none'; "
     b"form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)  # fmt: skip
STAY_WITH_TLS = (b"strict-transport-security", b"max-age=31536000")


class HostCheckMiddleware:
    """Refuses a Host that is not one of ours: a page elsewhere may have rebound its name to us."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 421."""
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
            if host_name(host) not in self._names:
                error = UntrustedHostError(
                    f"Host {host[:128]!r} is none of {', '.join(sorted(self._names))}; name it in "
                    "PACELINE_SERVE_ALLOWED_HOSTS if it is this collector"
                )
                await problem_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class SecurityHeadersMiddleware:
    """Adds the headers that keep browsers from doing more with our answers than the page does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with headers added to its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        added = SECURITY_HEADERS
        if scope.get("scheme") == "https":
            added = (*added, STAY_WITH_TLS)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def host_name(host: str) -> str:
    """Return the Host header without its port, in lower case."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
