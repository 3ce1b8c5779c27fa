"""Draws every dashboard from its JSON, with data of recorded jobs and Grafana's own components.

``make dashboards-pixels``: five minutes of jobs in real time, npm, Chromium. The pictures of
docs/img/dashboards come from here.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline_dashboards import build
from tests.e2e.page.conftest import ARGUMENTS, CHROMIUM
from tests.integration.dashboards.grafana import View
from tests.integration.dashboards.recording import (
    Prometheus,
    Recording,
    prometheus_over,
)
from tests.integration.postgres import PostgresServer
from tests.pixels import frames, record

pytestmark = [pytest.mark.pixels, pytest.mark.timeout(1800)]
JOBS = {"fleet": ".*", "network": "moe-16b"}
JOB = "llm-7b"
CHOSEN = {"rank": {"rank": "5"}}
PICTURES: dict[str, tuple[str, str, str]] = {
    "job": ("job", "", "Step time"),
    "job-step-time": ("job", "Step time", "Whether to believe it"),
    "rank": ("rank", "", "Host"),
}
"""Pictures for the documentation: of which dashboard, from which heading to which."""
CUT_HEADINGS = """() => [...document.querySelectorAll('[role="columnheader"] *')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
  .map((one) => one.closest('[data-panel]').dataset.panel + ': ' + one.textContent)"""
MARK = "#ff780a"
ICONS = "/public/build/img/"


@pytest.fixture(scope="module")
def recorded(work: Path, postgres: PostgresServer) -> Path:
    directory = work / "recorded"
    answers = directory / "sql.json"
    if not answers.exists() or set(json.loads(answers.read_text())) != record.statements():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        record.live(postgres, directory)
    return directory


@pytest.fixture(scope="module")
def prometheus(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    lines = (recorded / "metrics.om").read_text().splitlines()[:-1]
    recording = Recording(began_s=0, lines=lines)
    directory = tmp_path_factory.mktemp("prometheus")
    with prometheus_over(recording, directory, record.INTERVAL_S) as server:
        yield server


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves the page, and Grafana's icons at the address where Grafana has them."""

    def translate_path(self, path: str) -> str:
        """Return the file of a path."""
        if path.startswith(ICONS):
            icons = Path(self.directory).parent / "node_modules/@grafana/ui/dist/public/img"
            return str(icons / path.removeprefix(ICONS).split("?")[0])
        return super().translate_path(path)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(Files, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True, name="pixels")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def told(name: str, recorded: Path, prometheus: Prometheus) -> dict[str, Any]:
    """Return a dashboard with all that its panels show."""
    times = json.loads((recorded / "times.json").read_text())
    answers = json.loads((recorded / "sql.json").read_text())
    dashboard = json.loads(build.render()[f"{name}.json"])
    job = JOBS.get(name, JOB)
    view = View(
        from_s=float(int(times["began_s"])), to_s=float(int(times["ended_s"])),
        step_s=record.INTERVAL_S,
        values={"job": job, "rank": ".*", "node": ".*", "group": ".*", **CHOSEN.get(name, {})},
    )  # fmt: skip
    (mark, *_) = [row for query, row in answers.items() if query.startswith("SELECT to_timestamp")]
    end_ms = view.to_s * 1000
    return {
        "dashboard": dashboard,
        "chosen": "" if name == "itself" else " ".join(
            [f"Job {job if job != '.*' else 'All'}"]
            + [f"   {key.capitalize()} {value}" for key, value in CHOSEN.get(name, {}).items()]
        ),
        "range": {"from": view.from_s * 1000, "to": end_ms},
        "zoomed": {"from": end_ms - (record.ZOOM_S + 3) * 1000, "to": end_ms - 3000},
        "marks": [
            {"from": opened, "to": until, "text": text, "colour": MARK}
            for opened, until, text, _ in mark
        ] if dashboard["annotations"]["list"] and job == JOB else [],
        "frames": {
            panel["id"]: frames.of_panel(panel, view, prometheus, answers)
            for panel in dashboard["panels"]
            if panel["type"] != "row"
        },
    }  # fmt: skip


@pytest.mark.parametrize("name", [*build.DASHBOARDS])
def test_every_panel_of_a_dashboard_is_drawn(
    name: str, recorded: Path, prometheus: Prometheus, site: Path, address: str, work: Path
) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    data = site / "data"
    data.mkdir(exist_ok=True)
    (data / f"{name}.json").write_text(json.dumps(told(name, recorded, prometheus)))
    pictures = work / "pictures"
    for directory in (pictures, work / "whole"):
        directory.mkdir(exist_ok=True)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1464, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{address}/?dashboard={name}")
        page.wait_for_selector("body[data-done]", timeout=60_000)
        page.locator("#dashboard").screenshot(path=str(work / "whole" / f"{name}.png"))
        shown = {key: one for key, one in PICTURES.items() if one[0] == name}
        for picture, (_, first, until) in (shown or {name: (name, "", "")}).items():
            box = page.locator("#dashboard").bounding_box()
            top, bottom = (_top(page, heading) for heading in (first, until))
            box["height"] = (bottom or box["height"]) - top
            box["y"] = top
            page.screenshot(path=str(pictures / f"{picture}.png"), clip=box, full_page=True)
        failed = page.evaluate("window.failed")
        cut = page.evaluate(CUT_HEADINGS)
        browser.close()
    assert not failed
    assert not errors
    assert not cut


def _top(page: Any, heading: str) -> float:
    if not heading:
        return 0.0
    found: float = page.locator(f'[data-panel="{heading}"]').first.bounding_box()["y"]
    return found
