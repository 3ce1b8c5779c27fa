"""The provider that people sign in with: its discovery document, its keys, its token endpoint.

Documents are cached. Keys are fetched again when they are old, and when a token names one that is
not known (the provider has changed them). After a fetch that did not bring it there is a pause of
``KEYS_AT_LEAST_S``: who sends tokens with invented key ids makes no traffic.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import structlog

from paceline_service.errors import AuthenticationError, ProviderUnavailableError

DOCUMENT_KEPT_S = 3600.0
KEYS_KEPT_S = 600.0
KEYS_AT_LEAST_S = 10.0
KEYS_STALE_S = 24 * 3600.0
"""Keys are used for this long while the provider does not answer."""
TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 1 << 20
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_log = structlog.get_logger("paceline.oidc")
Json = dict[str, Any]


class Provider:
    """One provider. On the event loop; what waits for the network does so in threads."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._document: Json = {}
        self._document_mono_s = float("-inf")
        self._keys: Json = {}
        self._keys_mono_s = float("-inf")
        self._failed_mono_s = float("-inf")
        self._fetching = asyncio.Lock()

    async def document(self) -> Json:
        """Return the discovery document.

        Raises:
            ProviderUnavailableError: it cannot be had, or is not one of this issuer.
        """
        async with self._fetching:
            return await self._fresh_document()

    async def keys(self, key_id: str | None) -> Json:
        """Return the provider's keys as a JWK set, fetched again if ``key_id`` is not in it.

        Raises:
            ProviderUnavailableError: they cannot be had.
        """
        async with self._fetching:
            now_s = time.monotonic()
            wanted = now_s - self._keys_mono_s > KEYS_KEPT_S or not _holds(self._keys, key_id)
            if wanted and now_s - self._failed_mono_s > KEYS_AT_LEAST_S:
                try:
                    found = await _fetch((await self._fresh_document())["jwks_uri"])
                    if not isinstance(found.get("keys"), list):
                        raise ProviderUnavailableError(f"{self.issuer} gives no list of keys")
                    self._keys, self._keys_mono_s = found, now_s
                except ProviderUnavailableError as error:
                    _log.warning("keys cannot be fetched", error=str(error))
                if not _holds(self._keys, key_id):
                    self._failed_mono_s = now_s
            if now_s - self._keys_mono_s > KEYS_STALE_S:
                raise ProviderUnavailableError(
                    f"the keys of {self.issuer} cannot be had: the log has the reason"
                )
            return self._keys

    async def exchange(
        self, code: str, verifier: str, redirect_uri: str, client_id: str, secret: str | None
    ) -> str:
        """Return the ID token that the provider gives for ``code``.

        Raises:
            AuthenticationError: it gives none.
            ProviderUnavailableError: it does not answer.
        """
        document = await self.document()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": client_id,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if secret:
            methods = document.get("token_endpoint_auth_methods_supported")
            if methods is None or "client_secret_basic" in methods:
                pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
                headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
            else:
                form["client_secret"] = secret
        answer = await _fetch(document["token_endpoint"], urlencode(form).encode(), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise AuthenticationError(
                "the provider gave no ID token: the code was used before, or the scope `openid` "
                "is missing from PACELINE_SERVE_OIDC_SCOPES"
            )
        return token

    async def _fresh_document(self) -> Json:
        now_s = time.monotonic()
        if now_s - self._document_mono_s > DOCUMENT_KEPT_S:
            found = await _fetch(self.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if found.get("issuer") != self.issuer:
                raise ProviderUnavailableError(
                    f"the discovery document names the issuer {str(found.get('issuer'))[:200]!r}; "
                    f"PACELINE_SERVE_OIDC_ISSUER is {self.issuer!r}: they have to be equal"
                )
            for name in _NEEDED:
                if not is_safe_url(found.get(name)):
                    raise ProviderUnavailableError(f"{self.issuer} names no https {name}")
            self._document, self._document_mono_s = found, now_s
        return self._document


def is_safe_url(url: object) -> bool:
    """Whether ``url`` is https, or http on this machine."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        )
    except ValueError:
        return False


async def _fetch(url: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> Json:
    return await asyncio.to_thread(_fetch_now, url, body, headers)


def _fetch_now(url: str, body: bytes | None, headers: Mapping[str, str]) -> Json:
    given = {"Accept": "application/json", **headers}
    asked = urllib.request.Request(url, body, given)
    where = url.partition("?")[0]
    try:
        with _OPENER.open(asked, timeout=TIMEOUT_S) as answer:
            raw = answer.read(MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            if body is not None and 400 <= error.code < 500:
                raise AuthenticationError(
                    f"the provider does not take the code: {_reason(error)}; sign in again"
                ) from error
        raise ProviderUnavailableError(f"{where} answers {error.code}") from error
    except (OSError, ValueError) as error:
        raise ProviderUnavailableError(f"{where} does not answer: {error}") from error
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProviderUnavailableError(f"{where} does not answer with JSON") from error
    if not isinstance(content, dict):
        raise ProviderUnavailableError(f"{where} does not answer with a JSON object")
    return content


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read(4096)).get("error")
    except (OSError, ValueError, AttributeError, RecursionError):
        said = None
    return str(said)[:80] if said else f"HTTP {error.code}"


def _holds(keys: Json, key_id: str | None) -> bool:
    listed = keys.get("keys", ())
    if key_id is None:
        return bool(listed)
    return any(isinstance(key, dict) and key.get("kid") == key_id for key in listed)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A provider's endpoints answer themselves; elsewhere nobody gets our code or secret."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


_OPENER = urllib.request.build_opener(_NoRedirect)
