"""Tokens: 256 random bits, stored as their SHA-256, with scopes and a job prefix.

A fast hash is right here: there is no password to guess, only 2**256 random values.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Literal

from paceline.errors import ConfigError

Scope = Literal["ingest", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("ingest", "read", "admin")
DELIMITERS = "._-"
"""Characters of job names at which a prefix may end."""
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the bearer of one token may do."""

    name: str
    scopes: frozenset[str]
    job_prefix: str = ""
    token_id: int = 0
    """Of the table of tokens; 0: it is not from there."""
    expires_wall_ns: int | None = None
    requests_per_s: float | None = None
    """Own limits of this token; None: what the settings say."""
    bytes_per_s: float | None = None
    session: bool = False
    """A person with a cookie: browsers send it by themselves, so writes check their origin."""

    @property
    def bearer(self) -> str:
        """Whose share of the collector is used: limits count by it."""
        return f"token {self.token_id}" if self.token_id else self.name

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

    def covers_prefix(self, prefix: str) -> bool:
        """Whether all jobs of ``prefix`` are within the own one."""
        return not self.job_prefix or (prefix != "" and self.covers(prefix))


ANYONE_READS = Grant(name="loopback", scopes=frozenset({"read"}))
"""Reads on a loopback address need no token."""


def new_token() -> str:
    """Return a fresh token."""
    return "plt_" + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return what is stored of ``token``."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if jobs can begin with it.

    Raises:
        ConfigError: no job name begins like that.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"job prefix {prefix[:140]!r} is not of at most 128 of A-Z a-z 0-9 . _ -: no job "
            "would be within it"
        )
    return prefix


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
