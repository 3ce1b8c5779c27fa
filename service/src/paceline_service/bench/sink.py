"""A collector that only counts: the sidecar's cost is measured, not the collector's."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from paceline.wire.bundle_codec import frames_in
from paceline.wire.codec import split_frames


class Sink:
    """Answers ``POST /v1/frames`` as a collector does and keeps nothing but counts."""

    def __init__(self) -> None:
        self.frames = self.records = self.wire_bytes = 0
        self.hook_errors = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="bench-sink", daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes) -> int:
        """Count the frames of a request body."""
        parts = [part for part in split_frames(body) if isinstance(part, bytes)]
        frames = [frame for part in parts for frame in frames_in(part)]
        self.frames += len(frames)
        self.records += sum(frame.count for frame in frames)
        self.hook_errors = max(
            [self.hook_errors, *(frame.dropped.get("hook_errors", 0) for frame in frames)]
        )
        self.wire_bytes += len(body)
        return len(parts)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer: dict[str, Any] = {
                    "accepted": sink.take(body), "duplicate": 0, "rejected": [],
                    "settings": {"level": "full", "stride": 1},
                }  # fmt: skip
                text = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler
