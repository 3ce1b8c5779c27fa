"""A real browser for the page, and the stand-in collector that serves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.page.page_jobs import PageJob
from tests.e2e.page.page_server import PageServer

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

OpenPage = Callable[..., Any]
Serve = Callable[..., PageServer]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; started per module, because playwright's loop must not outlive it."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: pip install playwright"
    )
    if not CHROMIUM.exists():
        pytest.skip("chromium is missing: apt-get install --no-install-recommends chromium")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve jobs on a port of the system's choice."""
    running: list[tuple[PageServer, threading.Thread]] = []

    def start(*jobs: PageJob, token: str = "") -> PageServer:
        server = PageServer(list(jobs), token=token)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="page-server")
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.drop_streams()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Open an address; whatever the page then says on its console fails the test.

    ``refused=True`` allows the messages that the browser itself writes for refused requests.
    """
    opened: list[tuple[Any, list[str]]] = []

    def open_(
        url: str, *, refused: bool = False, width: int = 1280, height: int = 800, **context: Any
    ) -> Any:
        window = browser.new_context(viewport={"width": width, "height": height}, **context)
        page = window.new_page()
        page.set_default_timeout(40_000)
        said: list[str] = []

        def on_console(message: Any) -> None:
            ours = "getImageData" not in message.text  # the tests read pixels back
            if ours and not (refused and "Failed to load resource" in message.text):
                said.append(f"{message.type}: {message.text}")

        page.on("console", on_console)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        opened.append((window, said))
        return page

    yield open_
    for window, _ in opened:
        window.close()
    assert [said for _, said in opened if said] == []
