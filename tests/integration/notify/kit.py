"""Receivers of messages: real HTTP servers on real sockets that keep what they were sent."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.integration.collector.kit import CollectorProcess, bodies, post_all, senders, wait_until
from tests.simulator.job import Simulated

SECRET = "a-secret-of-the-tests-9876543210"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = tuple[int, dict[str, str], bytes]
Respond = Callable[[Request], Answer]


def fine(_: Request) -> Answer:
    return 200, {}, b'{"ok":true}'


@dataclass
class Receiver:
    """An HTTP server; ``respond`` decides how it answers, and may be changed at any time."""

    respond: Respond = fine
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    def start(self) -> Receiver:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    method=self.command,
                    path=self.path,
                    headers={k.lower(): v for k, v in self.headers.items()},
                    body=self.rfile.read(length),
                    at_s=time.monotonic(),
                )
                receiver.requests.append(request)
                status, headers, body = receiver.respond(request)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_PUT = _any

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a sender that went away

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Nobody listens there any more."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def wait(self, count: int = 1, timeout_s: float = 20.0) -> list[Request]:
        """Return the requests once there are that many."""
        try:
            wait_until(lambda: len(self.requests) >= count, timeout_s)
        except AssertionError as error:
            told = [(one.method, one.path, one.body[:300]) for one in self.requests]
            raise AssertionError(f"{len(told)} requests, not {count}: {told}") from error
        return self.requests[:]


def run_job(collector: CollectorProcess, job: Simulated, name: str, *, end: bool = False) -> None:
    """Send a job that has an incident, and wait until the collector has opened it."""
    client = collector.client()
    post_all(client, bodies(job, senders(job, job=name), end=end))
    wait_until(lambda: incident_of(collector, name), 20)


def incident_of(collector: CollectorProcess, name: str) -> dict[str, Any] | None:
    """Return the newest incident of a job."""
    found = collector.client().get_json("/v1/incidents", job=name)["incidents"]
    return found[0] if found else None


def grow(database: CollectorProcess, incident: int, **changes: Any) -> None:
    """Let an incident be another one, as the analysis of hours to come would make it."""
    import sqlite3

    connection = sqlite3.connect(database.database, timeout=10)
    with connection:
        row = connection.execute("SELECT finding FROM incidents WHERE id = ?", (incident,))
        finding = {**json.loads(row.fetchone()[0]), **changes}
        connection.execute(
            "UPDATE incidents SET finding = ?, cause = ?, updated_wall_ns = ? WHERE id = ?",
            (json.dumps(finding), finding["cause"], time.time_ns(), incident),
        )
    connection.close()
