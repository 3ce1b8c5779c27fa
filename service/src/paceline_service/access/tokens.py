"""Tokens: 256 random bits, stored as their SHA-256, with scopes and a job prefix.

A fast hash is right here: there is no password to guess, only 2**256 random values.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

from paceline.errors import ConfigError

Scope = Literal["ingest", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("ingest", "read", "admin")
DELIMITERS = "._-"
"""Characters of job names at which a prefix may end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the bearer of one token may do."""

    name: str
    scopes: frozenset[str]
    job_prefix: str = ""

    def has(self, scope: Scope) -> bool:
        """Whether ``scope`` is granted; admin holds every scope."""
        return scope in self.scopes or "admin" in self.scopes

    def covers(self, job: str) -> bool:
        """Whether ``job`` is within the prefix, which ends at a delimiter: a-b is in a, ab not."""
        prefix = self.job_prefix
        if not prefix or job == prefix:
            return True
        if not job.startswith(prefix):
            return False
        return prefix[-1] in DELIMITERS or job[len(prefix)] in DELIMITERS


ANYONE_READS = Grant(name="loopback", scopes=frozenset({"read"}))
"""Reads on a loopback address need no token."""


def new_token() -> str:
    """Return a fresh token."""
    return "plt_" + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return what is stored of ``token``."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def parse_scopes(text: str) -> frozenset[str]:
    """Return the scopes in ``text``, separated by commas.

    Raises:
        ConfigError: one is unknown.
    """
    scopes = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = scopes - set(SCOPES)
    if unknown or not scopes:
        raise ConfigError(f"scopes {text!r} are not of {', '.join(SCOPES)}")
    return scopes
