"""The usable tokens in memory, as fresh as the database is asked.

All of them are kept, so that an unknown token costs a look into a dictionary and no query. What
this process changes holds at once; what another one changed (a command, another gateway) holds
after ``FRESH_S``.
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
STALE_S = 3600.0
"""Without its database a collector goes by what it knew for this long, then says 503."""
_FOUND_BY_CHARS = 32
_log = structlog.get_logger("paceline.access")


class KnownTokens:
    """Finds grants by the hash of their token. On the event loop."""

    def __init__(self, repository: TokenRepository) -> None:
        self._repository = repository
        self._grants: dict[str, tuple[str, Grant]] = {}
        self._changes = 0
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
        if time.monotonic() - self._asked_mono_s >= FRESH_S:
            await self._ask()
        # Found by half of the hash, compared by all of it in constant time.
        stored, grant = self._grants.get(sha256[:_FOUND_BY_CHARS], ("", None))
        if grant is None or not hmac.compare_digest(sha256, stored):
            return None
        now_wall_ns = time.time_ns()
        if grant.expires_wall_ns is not None and grant.expires_wall_ns <= now_wall_ns:
            return None
        self._used[grant.token_id] = now_wall_ns
        return grant

    async def write_used(self) -> None:
        """Store when tokens were used since the last call."""
        used, self._used = self._used, {}
        if used:
            await self._repository.note_used(used)

    async def _ask(self) -> None:
        async with self._asking:
            now_s = time.monotonic()
            if now_s - self._asked_mono_s < FRESH_S:
                return  # somebody else did, while this one waited
            changes = self._changes
            try:
                fingerprint = await self._repository.fingerprint()
                if fingerprint != self._fingerprint:
                    usable = await self._repository.usable()
                    self._grants = {k[:_FOUND_BY_CHARS]: (k, v) for k, v in usable.items()}
                    self._fingerprint = fingerprint
            except (SQLAlchemyError, OSError) as error:
                if now_s - self._true_mono_s > STALE_S:
                    raise StoreUnavailableError(
                        "the database does not say which tokens are known; send it again"
                    ) from error
                _log.warning("tokens cannot be read; going by those known", error=str(error)[:200])
                self._asked_mono_s = now_s
                return
            self._true_mono_s = now_s
            if changes == self._changes:  # else what was read may be from before the change
                self._asked_mono_s = now_s
