"""A file of NATS credentials: a user's JWT, and the key that signs what a server asks.

nats-py can read one with ``nkeys``. Here it is read by ourselves: ``nkeys`` has to be built at its
installation and brings a second library of cryptography, and of a file without a JWT nats-py reads
the end for ever (docs/adr/0087).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.errors import Error

_BLOCK = re.compile(
    r"-{3,}\s*BEGIN (NATS USER JWT|USER NKEY SEED)\s*-{3,}\s+(\S+)\s+-{3,}\s*END", re.ASCII
)
_JWT, _SEED = "NATS USER JWT", "USER NKEY SEED"
_SEED_OF_USER = b"\x95\x00"
"""Five bits for a seed, eight for a user: what the base32 text begins with as ``SU``."""
_KEY_BYTES = 32
REMEDY = "nsc generate creds --account ACCOUNT --name USER writes one"


class CredentialsError(Error):
    """A file of credentials cannot be used; the text never holds what is in it."""


class Credentials:
    """Answers a server from the file, which is read anew for every connection.

    Args:
        path: the file; who makes new credentials writes them there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jwt = ""

    def read(self) -> tuple[str, Ed25519PrivateKey]:
        """Return the JWT and the key.

        Raises:
            CredentialsError: there is no file, or not both of them in it.
        """
        try:
            text = self.path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise CredentialsError(
                f"the NATS credentials {self.path} cannot be read: {why}"
            ) from None
        parts = dict(_BLOCK.findall(text))
        missing = [name for name in (_JWT, _SEED) if name not in parts]
        if missing:
            raise CredentialsError(
                f"the NATS credentials {self.path} have no {' and no '.join(missing)} in them: "
                f"{REMEDY}"
            )
        key = _key_of(parts[_SEED])
        if key is None:
            raise CredentialsError(
                f"the key in the NATS credentials {self.path} is not whole, or not that of a "
                f"user (it begins with SU): {REMEDY}"
            )
        return parts[_JWT], key

    def sign(self, nonce: str) -> bytes:
        """Return the signature of what a server sent, and keep the JWT that goes with it."""
        self._jwt, key = self.read()
        return base64.b64encode(key.sign(nonce.encode()))

    def jwt(self) -> bytes:
        """Return the JWT; ``sign`` was called just before."""
        return self._jwt.encode()

    @property
    def expired(self) -> str:
        """Say when the credentials expired; empty where they have not, or that is not known."""
        try:
            expiry_s = _claims_of(self.read()[0]).get("exp") or 0
            at = datetime.fromtimestamp(expiry_s, timezone.utc)
        except (CredentialsError, LookupError, ValueError, TypeError, OverflowError, OSError):
            return ""
        if not expiry_s or at > datetime.now(timezone.utc):
            return ""
        return f"they expired at {at:%Y-%m-%d %H:%M:%S} UTC"


def _key_of(seed: str) -> Ed25519PrivateKey | None:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        return None
    data, told = raw[:-2], int.from_bytes(raw[-2:], "little")
    if data[:2] != _SEED_OF_USER or len(data) != 2 + _KEY_BYTES:
        return None
    if binascii.crc_hqx(data, 0) != told:
        return None
    return Ed25519PrivateKey.from_private_bytes(data[2:])


def _claims_of(jwt: str) -> dict[str, Any]:
    claims = json.loads(base64.urlsafe_b64decode(jwt.split(".")[1] + "=="))
    return claims if isinstance(claims, dict) else {}
