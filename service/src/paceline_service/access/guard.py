"""Decides for each request what its bearer may do, and whether it comes too often."""

from __future__ import annotations

import hmac
import math
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import HTTPConnection

from paceline_service.access.cardinality import Cardinality
from paceline_service.access.known import KnownTokens
from paceline_service.access.middleware import host_name
from paceline_service.access.rate import RateLimiter
from paceline_service.access.tokens import ANYONE_READS, Grant, Scope, token_hash
from paceline_service.errors import (
    AuthenticationError,
    PermissionDeniedError,
    RateLimitedError,
    ServiceError,
)

MAX_TOKEN_CHARS = 512
MAX_JWT_CHARS = 8192
GIVEN_NAMES: dict[Scope, str] = {
    "admin": "PACELINE_TOKEN",
    "ingest": "PACELINE_SERVE_INGEST_TOKEN",
    "read": "PACELINE_SERVE_READ_TOKEN",
}
"""The variables that tokens may be given in; they name their bearer in messages and limits."""
_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class People(Protocol):
    """What knows people beside tokens: OpenID Connect."""

    async def bearer(self, token: str) -> Grant:
        """Return the grant of a JWT; raises AuthenticationError."""
        ...

    def session(self, connection: HTTPConnection) -> Grant | None:
        """Return the grant of the session cookie, if there is a good one."""
        ...

    def check_origin(self, connection: HTTPConnection) -> None:
        """Raise PermissionDeniedError unless our own page made this request."""
        ...


class Guard:
    """Turns a request into a grant: by its Authorization header, else by its session cookie.

    Args:
        tokens: those that are known.
        limiter: of what a bearer may ask for.
        given: tokens from the settings, accepted beside them, by the scope that each has.
        open_hosts: names by which anybody on this machine may read without a token; none: nobody.
        people: knows people, where they can sign in.
        cardinality: of what a bearer may begin; for who takes frames.
    """

    def __init__(
        self,
        tokens: KnownTokens,
        limiter: RateLimiter,
        *,
        given: Mapping[Scope, str],
        open_hosts: frozenset[str],
        people: People | None = None,
        cardinality: Cardinality | None = None,
    ) -> None:
        self.cardinality = cardinality
        self.tokens = tokens
        self.refused: Counter[str] = Counter()
        """Requests that were answered 401, 403 or 429 here, by reason; for /metrics."""
        self.refused_from: dict[str, str] = {}
        """The address of the last one, by reason; for the log."""
        self._limiter = limiter
        self._given = [
            (token_hash(token), Grant(name=GIVEN_NAMES[scope], scopes=frozenset({scope})))
            for scope, token in given.items()
        ]
        self._open_hosts = open_hosts
        self._people = people

    async def require(self, connection: HTTPConnection, scope: Scope) -> Grant:
        """Return the grant of this request.

        Raises:
            AuthenticationError: no token, or an unknown one.
            PermissionDeniedError: the token lacks ``scope``.
            RateLimitedError: its bearer asks for too much.
        """
        try:
            grant = await self._grant(connection, scope)
            if not grant.has(scope):
                raise PermissionDeniedError(
                    f"token {grant.name!r} has scopes {','.join(sorted(grant.scopes))}; this "
                    f"needs {scope}"
                )
        except AuthenticationError:
            self._count("unauthenticated", connection)
            raise
        except PermissionDeniedError:
            self._count("forbidden", connection)
            raise
        exhausted, limit_per_s, wait_s = self._limiter.admit(
            grant.bearer, grant.requests_per_s, grant.bytes_per_s
        )
        if exhausted:
            self._count(f"rate_{exhausted}", connection)
            raise RateLimitedError(
                f"token {grant.name!r} sends more than {limit_per_s:g} {exhausted} per second: "
                "wait, send less often, or have its limit raised (docs/security.md)",
                retry_after_s=max(math.ceil(wait_s), 1),
            )
        return grant

    async def require_job(self, connection: HTTPConnection, scope: Scope, job: str) -> Grant:
        """Return the grant of this request for ``job``.

        Raises:
            AuthenticationError: no token, or an unknown one.
            PermissionDeniedError: the token lacks ``scope``, or ``job`` is outside its prefix.
            RateLimitedError: its bearer asks for too much.
        """
        grant = await self.require(connection, scope)
        if not grant.covers(job):
            raise self.denied(connection, grant, f"this is {job!r}")
        return grant

    def denied(
        self, connection: HTTPConnection, grant: Grant, beyond: str
    ) -> PermissionDeniedError:
        """Count a request that is beyond the job prefix of ``grant``; return what to raise."""
        self._count("forbidden", connection)
        return PermissionDeniedError(
            f"token {grant.name!r} is for jobs of {grant.job_prefix!r}; {beyond}"
        )

    async def may(self, connection: HTTPConnection, scope: Scope) -> bool:
        """Whether this request has ``scope``: for what is open, but tells more to some."""
        try:
            return (await self._grant(connection, scope)).has(scope)
        except ServiceError:
            return False

    def spend(self, grant: Grant, size_bytes: int) -> None:
        """Count a body that was read against its bearer."""
        self._limiter.spend(grant.bearer, size_bytes)

    async def _grant(self, connection: HTTPConnection, scope: Scope) -> Grant:
        header = connection.headers.get("authorization")
        if header is None:
            if self._people is not None:
                person = self._people.session(connection)
                if person is not None:
                    if connection.scope.get("method") not in _SAFE_METHODS:
                        self._people.check_origin(connection)
                    return person
            if scope == "read" and self._is_local(connection):
                return ANYONE_READS
            raise AuthenticationError(
                "this needs a token: send `Authorization: Bearer TOKEN` (PACELINE_TOKEN, or the "
                "file `token` in the collector's state directory)"
            )
        kind, _, token = header.partition(" ")
        token = token.strip()
        grant = None
        if kind.lower() == "bearer" and token:
            if len(token) <= MAX_TOKEN_CHARS:
                grant = await self._find(token)
            if grant is None and self._people is not None and token.count(".") == 2:
                if len(token) > MAX_JWT_CHARS:
                    raise AuthenticationError(
                        f"the token has {len(token)} characters; the limit is {MAX_JWT_CHARS}"
                    )
                grant = await self._people.bearer(token)
        if grant is None:
            raise AuthenticationError(
                "the token is not known to this collector, was revoked or has expired; compare "
                "PACELINE_TOKEN with the file `token` in the collector's state directory, or "
                "look it up with `paceline tokens list`"
            )
        return grant

    def _count(self, reason: str, connection: HTTPConnection) -> None:
        self.refused[reason] += 1
        self.refused_from[reason] = connection.client.host if connection.client else ""

    def _is_local(self, connection: HTTPConnection) -> bool:
        """Whether somebody on this machine asks us directly, and not through a proxy on it."""
        headers = connection.headers
        return host_name(headers.get("host", "")) in self._open_hosts and not any(
            name in headers for name in _OF_PROXIES
        )

    async def _find(self, token: str) -> Grant | None:
        sha256 = token_hash(token)
        for stored, grant in self._given:
            if hmac.compare_digest(sha256, stored):
                return grant
        return await self.tokens.find(sha256)
