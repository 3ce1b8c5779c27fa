"""Cookies that only this collector can have made: signed, with an end."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import Any

Json = dict[str, Any]
MAX_COOKIE_CHARS = 4096


class Signer:
    """Signs what a browser keeps for us.

    Args:
        key: secret; who has it can sign in as anybody.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, purpose: str, content: Json, lifetime_s: float) -> str:
        """Return ``content`` as a cookie's value; ``purpose`` keeps kinds of cookies apart."""
        body = json.dumps({**content, "exp": time.time() + lifetime_s}, separators=(",", ":"))
        packed = _encode(body.encode())
        return f"{packed}.{_encode(self._mac(purpose, packed))}"

    def read(self, purpose: str, value: str) -> Json | None:
        """Return the content of a cookie; None: it is not ours, or has ended."""
        packed, _, mac = value.partition(".")
        if len(value) > MAX_COOKIE_CHARS or not value.isascii():
            return None
        if not hmac.compare_digest(_encode(self._mac(purpose, packed)), mac):
            return None
        try:
            content = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        except (ValueError, binascii.Error):
            return None
        return content if content["exp"] > time.time() else None

    def _mac(self, purpose: str, packed: str) -> bytes:
        return hmac.new(self._key, f"{purpose}.{packed}".encode(), hashlib.sha256).digest()


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
