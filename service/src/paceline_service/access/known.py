"""The usable tokens in memory, as fresh as the database is asked.

All of them are kept, so that guessing costs looks into a dictionary and few queries. What this
process changes holds at once; what another one changed (a command, another gateway) holds after
``FRESH_S``, and a new token when it is first used.
"""

from __future__ import annotations

import asyncio
import hmac
import time

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.access.repository import Fingerprint, TokenRepository
from paceline_service.access.tokens import Grant
from paceline_service.errors import StoreUnavailableError

FRESH_S = 2.0
"""A token that another process revoked is refused after this long at the latest."""
UNKNOWN_FRESH_S = 0.1
"""Before a token is called unknown the database is asked, but so often at most: somebody may just
have made it with a command, and guessing must cost nothing."""
STALE_S = 3600.0
"""Without its database a collector goes by what it knew for this long, then says 503."""
DATABASE_S = 5.0
"""A database that does not answer for this long is away."""
RETRY_S = 10.0
_FOUND_BY_CHARS = 32
_log = structlog.get_logger("paceline.access")


class KnownTokens:
    """Finds grants by the hash of their token. On the event loop."""

    def __init__(self, repository: TokenRepository) -> None:
        self._repository = repository
        self._grants: dict[str, tuple[str, Grant]] = {}
        self._changes = self._read_changes = 0
        self._fingerprint: Fingerprint | None = None
        self._asked_mono_s = float("-inf")
        self._true_mono_s = float("-inf")
        self._asking = asyncio.Lock()
        self._used: dict[int, int] = {}

    def refresh(self) -> None:
        """Ask the database again before the next answer: a token was made or revoked."""
        self._changes += 1
        self._asked_mono_s = float("-inf")

    async def find(self, sha256: str) -> Grant | None:
        """Return the grant of the token with that hash; None: unknown, revoked or expired.

        Raises:
            StoreUnavailableError: the database has been away for too long to know.
        """
        await self._freshen(FRESH_S)
        grant = self._grant(sha256)
        if grant is None:
            await self._freshen(UNKNOWN_FRESH_S)
            grant = self._grant(sha256)
        if grant is None:
            return None
        now_wall_ns = time.time_ns()
        if grant.expires_wall_ns is not None and grant.expires_wall_ns <= now_wall_ns:
            return None
        self._used[grant.token_id] = now_wall_ns
        return grant

    def _grant(self, sha256: str) -> Grant | None:
        # Found by half of the hash, compared by all of it in constant time.
        stored, grant = self._grants.get(sha256[:_FOUND_BY_CHARS], ("", None))
        return grant if hmac.compare_digest(sha256, stored) else None

    async def _freshen(self, fresh_s: float) -> None:
        if time.monotonic() - self._asked_mono_s >= fresh_s and not self._others_ask:
            await self._ask(fresh_s)

    @property
    def _others_ask(self) -> bool:
        """Whether an answer is under way that this request need not wait for."""
        known = self._true_mono_s > float("-inf")
        return known and self._asking.locked() and self._changes == self._read_changes

    async def write_used(self) -> None:
        """Store when tokens were used since the last call."""
        used, self._used = self._used, {}
        if used:
            await self._repository.note_used(used)

    async def _ask(self, fresh_s: float) -> None:
        async with self._asking:
            now_s = time.monotonic()
            if now_s - self._asked_mono_s < fresh_s:
                return  # somebody else did, while this one waited
            changes = self._changes
            try:
                await asyncio.wait_for(self._read(), DATABASE_S)
            except (SQLAlchemyError, OSError, asyncio.TimeoutError) as error:
                if now_s - self._true_mono_s > STALE_S:
                    raise StoreUnavailableError(
                        "the database does not say which tokens are known; send it again"
                    ) from error
                said = str(error)[:200] or type(error).__name__
                _log.warning("tokens cannot be read; going by those known", error=said)
                self._asked_mono_s = time.monotonic() + RETRY_S - FRESH_S
                return
            self._read_changes = changes
            self._true_mono_s = now_s
            if changes == self._changes:  # else what was read may be from before the change
                self._asked_mono_s = now_s

    async def _read(self) -> None:
        fingerprint = await self._repository.fingerprint()
        if fingerprint != self._fingerprint:
            usable = await self._repository.usable()
            self._grants = {key[:_FOUND_BY_CHARS]: (key, one) for key, one in usable.items()}
            self._fingerprint = fingerprint
