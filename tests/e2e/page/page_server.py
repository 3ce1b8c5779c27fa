"""A small collector stand-in for the page: the static files and the read API, nothing else.

Run it by hand to look at the page: ``python -m tests.e2e.page.page_server --port 8751``.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.e2e.page import page_people
from tests.e2e.page.page_jobs import PageJob, standard_jobs
from tests.e2e.page.page_timeline import DEFAULT_STEPS as TIMELINE_STEPS
from tests.e2e.page.page_timeline import timeline

WEB = Path(__file__).resolve().parents[3] / "service/src/paceline_service/web"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
EVENTS_ON_CONNECT = 60
DEFAULT_STEPS = 200
MAX_STEPS = 5000


class PageServer(ThreadingHTTPServer):
    """Serves the page and jobs that only grow when ``advance`` says so."""

    daemon_threads = True

    def __init__(self, jobs: list[PageJob], *, port: int = 0, token: str = "") -> None:
        self.jobs = {job.name: job for job in jobs}
        self.token = token
        self.streams_refused = False
        self.requests_seen: list[tuple[str, dict[str, str]]] = []
        self._changes = 0
        self._dropped_streams = 0
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def advance(self, name: str, steps: int = 1) -> None:
        """Complete ``steps`` more steps of the job and wake the event streams."""
        with self._changed:
            self.jobs[name].steps += steps
            self._changes += 1
            self._changed.notify_all()

    def drop_streams(self) -> None:
        """End every open event stream, as a restarting collector does."""
        with self._changed:
            self._dropped_streams += 1
            self._changed.notify_all()

    @property
    def changes(self) -> tuple[int, int]:
        """How often jobs grew, and how often streams were dropped."""
        return self._changes, self._dropped_streams

    def wait_for_change(self, known: tuple[int, int], timeout_s: float) -> tuple[int, int]:
        """Return ``changes`` when they differ from ``known``, or after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self.changes != known, timeout_s)
            return self.changes

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: browsers close connections in the middle of streams all the time."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.requests_seen.append((self.path, dict(self.headers.items())))
        if url.path == "/" or url.path.startswith("/static/"):
            return self._static("index.html" if url.path == "/" else url.path.lstrip("/"))
        if url.path == "/auth/session":
            return self._json({"sign_in": False, "name": None, "scopes": []})
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self._problem(401, "a token is needed")
        return self._api(
            [unquote(part) for part in url.path.strip("/").split("/")],
            {key: values[-1] for key, values in parse_qs(url.query).items()},
        )

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal quiet."""

    def _static(self, name: str) -> None:
        path = WEB / name
        if not path.is_file():
            return self._problem(404, name)
        return self._send(200, path.read_bytes(), TYPES[path.suffix])

    def _api(self, parts: list[str], query: dict[str, str]) -> None:
        jobs = list(self.server.jobs.values())
        if parts == ["v1", "jobs"]:
            return self._json({"jobs": [job.row() for job in jobs], "next": None})
        if parts == ["v1", "offenders"]:
            return self._json({"offenders": page_people.offenders(jobs), "next": None})
        if parts == ["v1", "silences"]:
            return self._json({"silences": [], "next": None})
        if parts[:2] == ["v1", "incidents"]:
            return self._incidents(parts[2:], query)
        job = self.server.jobs.get(parts[2]) if len(parts) > 2 else None
        if job is None:
            return self._problem(404, "no such job")
        what = parts[3] if len(parts) > 3 else ""
        if what == "events":
            return self._events(job)
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "": job.detail, "ranks": job.rank_rows, "report": job.report,
            "steps": lambda: _steps(job, query),
            "timeline": lambda: _timeline(job, query),
            "incidents": lambda: {"incidents": self._all_incidents()[job.name], "next": None},
            "what-if": lambda: page_people.what_if(job, query.get("without")),
            "settings": lambda: page_people.settings(job),
        }  # fmt: skip
        if what not in answers:
            return self._problem(404, what)
        if what == "timeline" and int(query.get("to", job.steps)) < job.raw_from:
            return self._problem(404, "no raw frames are kept")
        return self._json(answers[what]())

    def _all_incidents(self) -> dict[str, list[dict[str, Any]]]:
        """Return the incidents of every job; each job has ten numbers."""
        jobs = self.server.jobs.values()
        return {job.name: page_people.incidents(job, 10 * i + 1) for i, job in enumerate(jobs)}

    def _incidents(self, parts: list[str], query: dict[str, str]) -> None:
        rows = [row for rows in self._all_incidents().values() for row in rows]
        if parts:
            found = [row for row in rows if str(row["id"]) == parts[0]]
            if not found:
                return self._problem(404, "no such incident")
            said = found[0]["acknowledged"]
            return self._json({**found[0], "acknowledgements": [said] if said else []})
        states = {"open": [True], "closed": [False]}.get(query.get("state", ""), [True, False])
        chosen = [row for row in rows if row["open"] in states]
        return self._json({"incidents": chosen, "next": None})

    def _events(self, job: PageJob) -> None:
        if self.server.streams_refused:
            return self._problem(503, "streams are off")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        resumed = self.headers["Last-Event-ID"]
        sent = int(resumed) if resumed else job.steps - EVENTS_ON_CONNECT - 1
        if sent >= job.steps:  # as after a database was replaced
            reason = f"the newest step is {job.steps - 1}, not {sent}"
            self._event("reload", {"reason": reason}, None)
            sent = job.steps - EVENTS_ON_CONNECT - 1
        known = self.server.changes
        while True:
            last = job.steps - 1  # it may grow while this is written
            if last > sent:
                self._event("steps", job.columns(sent + 1, last, None, False), last)
                sent = last
            self._event("report", job.report(), last)
            changes = self.server.wait_for_change(known, 10)
            if changes[1] != known[1]:
                self.close_connection = True
                return
            known = changes

    def _event(self, kind: str, body: dict[str, Any], identity: int | None) -> None:
        told = "" if identity is None else f"id: {identity}\n"
        text = f"event: {kind}\n{told}data: {json.dumps(body)}\n\n"
        self.wfile.write(text.encode())
        self.wfile.flush()

    def _json(self, body: dict[str, Any]) -> None:
        self._send(200, json.dumps(body).encode(), "application/json")

    def _problem(self, status: int, detail: str) -> None:
        body = {"type": "about:blank", "title": "error", "status": status, "detail": detail}
        self._send(status, json.dumps(body).encode(), "application/problem+json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _steps(job: PageJob, query: dict[str, str]) -> dict[str, Any]:
    limit = min(int(query.get("limit", DEFAULT_STEPS)), MAX_STEPS)
    last = int(query.get("to", job.steps - 1))
    first = int(query.get("from", max(0, min(last, job.steps - 1) - limit + 1)))
    ranks = _ranks(query["ranks"]) if "ranks" in query else None
    return job.columns(first, min(last, first + limit - 1), ranks, "phases" in query)


def _timeline(job: PageJob, query: dict[str, str]) -> dict[str, Any]:
    first, last = (int(query[key]) if key in query else None for key in ("from", "to"))
    ranks = _ranks(query["ranks"]) if "ranks" in query else list(range(min(job.ranks, 64)))
    return timeline(job, first, last, int(query.get("limit", TIMELINE_STEPS)), ranks)


def _ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        ranks.extend(range(int(low), int(high or low) + 1))
    return ranks


def main() -> None:
    """Serve the standard jobs; every running one completes a step each ``--period`` seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8751)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    server = PageServer(standard_jobs(), port=options.port, token=options.token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.url, flush=True)
    while True:
        time.sleep(options.period)
        for job in server.jobs.values():
            if job.state == "running":
                server.advance(job.name)


if __name__ == "__main__":
    main()
