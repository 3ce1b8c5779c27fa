"""Which tokens exist when the collector starts: the first start makes one and writes it down."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from paceline.errors import ConfigError
from paceline_service.access.guard import GIVEN_NAMES
from paceline_service.access.repository import TokenRepository
from paceline_service.access.tokens import Grant, new_token, token_hash
from paceline_service.settings import CollectorSettings

MIN_TOKEN_CHARS = 16
"""Shortest token of a variable that is accepted beyond loopback."""


async def ensure_token(tokens: TokenRepository, settings: CollectorSettings) -> Path | None:
    """Make sure that somebody can write to this collector; return the file to look into, if any.

    Raises:
        ConfigError: the collector would listen beyond loopback without any token.
    """
    given = settings.given_tokens
    for scope, token in given.items():
        if not settings.loopback and len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(
                f"{GIVEN_NAMES[scope]} has {len(token)} characters; beyond loopback at least "
                f"{MIN_TOKEN_CHARS} are needed: use `openssl rand -hex 32`"
            )
    if len(set(given.values())) < len(given):
        raise ConfigError(
            f"{' and '.join(GIVEN_NAMES[scope] for scope in given)} are not all different: "
            "each has a scope of its own"
        )
    if "admin" in given:
        return None
    path = settings.token_file
    if not settings.loopback and not await tokens.count() and not path.exists():
        raise ConfigError(
            f"listening on {settings.host} needs a token, and there is none: set PACELINE_TOKEN, "
            "or make one with `paceline tokens new admin --local`"
        )
    if path.exists():
        token = _read_private(path)
        stored = await tokens.find(token_hash(token))
        if stored is None:
            await tokens.add(token_hash(token), _FIRST, "first start")
        if stored is None or stored.revoked_wall_ns is None:
            return path
        path.unlink()  # revoked on purpose: it must not come back with a restart
    if await tokens.count():
        return None
    token = new_token()
    await tokens.add(token_hash(token), _FIRST, "first start")
    _write_private(path, token)
    return path


def _read_private(path: Path) -> str:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ConfigError(
            f"{path} can be read by others (mode {mode:o}); make a new one: delete it, or "
            f"chmod 600 {path} if nobody has seen it"
        )
    token = path.read_text(encoding="ascii").strip()
    if len(token) < MIN_TOKEN_CHARS:
        raise ConfigError(f"{path} holds no token; delete it and start again")
    return token


def _write_private(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")


_FIRST = Grant(name="first", scopes=frozenset({"admin"}))
