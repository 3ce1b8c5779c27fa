"""A browser without a screen, a collector where people sign in, and forged tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import http.cookies
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.integration.collector.kit import CollectorProcess
from tests.integration.collector.oidc_provider import CLIENT, SECRET, OidcProvider

API = "paceline-api"
Json = dict[str, Any]


def collector_for(directory: Path, provider: OidcProvider, **environment: str) -> CollectorProcess:
    """A collector beyond loopback, where reads need somebody too."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    public = environment.pop("PUBLIC_URL", f"http://127.0.0.1:{port}")
    settings = {
        "HOST": "0.0.0.0", "PORT": str(port), "PUBLIC_URL": public,
        "OIDC_ISSUER": provider.issuer, "OIDC_CLIENT_ID": CLIENT, "OIDC_CLIENT_SECRET": SECRET,
        "OIDC_AUDIENCE": API, "OIDC_READ_ROLES": '["operators"]', "OIDC_ADMIN_ROLES": '["chiefs"]',
        "LOG_LEVEL": "debug", **environment,
    }  # fmt: skip
    named = {f"PACELINE_SERVE_{name}": value for name, value in settings.items()}
    process = CollectorProcess(directory, **named)
    process.start("--port", str(port))
    process.url = f"http://127.0.0.1:{port}"
    return process


class Browser:
    """Keeps cookies, and follows nothing by itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies: dict[str, str] = {}
        self.set_cookies: list[str] = []

    def ask(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
        """Return status, content and Location."""
        parts = urlsplit(url if url.startswith("http") else self.url + url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        data = None if body is None else json.dumps(body)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, data, {"Content-Type": "application/json", **sent})
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        for line in answer.headers.get_all("Set-Cookie", []):
            self.set_cookies.append(line)
            for name, morsel in http.cookies.SimpleCookie(line).items():
                if morsel.value:
                    self.cookies[name] = morsel.value
                else:
                    self.cookies.pop(name, None)
        content = json.loads(raw) if "json" in (answer.headers["Content-Type"] or "") else raw
        return answer.status, content, answer.headers.get("Location", "")

    def to_provider(self, to: str = "") -> str:
        """Begin to sign in; return where the provider sends the browser back to."""
        status, content, location = self.ask("GET", f"/auth/login?to={quote(to)}")
        assert status == 303, content
        anybody = Browser(self.url)  # the provider has cookies of its own
        status, _, back = anybody.ask("GET", location)
        assert status == 302
        return back

    def sign_in(self, to: str = "") -> tuple[int, Any, str]:
        return self.ask("GET", self.to_provider(to))


def jwt_status(collector: CollectorProcess, token: str, path: str = "/v1/jobs") -> tuple[int, str]:
    status, content, _ = Browser(collector.url).ask("GET", path, Authorization=f"Bearer {token}")
    return status, str(content.get("detail", "")) if isinstance(content, dict) else ""


def nonsense(provider: OidcProvider, claims: Json) -> str:
    """A token that nobody signed."""
    parts = [{"alg": "none"}, claims]
    packed = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts]
    return b".".join([*packed, b""]).decode()


def shared_secret(provider: OidcProvider, claims: Json) -> str:
    """A token signed with the public key as if it were a secret."""
    parts = [{"alg": "HS256", "kid": provider.key.kid}, claims]
    packed = b".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts)
    mac = hmac.new(provider.key.as_pem(private=False), packed, hashlib.sha256).digest()
    return (packed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def other_key(provider: OidcProvider, claims: Json) -> str:
    """A token by somebody else under the name of the provider's key."""
    key = RSAKey.generate_key(2048, {"kid": provider.key.kid})
    return jwt.encode({"alg": "RS256", "kid": provider.key.kid}, claims, key)
