"""One connection to the collector: a POST and what its answer means."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

from paceline.errors import ConfigError
from paceline.tls import client_context, closed_hint, tls_advice
from paceline.wire.settings import LaunchSettings, read_settings

CONTENT_TYPE = "application/vnd.paceline.frames"
TIMEOUT_S = 10.0
"""Of the connection, of each piece of a body, and of each piece of an answer."""
ANSWER_S = 30.0
"""How long a whole answer may take once the body is sent, however steadily it drips."""
PIECE_BYTES = 64 << 10
"""A body is sent in pieces of this size, so that a slow link has time for each of them."""
MAX_ANSWER_BYTES = 1 << 20
_MAX_RETRY_AFTER_S = 300.0
_PROBLEM = "urn:paceline:problem:"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Outcome(Enum):
    """What is to be done with the frames of a POST."""

    STORED = "stored"
    REFUSED = "refused"
    """They will never be taken: drop and count them."""
    TOO_LARGE = "too large"
    """Send fewer at once."""
    LATER = "later"
    """Keep them; try again with growing pauses."""
    FORBIDDEN = "forbidden"
    """Keep them; the token does not cover their jobs, and may cover those of others."""
    MISCONFIGURED = "misconfigured"
    """Keep them; somebody has to change a setting first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The collector's answer, or why there was none."""

    outcome: Outcome
    text: str = ""
    timed_out: bool = False
    """The collector or the link to it was too slow."""
    retry_after_s: float = 0.0
    rejected: dict[int, str] = field(default_factory=dict)
    """By offset in the body: why a frame was not taken."""
    forbidden: frozenset[int] = frozenset()
    """The offsets among them of frames whose job the token does not cover."""
    settings: tuple[LaunchSettings, ...] = ()
    """What the launches of these frames are to record from now on."""


class Collector:
    """Keeps one connection open. Not for several threads.

    Args:
        url: of the collector; a path in it is put before ``/v1/frames``.
        token: returns the bearer token, each time it is needed.

    Raises:
        ConfigError: ``url`` is no http or https URL, or a file for TLS cannot be used.
    """

    def __init__(self, url: str, token: Callable[[], str]) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"the collector's URL cannot be read: {error}") from error
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(
                f"the collector's URL begins with {parts.scheme!r}: write http://HOST:PORT or https"
            )
        if parts.username or parts.password:
            raise ConfigError("the collector's URL holds credentials: set PACELINE_TOKEN instead")
        self._token = token
        self._path = parts.path.rstrip("/") + "/v1/frames"
        self._host, self._port = host, port
        self._is_tls = parts.scheme == "https"
        self._connection = self._new_connection()
        self._socket: socket.socket | None = None
        self._sent_s = 0.0
        self._cut_off = False
        self.name = f"{parts.scheme}://{parts.netloc}"
        self.token_in_clear = parts.scheme == "http" and host not in _LOOPBACK

    def post(self, body: bytes) -> Answer:
        """Send frames once, or twice where a kept connection turns out to be closed."""
        kept = self._connection.sock is not None
        answer = self._post(body)
        closed = self._connection.sock is None and not answer.timed_out
        if kept and answer.outcome is Outcome.LATER and closed:
            answer = self._post(body)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def cut_off_late_answer(self) -> None:
        """End a POST whose answer takes longer than ``ANSWER_S``; for another thread to call."""
        waiting, since_s = self._socket, self._sent_s
        if waiting is not None and time.monotonic() - since_s > ANSWER_S:
            self._socket, self._cut_off = None, True
            with contextlib.suppress(OSError):
                socket.socket.shutdown(waiting, socket.SHUT_RDWR)  # also of TLS: its read ends

    def _new_connection(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=client_context()
        )

    def _lost(self) -> None:
        """Close the connection; the next one reads certificates anew, they may be renewed."""
        self._connection.close()
        if self._is_tls:
            with contextlib.suppress(ConfigError):  # half written: those from before will do
                self._connection = self._new_connection()

    def _post(self, body: bytes) -> Answer:
        headers = {"Content-Type": CONTENT_TYPE, "Accept": "application/json"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        self._cut_off = False
        try:
            self._connection.request("POST", self._path, _pieces(body, headers), headers)
            self._sent_s, self._socket = time.monotonic(), self._connection.sock
            response = self._connection.getresponse()
            content = response.read(MAX_ANSWER_BYTES)
            if not response.isclosed():
                self._connection.close()
            if self._cut_off:
                raise TimeoutError(f"no whole answer in {ANSWER_S:.0f} s")
        except (OSError, http.client.HTTPException) as error:
            self._lost()
            if advice := tls_advice(error):
                return Answer(outcome=Outcome.MISCONFIGURED, text=advice)
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            reason += closed_hint(self.name, error)
            late = isinstance(error, TimeoutError) or self._cut_off
            return Answer(outcome=Outcome.LATER, text=reason, timed_out=late)
        except ValueError:  # its text would show the token
            self._connection.close()
            text = "the token holds a character that no HTTP header can carry"
            return Answer(outcome=Outcome.MISCONFIGURED, text=text)
        finally:
            self._socket = None
        return _read_answer(response.status, response.getheader("Retry-After"), content)


def _pieces(body: bytes, headers: dict[str, str]) -> bytes | list[memoryview]:
    if len(body) <= PIECE_BYTES:
        return body
    headers["Content-Length"] = str(len(body))
    view = memoryview(body)
    return [view[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES)]


def is_loopback(url: str) -> bool:
    """Whether ``url`` points to this machine."""
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


def _read_answer(status: int, retry_after: str | None, body: bytes) -> Answer:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        content = {}
    text = f"HTTP {status} {str(content.get('detail') or content.get('title') or '')[:200]}".strip()
    if status == 200:
        if not isinstance(content.get("accepted"), int):
            text = "it answers, but not as a Paceline collector: check the URL"
            return Answer(outcome=Outcome.MISCONFIGURED, text=text)
        return Answer(
            outcome=Outcome.STORED,
            rejected=_rejected(content.get("rejected")),
            forbidden=frozenset(_forbidden(content.get("rejected"))),
            settings=tuple(read_settings(content.get("settings"))),
        )
    # A proxy says 400 too, of a request that it does not like: those frames are good.
    if status in (400, 422) and str(content.get("type")).startswith(_PROBLEM):
        return Answer(outcome=Outcome.REFUSED, text=text)
    if status == 403:
        return Answer(outcome=Outcome.FORBIDDEN, text=text)
    if status == 413:
        return Answer(outcome=Outcome.TOO_LARGE, text=text)
    if status == 429 or status >= 500:
        pause_s = _retry_after_s(retry_after)
        settings = tuple(read_settings(content.get("settings")))
        return Answer(outcome=Outcome.LATER, text=text, retry_after_s=pause_s, settings=settings)
    return Answer(outcome=Outcome.MISCONFIGURED, text=text)


def _rejected(listed: object) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and type(one.get("offset")) is int:
            reasons[one["offset"]] = str(one.get("reason", ""))[:200]
    return reasons


def _forbidden(listed: object) -> list[int]:
    return [
        one["offset"]
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
        and type(one.get("offset")) is int
        and one.get("problem") == "forbidden"
    ]


def _retry_after_s(value: str | None) -> float:
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return 0.0
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S) if seconds == seconds else 0.0
