"""People: who they are by their session cookie or by a JWT of their provider."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from paceline.errors import ConfigError
from paceline_service.access.oidc.claims import (
    checked_claims,
    job_prefix_of,
    key_id_of,
    name_of,
    require_joserfc,
    roles_of,
    scopes_of,
)
from paceline_service.access.oidc.cookies import Json, Signer
from paceline_service.access.oidc.provider import Provider, is_safe_url
from paceline_service.access.settings import AccessSettings
from paceline_service.access.tokens import Grant
from paceline_service.errors import AuthenticationError, PermissionDeniedError

MIN_KEY_CHARS = 32
MAX_REMEMBERED = 10_000
SESSION, LOGIN = "session", "login"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who was let in."""

    name: str
    scopes: frozenset[str]
    job_prefix: str = ""


class OidcPeople:
    """Knows people by OpenID Connect; see ``guard.People``.

    Raises:
        ConfigError: the settings do not go together.
    """

    def __init__(self, settings: AccessSettings) -> None:
        require_joserfc()
        self.settings = settings
        self.provider = Provider(settings.oidc_issuer)
        self.public_url = settings.public_url.rstrip("/")
        _check(settings)
        key = settings.session_key.get_secret_value() if settings.session_key else ""
        self.signer = Signer(
            hashlib.sha256(key.encode()).digest() if key else secrets.token_bytes(32)
        )
        self.secure = self.public_url.startswith("https:")
        prefix = "__Host-" if self.secure else ""
        self.cookie_name = f"{prefix}paceline-session"
        self.login_cookie_name = f"{prefix}paceline-login"
        self._gone: OrderedDict[str, float] = OrderedDict()

    async def bearer(self, token: str) -> Grant:
        """Return the grant of a JWT.

        Raises:
            AuthenticationError: it is not accepted.
            ProviderUnavailableError: the provider's keys cannot be had.
        """
        audience = self.settings.oidc_audience
        if not audience:
            raise AuthenticationError(
                "signed tokens of the provider are not accepted here: set "
                "PACELINE_SERVE_OIDC_AUDIENCE to what their `aud` says"
            )
        keys = await self.provider.keys(key_id_of(token))
        claims = checked_claims(token, keys, issuer=self.provider.issuer, audience=audience)
        return _grant(self.person(claims), session=False)

    def person(self, claims: Json) -> Person:
        """Return who somebody with these claims is.

        Raises:
            PermissionDeniedError: the claims do not tell whose jobs are meant, and must.
        """
        roles = roles_of(claims, self.settings.oidc_roles_claim)
        scopes = scopes_of(roles, self.settings.oidc_read_roles, self.settings.oidc_admin_roles)
        path = self.settings.oidc_jobs_claim
        prefix = job_prefix_of(claims, path) if path and scopes else ""
        return Person(name=name_of(claims), scopes=scopes, job_prefix=prefix)

    def session(self, connection: HTTPConnection) -> Grant | None:
        """Return the grant of the session cookie, if there is a good one."""
        content = self.session_content(connection)
        prefix = content.get("jobs") if content is not None else None
        if content is None or (prefix is None and self.settings.oidc_jobs_claim):
            return None  # it began where people had no prefix
        person = Person(
            name=content["name"], scopes=frozenset(content["scopes"]), job_prefix=prefix or ""
        )
        return _grant(person, session=True)

    def session_content(self, connection: HTTPConnection) -> Json | None:
        """Return what the session cookie says, if it is a good one."""
        value = connection.cookies.get(self.cookie_name)
        content = self.signer.read(SESSION, value) if value else None
        return content if content is not None and content["sid"] not in self._gone else None

    def check_origin(self, connection: HTTPConnection) -> None:
        """Make sure that our own page made a request that changes something.

        Raises:
            PermissionDeniedError: another site did, or nobody says who.
        """
        site = connection.headers.get("sec-fetch-site")
        origin = connection.headers.get("origin")
        own = urlsplit(self.public_url)
        if origin is None:
            good = site == "same-origin"
        else:
            good = origin.lower() == f"{own.scheme}://{own.netloc}".lower() and site in (
                None,
                "same-origin",
            )
        if not good:
            raise PermissionDeniedError(
                f"Origin {str(origin)[:128]!r} is not {own.scheme}://{own.netloc}: with a session "
                "only the page itself changes something; programs use a token"
            )

    def remember(self, name: str, lifetime_s: float) -> bool:
        """Note a session that was ended, or a login that was used; False: it was before."""
        now_s = time.time()
        while self._gone:
            oldest, ends_s = next(iter(self._gone.items()))
            if ends_s > now_s and len(self._gone) < MAX_REMEMBERED:
                break
            del self._gone[oldest]
        if name in self._gone:
            return False
        self._gone[name] = now_s + lifetime_s
        return True


def _grant(person: Person, *, session: bool) -> Grant:
    if not person.scopes:
        raise PermissionDeniedError(
            f"{person.name} has none of the roles that may read or administer "
            "(PACELINE_SERVE_OIDC_READ_ROLES, PACELINE_SERVE_OIDC_ADMIN_ROLES)"
        )
    return Grant(
        name=person.name, scopes=person.scopes, job_prefix=person.job_prefix, session=session
    )


def _check(settings: AccessSettings) -> None:
    if not is_safe_url(settings.oidc_issuer):
        raise ConfigError(
            f"PACELINE_SERVE_OIDC_ISSUER {settings.oidc_issuer!r} is not https: keys and codes "
            "would go in the clear"
        )
    if not settings.oidc_client_id:
        raise ConfigError("PACELINE_SERVE_OIDC_CLIENT_ID is not set: register a client first")
    if not is_safe_url(settings.public_url):
        raise ConfigError(
            f"PACELINE_SERVE_PUBLIC_URL {settings.public_url!r} is not the https address of the "
            "page (http only on this machine): people come back there from signing in"
        )
    key = settings.session_key.get_secret_value() if settings.session_key else ""
    if key and len(key) < MIN_KEY_CHARS:
        raise ConfigError(
            f"PACELINE_SERVE_SESSION_KEY has {len(key)} characters; at least {MIN_KEY_CHARS} are "
            "needed: use `openssl rand -hex 32`"
        )
    if not settings.oidc_read_roles and not settings.oidc_admin_roles:
        raise ConfigError(
            "nobody could do anything: set PACELINE_SERVE_OIDC_READ_ROLES or "
            'PACELINE_SERVE_OIDC_ADMIN_ROLES (a JSON list; ["*"] lets everybody read)'
        )
