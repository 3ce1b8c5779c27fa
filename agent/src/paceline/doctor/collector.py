"""The collector that ``PACELINE_URL`` names, and whether it takes what this job sends."""

from __future__ import annotations

import http.client
import urllib.parse

from paceline.doctor.check import FAIL, OK, Check
from paceline.errors import ConfigError
from paceline.tls import client_context, tls_advice

TIMEOUT_S = 3.0


def collector(url: str, token: str) -> list[Check]:
    """Ask the collector whether it lives and takes the token."""
    if not url:
        return [
            Check(
                name="collector",
                status=OK,
                found="PACELINE_URL is not set: `paceline run` brings its own, or keeps event logs",
            )
        ]
    try:
        health, _ = _ask(url, "GET", "/healthz", "")
    except ConfigError as error:
        return [Check(name="collector", status=FAIL, found=str(error), remedy="correct that file")]
    except (OSError, http.client.HTTPException, ValueError) as error:
        remedy = "start it with `paceline serve`, or correct PACELINE_URL; jobs spool meanwhile"
        found = f"{url} does not answer: {error}"
        remedy = tls_advice(error) or remedy
        return [Check(name="collector", status=FAIL, found=found, remedy=remedy)]
    if health != 200:
        found = f"{url}/healthz answers {health}"
        remedy = "see that PACELINE_URL names a Paceline collector"
        return [Check(name="collector", status=FAIL, found=found, remedy=remedy)]
    return [Check(name="collector", status=OK, found=f"{url} answers"), _token(url, token)]


def _token(url: str, token: str) -> Check:
    # No frame at all: the collector looks at the token first, and stores nothing.
    status, _ = _ask(url, "POST", "/v1/frames", token)
    if status in (401, 403):
        what = "no token is given" if not token else "the token is not accepted for sending"
        return Check(
            name="token",
            status=FAIL,
            found=f"{what} ({status})",
            remedy="set PACELINE_TOKEN to a token with scope ingest for this job",
        )
    return Check(name="token", status=OK, found="accepted")


def _ask(url: str, method: str, path: str, token: str) -> tuple[int, bytes]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https URL")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=TIMEOUT_S, context=client_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        body = b"" if method == "POST" else None
        connection.request(method, parts.path.rstrip("/") + path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(65536)
    finally:
        connection.close()
