"""The parts of access, connected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline_service.access.cardinality import Cardinality
from paceline_service.access.first_token import ensure_token
from paceline_service.access.guard import Guard
from paceline_service.access.known import KnownTokens
from paceline_service.access.middleware import LOOPBACK_NAMES
from paceline_service.access.oidc.people import OidcPeople
from paceline_service.access.rate import RateLimiter
from paceline_service.access.repository import TokenRepository
from paceline_service.access.started import audit_settings
from paceline_service.access.upkeep import Upkeep
from paceline_service.settings import CollectorSettings
from paceline_service.store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may do what, for one collector; made by ``build``."""

    settings: CollectorSettings
    database: Database
    tokens: TokenRepository
    guard: Guard
    upkeep: Upkeep
    people: OidcPeople | None

    @classmethod
    def build(cls, settings: CollectorSettings, database: Database) -> Access:
        """Connect the parts; nothing runs yet.

        Raises:
            ConfigError: settings do not go together.
        """
        tokens = TokenRepository(database)
        known = KnownTokens(tokens)
        people = OidcPeople(settings) if settings.oidc_issuer else None
        guard = Guard(
            known,
            RateLimiter(settings.rate_requests_per_s, settings.rate_bytes_per_s),
            given=settings.given_tokens,
            open_hosts=_open_hosts(settings),
            people=people,
            cardinality=Cardinality(
                most_per_day=settings.max_launches_per_day,
                most_live=settings.max_live_launches,
                live_window_s=settings.live_window_s,
            ),
        )
        upkeep = Upkeep(database, guard, audit_retention_days=settings.audit_retention_days)
        return cls(
            settings=settings,
            database=database,
            tokens=tokens,
            guard=guard,
            upkeep=upkeep,
            people=people,
        )

    async def start(self) -> Path | None:
        """Begin; return the file that holds the first token, if there is one.

        Raises:
            ConfigError: the collector would listen beyond loopback without any token.
        """
        token_file = await ensure_token(self.tokens, self.settings)
        await audit_settings(self.database, self.settings)
        await self.upkeep.start()
        return token_file

    async def stop(self) -> None:
        """End."""
        await self.upkeep.stop()


def _open_hosts(settings: CollectorSettings) -> frozenset[str]:
    """Return the names by which reads are open: none beyond loopback or behind an ingress."""
    if not settings.loopback or settings.public_url or settings.trusted_proxies:
        return frozenset()
    return frozenset({*LOOPBACK_NAMES, settings.host.lower()})
