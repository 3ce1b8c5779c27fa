"""HTTP to one collector: connections, time-outs, retries, entity tags."""

from __future__ import annotations

import http.client
import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from paceline.errors import ConfigError, TransportError
from paceline.tls import client_context, closed_hint, tls_advice
from paceline_service.client.problem import ProblemError, problem_of
from paceline_service.client.token import find_token

DEFAULT_URL = "http://127.0.0.1:8750"
REPEATABLE = ("GET", "PUT")
"""Asked twice these do what they do asked once."""
FRAMES_PATH = "/v1/frames"
"""So does this: a frame that is stored counts as duplicate."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
MAX_CACHED = 64
MAX_CACHED_BYTES = 1 << 20
Json = dict[str, Any]
Self = TypeVar("Self", bound="Connection")


class Connection:
    """Talks to one collector; used with ``with``, it keeps one connection open between requests.

    Not for use by several threads.

    Args:
        url: of the collector, for example ``http://127.0.0.1:8750``.
        token: bearer token; looked up with ``find_token`` where None.
        timeout_s: for connecting and for every read.
        retries: how often a request that may be repeated is sent again after 429, 503, or no
            answer; the collector's Retry-After is waited for, up to 10 s.
        cache: keep answers with their tags, and take them again while they have not changed.

    Raises:
        ConfigError: ``url`` is no http or https URL.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 0,
        cache: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"collector URL {url!r} is not like {DEFAULT_URL}")
        self.url = url.rstrip("/")
        self._parts = parts
        self._token = token if token is not None else find_token(url)
        self._timeout_s = timeout_s
        self._retries = retries
        self._cache: OrderedDict[str, tuple[str, bytes]] | None = OrderedDict() if cache else None
        self._kept: http.client.HTTPConnection | None = None
        self._keep = False

    def __enter__(self: Self) -> Self:
        self._keep = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection that is kept, if any."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def get_json(self, path: str, **query: object) -> Any:
        """Return the JSON at ``path``.

        Of ``query`` what is None is left out, and ``from_`` is ``from``.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached.
        """
        return self._request_json("GET", _target(path, query), None, {})

    def put_json(self, path: str, content: Mapping[str, Any]) -> Any:
        """Put ``content`` at ``path`` and return the answer; raises as ``get_json``."""
        return self._send_json("PUT", path, content)

    def post_json(self, path: str, content: Mapping[str, Any]) -> Any:
        """Post ``content`` to ``path`` and return the answer; raises as ``get_json``."""
        return self._send_json("POST", path, content)

    def delete_json(self, path: str) -> Any:
        """Delete what is at ``path`` and return the answer; raises as ``get_json``."""
        return self._request_json("DELETE", path, None, {})

    def stream(self, path: str, **query: object) -> Iterator[bytes]:
        """Yield what is at ``path`` in chunks, for example an event log.

        Raises:
            ProblemError: the collector answered with an error.
            TransportError: it cannot be reached, or broke off.
        """
        connection = self._connect()
        try:
            response = self._send(connection, "GET", _target(path, query), None, {})
            while chunk := self._read(response, 1 << 16):
                yield chunk
        finally:
            connection.close()

    def lines(self, path: str, headers: dict[str, str], **query: object) -> Iterator[str]:
        """Yield the lines of what is at ``path`` as they come; raises as ``stream``."""
        connection = self._connect()
        try:
            response = self._send(connection, "GET", _target(path, query), None, headers)
            try:
                for line in response:
                    yield line.decode("utf-8", "replace").rstrip("\r\n")
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
        finally:
            connection.close()

    def _send_json(self, method: str, path: str, content: Mapping[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        return self._request_json(method, path, json.dumps(content).encode(), headers)

    def _request_json(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> Any:
        raw = self._request(method, target, body, headers)
        try:
            return json.loads(raw)
        except ValueError as error:
            raise self._elsewhere("the answer is no JSON") from error

    def _request(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> bytes:
        """Return the body of the answer, after retries where they do no harm."""
        left = self._retries if method in REPEATABLE else 0
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self._request_once(method, target, body, headers)
            except ProblemError as error:
                if error.status not in (429, 503) or left <= 0:
                    raise
                pause_s = max(pause_s, error.retry_after_s or 0)
            except TransportError:
                if left <= 0:
                    raise
            left -= 1
            time.sleep(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 2

    def _request_once(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> bytes:
        harmless = method in REPEATABLE or target == FRAMES_PATH
        if not harmless:
            self.close()  # whether an idle connection still lives is known only after sending
        reused = self._kept is not None
        if self._kept is None:
            self._kept = self._connect()
        try:
            return self._exchange(self._kept, method, target, body, headers)
        except ProblemError:
            raise
        except TransportError:
            self.close()
            if not reused:
                raise
        finally:
            if not self._keep:
                self.close()
        return self._request_once(method, target, body, headers)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> bytes:
        cache = self._cache if method == "GET" else None
        known = cache.get(target) if cache is not None else None
        sent = {**headers, "If-None-Match": known[0]} if known is not None else headers
        response = self._send(connection, method, target, body, sent)
        content = self._read(response)
        if known is not None and response.status == http.HTTPStatus.NOT_MODIFIED:
            return known[1]
        tag = response.headers.get("ETag")
        if cache is not None and tag and len(content) <= MAX_CACHED_BYTES:
            cache[target] = (tag, content)
            cache.move_to_end(target)
            if len(cache) > MAX_CACHED:
                cache.popitem(last=False)
        return content

    def _connect(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, self._parts.port, timeout=self._timeout_s, context=client_context()
            )
        return http.client.HTTPConnection(host, self._parts.port, timeout=self._timeout_s)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
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
            raise problem_of(response)
        if why := _why_not_ours(response):
            response.close()
            connection.close()
            raise self._elsewhere(why)
        return response

    def _read(self, response: http.client.HTTPResponse, size: int | None = None) -> bytes:
        try:
            return response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _elsewhere(self, why: str) -> TransportError:
        return TransportError(
            f"what answers at {self.url} is not the API of a collector: {why}; is PACELINE_URL its "
            "address, with https where it wants that?"
        )

    def _unreachable(self, error: Exception) -> TransportError:
        if advice := tls_advice(error):
            return TransportError(f"no answer from the collector at {self.url}: {advice}")
        reason = (str(error) or type(error).__name__) + closed_hint(self.url, error)
        return TransportError(
            f"no answer from the collector at {self.url}: {reason}; is `paceline serve` running?"
        )


def _target(path: str, query: Mapping[str, object]) -> str:
    given = {
        name.rstrip("_"): str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
    return path + ("?" + urlencode(given, doseq=True) if given else "")


def _why_not_ours(response: http.client.HTTPResponse) -> str:
    """Return why no collector can have answered like that; empty: it can."""
    if response.status // 100 == 3 and response.status != http.HTTPStatus.NOT_MODIFIED:
        where = response.headers.get("Location", "nowhere")
        return f"the answer is {response.status} and leads to {where[:200]}"
    if (kind := response.headers.get_content_type()) == "text/html":
        return f"the answer is of type {kind}"
    return ""
