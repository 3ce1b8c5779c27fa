"""A small OpenID Connect provider: real HTTP, real RSA keys, and a way to make it misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "paceline"
SECRET = "a-client-secret-of-the-tests"
Json = dict[str, Any]


class OidcProvider:
    """Lets everybody in as ``user``; what it signs may be changed with ``alter``."""

    def __init__(self) -> None:
        self.user: Json = {"sub": "u-1", "email": "ada@example.org", "groups": ["operators"]}
        self.alter: Callable[[Json], Any] = lambda claims: None
        self.sign: Callable[[Json], str] = self.signed
        self.asked: Counter[str] = Counter()
        self.codes: dict[str, Json] = {}
        self.key = self._new_key()
        kit = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kit._get(self)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                kit._token(self, dict(parse_qsl(body)))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def rotate(self) -> None:
        """Sign with a new key, and forget the old one."""
        self.key = self._new_key()

    def claims(self, **changed: Any) -> Json:
        """Return claims as they should be, but for ``changed``."""
        now_s = int(time.time())
        told = {"iss": self.issuer, "aud": CLIENT, "iat": now_s, "exp": now_s + 300, **self.user}
        return {key: value for key, value in {**told, **changed}.items() if value is not None}

    def signed(self, claims: Json) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def _new_key(self) -> RSAKey:
        return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"})

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        self.asked[parts.path] += 1
        if parts.path == "/.well-known/openid-configuration":
            _answer(handler, 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "end_session_endpoint": f"{self.issuer}/logout",
            })  # fmt: skip
        elif parts.path == "/jwks":
            _answer(handler, 200, {"keys": [self.key.as_dict(private=False)]})
        elif parts.path == "/authorize":
            asked = dict(parse_qsl(parts.query))
            code = secrets.token_urlsafe(16)
            self.codes[code] = asked
            back = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
            handler.send_response(302)
            handler.send_header("Location", f"{asked['redirect_uri']}?{back}")
            handler.end_headers()
        else:
            _answer(handler, 404, {})

    def _token(self, handler: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if (
            asked is None
            or asked["code_challenge_method"] != "S256"
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
            or asked["client_id"] != form.get("client_id")
            or handler.headers.get("Authorization") != f"Basic {basic}"
        ):
            _answer(handler, 400, {"error": "invalid_grant"})
            return
        claims = self.claims(nonce=asked["nonce"])
        self.alter(claims)
        _answer(handler, 200, {"token_type": "Bearer", "id_token": self.sign(claims)})


def _answer(handler: BaseHTTPRequestHandler, status: int, content: Json) -> None:
    data = json.dumps(content).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
