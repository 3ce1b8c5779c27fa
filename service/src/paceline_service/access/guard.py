"""Decides for each request what its bearer may do."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict

from starlette.requests import HTTPConnection

from paceline_service.access.repository import TokenRepository
from paceline_service.access.tokens import ANYONE_READS, Grant, Scope, token_hash
from paceline_service.errors import AuthenticationError, PermissionDeniedError

CACHE_SECONDS = 10.0
"""A token taken from the database is refused after this long at the latest."""
CACHE_ENTRIES = 4096
MAX_TOKEN_CHARS = 512


class Guard:
    """Turns the Authorization header into a grant; answers are cached for a short time."""

    def __init__(
        self, tokens: TokenRepository, *, admin_token: str | None, open_reads: bool
    ) -> None:
        self._tokens = tokens
        self._admin_hash = token_hash(admin_token) if admin_token else ""
        self._open_reads = open_reads
        self._cache: OrderedDict[str, tuple[float, Grant | None]] = OrderedDict()

    async def require(self, connection: HTTPConnection, scope: Scope) -> Grant:
        """Return the grant of this request.

        Raises:
            AuthenticationError: no token, or an unknown one.
            PermissionDeniedError: the token lacks ``scope``.
        """
        header = connection.headers.get("authorization")
        if header is None:
            if scope == "read" and self._open_reads:
                return ANYONE_READS
            raise AuthenticationError(
                "this needs a token: send `Authorization: Bearer TOKEN` (PACELINE_TOKEN, or the "
                "file `token` in the collector's state directory)"
            )
        kind, _, token = header.partition(" ")
        token = token.strip()
        grant = None
        if kind.lower() == "bearer" and 0 < len(token) <= MAX_TOKEN_CHARS:
            grant = await self._find(token)
        if grant is None:
            raise AuthenticationError(
                "the token is not known to this collector; compare PACELINE_TOKEN with the file "
                "`token` in the collector's state directory"
            )
        if not grant.has(scope):
            raise PermissionDeniedError(
                f"token {grant.name!r} has scopes {','.join(sorted(grant.scopes))}; this needs "
                f"{scope}"
            )
        return grant

    async def require_job(self, connection: HTTPConnection, scope: Scope, job: str) -> Grant:
        """Return the grant of this request for ``job``.

        Raises:
            AuthenticationError: no token, or an unknown one.
            PermissionDeniedError: the token lacks ``scope``, or ``job`` is outside its prefix.
        """
        grant = await self.require(connection, scope)
        if not grant.covers(job):
            raise PermissionDeniedError(
                f"token {grant.name!r} is for jobs of {grant.job_prefix!r}; this is {job!r}"
            )
        return grant

    async def _find(self, token: str) -> Grant | None:
        sha256 = token_hash(token)
        if self._admin_hash and hmac.compare_digest(sha256, self._admin_hash):
            return _ADMIN
        now_s = time.monotonic()
        cached = self._cache.get(sha256)
        if cached is not None and now_s - cached[0] < CACHE_SECONDS:
            return cached[1]
        grant = await self._tokens.find(sha256)
        self._cache[sha256] = (now_s, grant)
        self._cache.move_to_end(sha256)
        while len(self._cache) > CACHE_ENTRIES:
            self._cache.popitem(last=False)
        return grant


_ADMIN = Grant(name="PACELINE_TOKEN", scopes=frozenset({"admin"}))
