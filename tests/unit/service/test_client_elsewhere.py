"""The client at an address where no collector answers, but something else does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paceline.errors import TransportError
from paceline_service.client import Client

ANSWERS = {
    "redirect": (301, "text/html", b"", "leads to https://paceline.example/v1"),
    "sign-in": (200, "text/html; charset=utf-8", b"<html>who are you?</html>", "text/html"),
    "other": (200, "text/plain", b"It works!", "no JSON"),
}


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, kind, body, _ = ANSWERS[self.path.split("/")[1]]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 301:
            self.send_header("Location", "https://paceline.example/v1")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.jobs(),
        lambda client: client.post_frames(b"frames"),
        lambda client: list(client.event_log("llm")),
        lambda client: next(client.stream_events("llm")),
    ],
    ids=["json", "frames", "event log", "events"],
)
@pytest.mark.parametrize("what", ["redirect", "sign-in"])
def test_what_is_no_collector_is_told_as_such(
    url: str, what: str, ask: Callable[[Client], object]
) -> None:
    with pytest.raises(TransportError, match=ANSWERS[what][3]) as told:
        ask(Client(f"{url}/{what}", "token"))
    assert "PACELINE_URL" in str(told.value)


def test_an_answer_that_is_no_json_is_told_as_such(url: str) -> None:
    with pytest.raises(TransportError, match="no JSON"):
        Client(f"{url}/other", "token").jobs()
