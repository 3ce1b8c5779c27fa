"""Which token a client shows."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit


def find_token(url: str) -> str | None:
    """Return PACELINE_TOKEN, else for a loopback URL the token file of the state directory."""
    if token := os.environ.get("PACELINE_TOKEN"):
        return token
    if not _is_loopback(urlsplit(url).hostname or ""):
        return None
    state = os.environ.get("PACELINE_STATE_DIR")
    directory = Path(state) if state else Path.home() / ".local" / "share" / "paceline"
    try:
        return (directory / "token").read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
