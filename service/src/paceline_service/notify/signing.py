"""Signatures of webhooks: who receives one checks where it comes from, and that it is not old.

``verify`` needs nothing but the standard library: copy it into a receiver.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable

TIMESTAMP, SIGNATURE, MESSAGE_ID = "Paceline-Timestamp", "Paceline-Signature", "Paceline-Message"
WINDOW_S = 300
"""A signature that is older is refused: what was overheard cannot be sent again later."""
_VERSION = "v1"


def sign(secret: str, timestamp_s: int, body: bytes) -> str:
    """Return the signature of a body that is sent at ``timestamp_s``."""
    signed = f"{timestamp_s}.".encode() + body
    return f"{_VERSION}={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def signature_header(secrets: Iterable[str], timestamp_s: int, body: bytes) -> str:
    """Return the header: one signature for each secret, so that a secret can be changed."""
    return ",".join(sign(secret, timestamp_s, body) for secret in secrets)


def verify(
    secret: str,
    timestamp: str,
    signature: str,
    body: bytes,
    *,
    window_s: float = WINDOW_S,
    now_s: float | None = None,
) -> bool:
    """Whether ``body`` was signed with ``secret``, and lately.

    Args:
        secret: what both sides know.
        timestamp: the header ``Paceline-Timestamp``.
        signature: the header ``Paceline-Signature``.
        body: the bytes as they came, before anything decodes them.
        window_s: how old, or how far ahead, it may be.
        now_s: the time; else that of the clock.
    """
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        return False
    now = time.time() if now_s is None else now_s
    if abs(now - int(timestamp)) > window_s:
        return False
    right = sign(secret, int(timestamp), body).encode()
    given = [one.strip().encode() for one in signature.split(",")[:8]]
    return any(hmac.compare_digest(right, one) for one in given)
