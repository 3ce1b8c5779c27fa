"""Grafana's dashboard of a job that trained here, drawn with Grafana's own components.

Drawing needs the page of tests/pixels, which `make dashboards-pixels` builds with npm.
"""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline_dashboards import build
from paceline_dashboards.queries import sql
from tests.integration.dashboards.grafana import View
from tests.integration.dashboards.recording import Recording, prometheus_over
from tests.integration.postgres import rows
from tests.pixels import frames

INTERVAL_S = 5
SHOWN_S = 180
ZOOM_S = 12
SHOWN_PIXELS = 2060
MARK = "#ff780a"
VARIABLES = {"rank": ".*", "node": ".*", "group": ".*"}


def keep(
    directory: Path, job: str, metrics: Sequence[tuple[float, str]], database_url: str
) -> None:
    """Write down what the dashboard shows: samples of the metrics, answers of the database."""
    recording = Recording(began_s=metrics[0][0])
    for at_s, text in metrics:
        recording.add(at_s, text.strip())
    recording.write(directory / "metrics.om")
    ended_s = int(recording.ended_s)
    began_s = max(int(metrics[0][0]), ended_s - SHOWN_S)
    view = View(from_s=began_s, to_s=ended_s, values={"job": job, **VARIABLES})
    near = View(from_s=ended_s - ZOOM_S - 3, to_s=ended_s - 3, values={"job": job, **VARIABLES})
    told = {sql.INCIDENTS: _plain(rows(database_url, view.sql(sql.INCIDENTS)))}
    for target in _targets(_dashboard()):
        if text := target.get("rawSql"):
            chosen = near if target["format"] == "time_series" else view
            told[text] = _plain(rows(database_url, chosen.sql(text)))
    times = {"job": job, "began_s": began_s, "ended_s": ended_s}
    (directory / "dashboard.json").write_text(json.dumps({"times": times, "sql": told}))


def draw(directory: Path, site: Path, picture: Path) -> None:
    """Draw what ``keep`` wrote; ``site`` is the built page of tests/pixels."""
    kept = json.loads((directory / "dashboard.json").read_text())
    times, answers = kept["times"], kept["sql"]
    view = View(
        from_s=times["began_s"], to_s=times["ended_s"], step_s=INTERVAL_S,
        values={"job": times["job"], **VARIABLES},
    )  # fmt: skip
    lines = (directory / "metrics.om").read_text().splitlines()[:-1]
    place = directory / "prometheus"
    place.mkdir(exist_ok=True)
    dashboard = _dashboard()
    with prometheus_over(Recording(began_s=0, lines=lines), place, INTERVAL_S) as prometheus:
        shown = {
            panel["id"]: frames.of_panel(panel, view, prometheus, answers)
            for panel in dashboard["panels"]
            if panel["type"] != "row"
        }
    end_ms = view.to_s * 1000
    told = {
        "dashboard": dashboard,
        "chosen": f"Job {times['job']}",
        "range": {"from": view.from_s * 1000, "to": end_ms},
        "zoomed": {"from": end_ms - (ZOOM_S + 3) * 1000, "to": end_ms - 3000},
        "marks": [
            {"from": opened, "to": until, "text": text, "colour": MARK}
            for opened, until, text, *_ in answers[sql.INCIDENTS]
        ],
        "frames": shown,
    }
    data = site / "data"
    data.mkdir(exist_ok=True)
    (data / "oncall.json").write_text(json.dumps(told))
    with _served(site) as url:
        _photograph(f"{url}/?dashboard=oncall", picture)


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(build.render()["job.json"])
    return found


def _targets(dashboard: dict[str, Any]) -> Iterable[dict[str, Any]]:
    return (target for panel in dashboard["panels"] for target in panel.get("targets", []))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Grafana's fonts and icons are not there; its own server has them."""


@contextmanager
def _served(site: Path) -> Any:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True, name="oncall").start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _photograph(url: str, picture: Path) -> None:
    from playwright.sync_api import sync_playwright

    from tests.integration.deploy.oncall_browser import ARGUMENTS

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1464, "height": 900})
        page.goto(url)
        page.wait_for_selector("body[data-done]", timeout=60_000)
        # What is below tells more of the same.
        clip = {"x": 0, "y": 0, "width": 1464, "height": SHOWN_PIXELS}
        page.screenshot(path=str(picture), clip=clip, full_page=True)
        assert not page.evaluate("window.failed")
        browser.close()


def _plain(found: list[tuple[Any, ...]]) -> list[list[Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.timestamp() * 1000
        return value if isinstance(value, (int, float, str, type(None))) else float(value)

    return [[plain(value) for value in row] for row in found]
