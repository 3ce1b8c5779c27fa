"""What a signed token says, once everything about it has been checked."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import ConfigError
from paceline_service.access.tokens import check_prefix
from paceline_service.errors import AuthenticationError, PermissionDeniedError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Signatures by keys that only the provider holds; never `none`, never a shared secret."""
LEEWAY_S = 60
"""How far clocks may differ."""
EVERY_JOB = "*"
Json = dict[str, Any]


def require_joserfc() -> None:
    """Make sure that tokens can be checked.

    Raises:
        ConfigError: the extra is not installed.
    """
    try:
        import joserfc  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "PACELINE_SERVE_OIDC_ISSUER is set, but the extra `oidc` is not installed: "
            "pip install 'paceline-service[oidc]'"
        ) from error


def key_id_of(token: str) -> str | None:
    """Return which key a token says that it is signed with; nothing is verified here.

    Raises:
        AuthenticationError: it is no token, or signed in a way that is not accepted.
    """
    try:
        head = token.partition(".")[0]
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        algorithm, key_id = header["alg"], header.get("kid")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AuthenticationError("this is no signed token") from error
    if algorithm not in ALGORITHMS:
        raise AuthenticationError(
            f"the token is signed with {str(algorithm)[:20]!r}; accepted are "
            f"{', '.join(ALGORITHMS)}"
        )
    return key_id if isinstance(key_id, str) else None


def checked_claims(token: str, keys: Json, *, issuer: str, audience: str) -> Json:
    """Return the claims of ``token``.

    Raises:
        AuthenticationError: the signature, the issuer, the audience or the time is wrong.
    """
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        decoded = jwt.decode(token, KeySet.import_key_set(keys), algorithms=list(ALGORITHMS))  # type: ignore[arg-type]
        registry = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        registry.validate(decoded.claims)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        said = str(error) or type(error).__name__
        raise AuthenticationError(f"the token is not accepted: {said[:200]}") from error
    if not isinstance(decoded.claims["sub"], str):
        raise AuthenticationError("the token is not accepted: sub is no text")
    return dict(decoded.claims)


def check_login(claims: Mapping[str, Any], *, nonce: str, client_id: str) -> None:
    """Check what only the ID token of a login has to say.

    Raises:
        AuthenticationError: it belongs to another login, or to another client.
    """
    said = claims.get("nonce")
    if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
        raise AuthenticationError("the ID token belongs to another login: sign in again")
    audiences = claims["aud"]
    party = claims.get("azp")
    if (party is not None or (isinstance(audiences, list) and len(audiences) > 1)) and (
        party != client_id
    ):
        raise AuthenticationError("the ID token was made for another client (azp)")


def roles_of(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """Return the roles at ``path``: a claim's name, or names within each other, by dots."""
    value = _at(claims, path)
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list):
        return frozenset(item for item in value if isinstance(item, str))
    return frozenset()


def job_prefix_of(claims: Mapping[str, Any], path: str) -> str:
    """Return the job prefix at ``path``; empty: all jobs, which nobody has by saying nothing.

    Raises:
        PermissionDeniedError: there is none, or several, or no job begins like that.
    """
    value = _at(claims, path)
    told = value if isinstance(value, list) else [value]
    prefix = told[0] if len(told) == 1 else None
    if not isinstance(prefix, str) or not prefix:
        raise PermissionDeniedError(
            f"{name_of(claims)} has no job prefix here: the claim {path!r} holds none, or several "
            "(PACELINE_SERVE_OIDC_JOBS_CLAIM)"
        )
    if prefix == EVERY_JOB:
        return ""
    try:
        return check_prefix(prefix)
    except ConfigError as error:
        raise PermissionDeniedError(f"{name_of(claims)}: {error}") from error


def _at(claims: Mapping[str, Any], path: str) -> Any:
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    return value


def scopes_of(
    roles: frozenset[str], read_roles: Sequence[str], admin_roles: Sequence[str]
) -> frozenset[str]:
    """Return what somebody with ``roles`` may do; ``*`` among roles stands for everybody."""
    scopes = set()
    if "*" in read_roles or roles & set(read_roles):
        scopes.add("read")
    if roles & set(admin_roles):
        scopes |= {"read", "admin"}
    return frozenset(scopes)


def name_of(claims: Mapping[str, Any]) -> str:
    """Return how a person is called in lists and in the audit log; the subject is always in it."""
    subject = _plain(claims["sub"], 100)
    for key in ("email", "preferred_username", "name"):
        label = claims.get(key)
        if isinstance(label, str) and label and label != claims["sub"]:
            return f"person {_plain(label, 60)} ({subject})"
    return f"person {subject}"


def _plain(text: str, limit: int) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:limit])
