"""A small synchronous client of the collector: what commands need, standard library only."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote, urlencode, urlsplit

from paceline.errors import ConfigError, TransportError
from paceline.tls import client_context, closed_hint, tls_advice

DEFAULT_URL = "http://127.0.0.1:8750"
FRAMES_CONTENT_TYPE = "application/vnd.paceline.frames"
MAX_ERROR_BYTES = 1 << 16
Json = dict[str, Any]


class ProblemError(TransportError):
    """The collector refused a request; ``problem`` is its problem+json."""

    def __init__(self, status: int, problem: Json, retry_after_s: float | None = None) -> None:
        detail = problem.get("detail") or problem.get("title") or "no detail"
        super().__init__(f"the collector answered {status}: {detail}")
        self.status = status
        self.problem = problem
        self.retry_after_s = retry_after_s


class FramesAnswer(TypedDict):
    """What became of posted frames; rejected ones must not be sent again."""

    accepted: int
    duplicate: int
    rejected: list[Json]
    settings: list[Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One server-sent event of a job."""

    name: str
    id: str
    data: Json


def find_token(url: str) -> str | None:
    """Return PACELINE_TOKEN, else for a loopback URL the token file of the state directory."""
    if token := os.environ.get("PACELINE_TOKEN"):
        return token
    if not _is_loopback(urlsplit(url).hostname or ""):
        return None
    state = os.environ.get("PACELINE_STATE_DIR")
    directory = Path(state) if state else Path.home() / ".local" / "share" / "paceline"
    try:
        return (directory / "token").read_text(encoding="ascii").strip() or None
    except OSError:
        return None


class Client:
    """Talks to one collector; used with ``with``, it keeps one connection open between requests.

    Not for use by several threads.

    Args:
        url: of the collector, for example ``http://127.0.0.1:8750``.
        token: bearer token; looked up with ``find_token`` where None.
        timeout_s: for connecting and for every read.

    Raises:
        ConfigError: ``url`` is no http or https URL.
    """

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, timeout_s: float = 30.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"collector URL {url!r} is not like {DEFAULT_URL}")
        self.url = url.rstrip("/")
        self._parts = parts
        self._token = token if token is not None else find_token(url)
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._keep = False

    def __enter__(self) -> Client:
        self._keep = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection that is kept, if any."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get_json(self, path: str, **query: object) -> Any:
        """Return the JSON at ``path``.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached.
        """
        given = {key.rstrip("_"): value for key, value in query.items() if value is not None}
        target = path + ("?" + urlencode(given) if given else "")
        return json.loads(self._request("GET", target, None, {}))

    def put_json(self, path: str, content: Json) -> Json:
        """Put ``content`` at ``path`` and return the answer.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached.
        """
        headers = {"Content-Type": "application/json"}
        answer: Json = json.loads(self._request("PUT", path, json.dumps(content).encode(), headers))
        return answer

    def post_json(self, path: str, content: Json) -> Json:
        """Post ``content`` to ``path`` and return the answer.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached.
        """
        headers = {"Content-Type": "application/json"}
        answer: Json = json.loads(
            self._request("POST", path, json.dumps(content).encode(), headers)
        )
        return answer

    def delete_json(self, path: str) -> Json:
        """Delete what is at ``path`` and return the answer.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached.
        """
        answer: Json = json.loads(self._request("DELETE", path, None, {}))
        return answer

    def jobs(self) -> list[Json]:
        """Return a row per job, the newest first."""
        rows: list[Json] = self.get_json("/v1/jobs")["jobs"]
        return rows

    def report(self, job: str, attempt: int | None = None) -> Json:
        """Return the report of a job."""
        answer: Json = self.get_json(f"{_job_path(job)}/report", attempt=attempt)
        return answer

    def post_frames(self, body: bytes) -> FramesAnswer:
        """Send frames back to back; when this returns, the accepted ones are durable.

        Raises:
            ProblemError: the collector refused; on 429 and 503 keep the frames, wait
                ``retry_after_s``, and send them again.
            TransportError: it cannot be reached; keep the frames.
        """
        headers = {"Content-Type": FRAMES_CONTENT_TYPE}
        answer: FramesAnswer = json.loads(self._request("POST", "/v1/frames", body, headers))
        return answer

    def stream(self, path: str) -> Iterator[bytes]:
        """Yield what is at ``path`` in chunks, for example an event log.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached, or broke off.
        """
        connection = self._connect()
        try:
            response = self._send(connection, "GET", path, None, {})
            while chunk := self._read(response, 1 << 16):
                yield chunk
        finally:
            connection.close()

    def stream_events(self, job: str, *, last_event_id: str | None = None) -> Iterator[Event]:
        """Yield the events of a job until the collector or the connection ends.

        Raises:
            ProblemError: the job is not known, or the token may not read it.
            TransportError: the collector cannot be reached, or was silent for too long.
        """
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        connection = self._connect()
        try:
            response = self._send(connection, "GET", f"{_job_path(job)}/events", None, headers)
            yield from _parse_events(self._lines(response))
        finally:
            connection.close()

    def _request(self, method: str, target: str, body: bytes | None, headers: Json) -> bytes:
        reused = self._connection is not None
        if self._connection is None:
            self._connection = self._connect()
        try:
            return self._read(self._send(self._connection, method, target, body, headers))
        except ProblemError:
            raise
        except TransportError:
            self.close()
            if not reused:
                raise
        finally:
            if not self._keep:
                self.close()
        # The collector had closed the idle connection; frames sent twice count once.
        return self._request(method, target, body, headers)

    def _connect(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, self._parts.port, timeout=self._timeout_s,
                context=client_context(),
            )  # fmt: skip
        return http.client.HTTPConnection(host, self._parts.port, timeout=self._timeout_s)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Json,
    ) -> http.client.HTTPResponse:
        sent = dict(headers)
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, self._parts.path.rstrip("/") + target, body, sent)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        if response.status >= 400:
            raise _problem(response)
        return response

    def _read(self, response: http.client.HTTPResponse, size: int | None = None) -> bytes:
        try:
            return response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[str]:
        try:
            for line in response:
                yield line.decode("utf-8", "replace").rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> TransportError:
        if advice := tls_advice(error):
            return TransportError(f"no answer from the collector at {self.url}: {advice}")
        reason = (str(error) or type(error).__name__) + closed_hint(self.url, error)
        return TransportError(
            f"no answer from the collector at {self.url}: {reason}; is `paceline serve` running?"
        )


def _problem(response: http.client.HTTPResponse) -> ProblemError:
    raw = response.read(MAX_ERROR_BYTES)
    if len(raw) == MAX_ERROR_BYTES:
        response.close()
    try:
        problem = json.loads(raw)
    except ValueError:
        problem = {"title": response.reason}
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isdigit() else None
    return ProblemError(response.status, problem if isinstance(problem, dict) else {}, seconds)


def _parse_events(lines: Iterator[str]) -> Iterator[Event]:
    name, identity, data = "message", "", ""
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield Event(name=name, id=identity, data=json.loads(data))
            name, data = "message", ""
        elif field == "event":
            name = value
        elif field == "id":
            identity = value
        elif field == "data":
            data += value


def _job_path(job: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
