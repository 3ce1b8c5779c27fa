"""``/auth``: signing in with the authorization code flow and PKCE, and out again.

What a login has to remember travels in a signed cookie of the browser that began it, so that any
gateway can end it and another browser cannot.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import structlog
from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from paceline_service.access.oidc.claims import check_login, checked_claims, key_id_of
from paceline_service.access.oidc.people import LOGIN, SESSION, OidcPeople
from paceline_service.access.schemas import SessionView
from paceline_service.errors import (
    AuthenticationError,
    PermissionDeniedError,
    ProviderUnavailableError,
)

LOGIN_S = 600.0
_NO_STORE = {"Cache-Control": "no-store"}
_TEXT = Annotated[str, Query(max_length=4096)]
_log = structlog.get_logger("paceline.oidc")


def auth_router(people: OidcPeople | None) -> APIRouter:
    """Return the routes; without ``people`` there is only the one that says so."""
    router = APIRouter(prefix="/auth", tags=["access"], include_in_schema=False)

    @router.get("/session", response_model=SessionView)
    async def session(request: Request) -> Response:
        """Tell whether people can sign in here, and who is."""
        content = people.session_content(request) if people is not None else None
        shown = {
            "sign_in": people is not None,
            "name": content["name"] if content else None,
            "scopes": content["scopes"] if content else [],
        }
        return JSONResponse(shown, headers=_NO_STORE)

    if people is not None:
        _add_login(router, people)
    return router


def _add_login(router: APIRouter, people: OidcPeople) -> None:
    settings, provider = people.settings, people.provider
    redirect_uri = f"{people.public_url}/auth/callback"

    def set_cookie(answer: Response, name: str, value: str, lifetime_s: float) -> None:
        answer.set_cookie(
            name, value, max_age=int(lifetime_s), path="/", secure=people.secure, httponly=True,
            samesite="lax",
        )  # fmt: skip

    @router.get("/login")
    async def login(to: Annotated[str, Query(max_length=512)] = "") -> Response:
        """Send the browser to the provider."""
        document = await provider.document()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": settings.oidc_client_id,
            "redirect_uri": redirect_uri,
            "scope": settings.oidc_scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        where = document["authorization_endpoint"]
        where += ("&" if urlsplit(where).query else "?") + urlencode(asked)
        answer = RedirectResponse(where, 303, headers=_NO_STORE)
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "to": _within_page(to)}
        cookie = people.signer.sign(LOGIN, kept, LOGIN_S)
        set_cookie(answer, people.login_cookie_name, cookie, LOGIN_S)
        return answer

    @router.get("/callback")
    async def callback(
        request: Request, state: _TEXT = "", code: _TEXT = "", error: _TEXT = "", iss: _TEXT = ""
    ) -> Response:
        """Take the browser back from the provider, and begin its session."""
        began = people.signer.read(LOGIN, request.cookies.get(people.login_cookie_name, ""))
        if began is None or not hmac.compare_digest(began["state"].encode(), state.encode()):
            raise AuthenticationError(
                "this login was not begun in this browser, or more than ten minutes ago: sign in "
                "again"
            )
        if not people.remember(state, LOGIN_S):
            raise AuthenticationError("this login was used before: sign in again")
        if error or not code or (iss and iss != provider.issuer):
            said = error[:80] or "no code" if not iss else error[:80] or "another issuer answers"
            raise AuthenticationError(f"the provider let nobody in: {said}")
        secret = settings.oidc_client_secret
        token = await provider.exchange(
            code, began["verifier"], redirect_uri, settings.oidc_client_id,
            secret.get_secret_value() if secret is not None else None,
        )  # fmt: skip
        keys = await provider.keys(key_id_of(token))
        claims = checked_claims(
            token, keys, issuer=provider.issuer, audience=settings.oidc_client_id
        )
        check_login(claims, nonce=began["nonce"], client_id=settings.oidc_client_id)
        person = people.person(claims)
        if not person.scopes:
            raise PermissionDeniedError(
                f"{person.name} has none of the roles that may read or administer here; ask who "
                "runs this collector"
            )
        _log.info("signed in", who=person.name, scopes=sorted(person.scopes))
        answer = RedirectResponse(f"{people.public_url}/{began['to']}", 303, headers=_NO_STORE)
        content = {
            "sid": secrets.token_urlsafe(16), "name": person.name, "scopes": sorted(person.scopes),
            "jobs": person.job_prefix,
        }  # fmt: skip
        session = people.signer.sign(SESSION, content, settings.session_s)
        set_cookie(answer, people.cookie_name, session, settings.session_s)
        set_cookie(answer, people.login_cookie_name, "", 0)
        return answer

    @router.post("/logout")
    async def logout(request: Request) -> Response:
        """End the session; tell where the one at the provider ends."""
        content = people.session_content(request)
        where = None
        if content is not None:
            people.check_origin(request)
            people.remember(content["sid"], settings.session_s)
            end = None
            with contextlib.suppress(ProviderUnavailableError):  # the session here ends in any case
                end = (await provider.document()).get("end_session_endpoint")
            if isinstance(end, str):
                back = {
                    "client_id": settings.oidc_client_id,
                    "post_logout_redirect_uri": f"{people.public_url}/",
                }
                where = end + ("&" if urlsplit(end).query else "?") + urlencode(back)
        answer = JSONResponse({"end_session": where}, headers=_NO_STORE)
        set_cookie(answer, people.cookie_name, "", 0)
        return answer


def _within_page(to: str) -> str:
    """Return a place within the page (``#/...``); anything else would be an open redirect."""
    return to if to.startswith("#/") and to.isascii() and to.isprintable() else ""
