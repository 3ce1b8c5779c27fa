"""An operator, an account and users of NATS, as ``nsc`` makes them: keys, JWTs, a .creds file."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nats
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client

from paceline_service.bus.credentials import Credentials

OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
_SEED = 18 << 3
ANY = ">"


class Key:
    """A key pair in the notation of NATS, base32 with a prefix for its role and a checksum."""

    def __init__(self, role: int) -> None:
        self._role = role
        self._key = Ed25519PrivateKey.generate()
        self.public = _encoded(bytes([role]), self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        """The secret half."""
        prefix = bytes([_SEED | self._role >> 5, (self._role & 31) << 3])
        return _encoded(prefix, self._key.private_bytes_raw())

    def jwt(self, subject: str, name: str, nats: dict[str, Any], **claims: Any) -> str:
        """Return a JWT about ``subject``, signed with this key."""
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        told = {
            "jti": name, "iat": int(time.time()), "iss": self.public, "name": name,
            "sub": subject, "nats": {**nats, "version": 2}, **claims,
        }  # fmt: skip
        signed = f"{_url64(json.dumps(header).encode())}.{_url64(json.dumps(told).encode())}"
        return f"{signed}.{_url64(self._key.sign(signed.encode()))}"


class Authority:
    """An operator with one account, and what a server has to be told of them.

    Args:
        jetstream: whether the account may have streams.
    """

    def __init__(self, *, jetstream: bool = True) -> None:
        operator = Key(OPERATOR)
        self._account = Key(ACCOUNT)
        system = Key(ACCOUNT).public
        storage = {"mem_storage": 0, "disk_storage": 1 << 30, "streams": 1, "consumer": 128}
        limits = {
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1,
            "leaf": -1, "wildcards": True,
        }  # fmt: skip
        may = {system: limits, self._account.public: {**limits, **(storage if jetstream else {})}}
        accounts = {
            public: operator.jwt(public, "account", {"type": "account", "limits": limits})
            for public, limits in may.items()
        }
        preload = "".join(f"  {public}: {jwt}\n" for public, jwt in accounts.items())
        self.config = (
            f"operator: {operator.jwt(operator.public, 'op', {'type': 'operator'})}\n"
            f"system_account: {system}\nresolver: MEMORY\nresolver_preload: {{\n{preload}}}\n"
        )

    def user(
        self, path: Path, *, publish: Sequence[str] = (ANY,), subscribe: Sequence[str] = (ANY,),
        **claims: Any,
    ) -> Path:  # fmt: skip
        """Write the credentials of a new user who may do that."""
        key = Key(USER)
        may = {"pub": {"allow": list(publish)}, "sub": {"allow": list(subscribe)}}
        limits = {"subs": -1, "data": -1, "payload": -1}
        jwt = self._account.jwt(key.public, path.stem, {"type": "user", **may, **limits}, **claims)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "*** IMPORTANT ***\nNKEY Seed printed below can be used to sign and prove identity.\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
        )
        return path


async def connect(url: str, credentials: Path) -> Client:
    """Return a connection of the client of NATS itself with these credentials."""
    told = Credentials(credentials)
    return await nats.connect(url, signature_cb=told.sign, user_jwt_cb=told.jwt)


def _encoded(prefix: bytes, key: bytes) -> str:
    data = prefix + key
    checked = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
