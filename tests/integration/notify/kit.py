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

from sqlalchemy import Connection, create_engine, insert, select, text, update

from paceline_service.report_schema import EXAMPLE
from paceline_service.store.models import Incident, Job, JobAttempt
from tests.integration.collector.kit import CollectorProcess, bodies, post_all, senders, wait_until
from tests.simulator.job import Simulated

HOUR_NS = 3600 * 10**9
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

    def of(self, words: str) -> list[Request]:
        """Return the requests whose body has these words, such as the name of a job."""
        return [one for one in self.requests if f'"{words}'.encode() in one.body]

    def wait(self, count: int = 1, words: str = "", timeout_s: float = 20.0) -> list[Request]:
        """Return the requests with these words once there are that many."""
        try:
            wait_until(lambda: len(self.of(words)) >= count, timeout_s)
        except AssertionError as error:
            told = [(one.method, one.path, one.body[:300]) for one in self.requests]
            raise AssertionError(f"not {count} of {words!r}: {told}") from error
        return self.of(words)


def run_job(collector: CollectorProcess, job: Simulated, name: str, *, end: bool = False) -> None:
    """Send a job that has an incident, and wait until the collector has opened it."""
    client = collector.client()
    post_all(client, bodies(job, senders(job, job=name), end=end))
    wait_until(lambda: incident_of(collector, name), 20)


def incident_of(collector: CollectorProcess, name: str) -> dict[str, Any] | None:
    """Return the newest incident of a job."""
    found = collector.client().get_json("/v1/incidents", job=name)["incidents"]
    return found[0] if found else None


def store_incident(
    connection: Connection, job: str = "llm", *, world_size: int = 64, **finding: Any
) -> int:
    """Store an open incident as an analysis would, and return its number.

    Its job was heard of last two hours ago: a collector does not look at it again by itself.
    """
    now_ns = time.time_ns()
    whole = {**EXAMPLE, **finding}
    made = connection.execute(
        insert(Job).values(name=job, first_seen_wall_ns=now_ns).returning(Job.id)
    )
    attempt = {
        "job_id": made.scalar_one(),
        "ordinal": 1,
        "run_id": "run-1",
        "launch_attempt": 0,
        "world_size": world_size,
        "first_seen_wall_ns": now_ns - 3 * HOUR_NS,
        "last_seen_wall_ns": now_ns - 2 * HOUR_NS,
    }
    made = connection.execute(insert(JobAttempt).values(**attempt).returning(JobAttempt.id))
    values = {
        "attempt_id": made.scalar_one(),
        "kind": whole["kind"],
        "ranks": "5",
        "cause": whole["cause"],
        "opened_wall_ns": now_ns,
        "updated_wall_ns": now_ns,
        "finding": json.dumps(whole),
    }
    made = connection.execute(insert(Incident).values(**values).returning(Incident.id))
    return int(made.scalar_one())


def change_incident(connection: Connection, number: int, **finding: Any) -> None:
    """Let the analysis say something else of it."""
    query = select(Incident.finding).where(Incident.id == number)
    whole = {**json.loads(connection.execute(query).scalar_one()), **finding}
    _update(connection, number, {"finding": json.dumps(whole), "cause": whole["cause"]})


def close_incident(connection: Connection, number: int, reason: str = "recovered") -> None:
    """Let it be over."""
    _update(connection, number, {"closed_wall_ns": time.time_ns(), "closed_reason": reason})


def _update(connection: Connection, number: int, values: dict[str, Any]) -> None:
    told = {**values, "updated_wall_ns": time.time_ns()}
    connection.execute(update(Incident).where(Incident.id == number).values(**told))


class Incidents:
    """Incidents in the SQLite file of a collector."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)

    def open(self, job: str = "llm", **values: Any) -> int:
        """Open an incident, and return its number."""
        with self._engine.begin() as connection:
            return store_incident(connection, job, **values)

    def change(self, number: int, **finding: Any) -> None:
        """Let the analysis say something else of it."""
        with self._engine.begin() as connection:
            change_incident(connection, number, **finding)

    def close(self, number: int, reason: str = "recovered") -> None:
        """Let it be over."""
        with self._engine.begin() as connection:
            close_incident(connection, number, reason)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return what the database says."""
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(query)).mappings()]

    def end(self) -> None:
        """Close it."""
        self._engine.dispose()
