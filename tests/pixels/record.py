"""Lets simulated jobs live in real time with a real collector on PostgreSQL, and keeps all of it.

What is kept in the directory: ``metrics.om`` as Prometheus would have scraped it, ``times.json``,
and ``sql.json`` with the answers to the SQL of the dashboards.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline_dashboards import build
from paceline_dashboards.queries import sql
from tests.integration.collector.kit import CollectorProcess, post_all
from tests.integration.dashboards.grafana import View
from tests.integration.dashboards.jobs import all_jobs
from tests.integration.dashboards.recording import Recording, metrics_of
from tests.integration.postgres import PostgresServer, rows

INTERVAL_S = 5
LIVE_S = 300
ZOOM_S = 12
"""What the lanes show."""


def live(server: PostgresServer, directory: Path, *, seconds: int = LIVE_S) -> None:
    """Record for ``seconds``."""
    url = server.create("pixels")
    collector = CollectorProcess(directory / "state", database_url=url).start()
    began_s = time.time()
    recording = Recording(began_s=began_s)
    try:
        jobs = all_jobs(seconds + 30, int(began_s * 1e9))
        client = collector.client()
        for at_s in range(INTERVAL_S, seconds + 1, INTERVAL_S):
            time.sleep(max(began_s + at_s - time.time(), 0))
            for job in jobs:
                post_all(client, job.bodies(at_s - INTERVAL_S, at_s))
            recording.add(time.time(), metrics_of(collector))
            print(f"\r{at_s} of {seconds} s", end="", flush=True)
        time.sleep(2)
    finally:
        collector.stop()
    print()
    recording.write(directory / "metrics.om")
    times = {"began_s": began_s, "ended_s": recording.ended_s}
    (directory / "times.json").write_text(json.dumps(times))
    (directory / "sql.json").write_text(json.dumps(_answers(url, began_s, recording.ended_s)))
    server.drop("pixels")


def _targets() -> list[dict[str, Any]]:
    panels = json.loads(build.render()["job.json"])["panels"]
    return [one for panel in panels for one in panel.get("targets", []) if "rawSql" in one]


def statements() -> set[str]:
    """Return the SQL of the dashboards."""
    return {sql.INCIDENTS, *(target["rawSql"] for target in _targets())}


def _answers(url: str, began_s: float, ended_s: float) -> dict[str, Any]:
    view = View(from_s=began_s, to_s=ended_s, values={"job": "llm-7b"})
    zoomed = View(from_s=ended_s - ZOOM_S - 3, to_s=ended_s - 3, values={"job": "llm-7b"})
    told = {sql.INCIDENTS: _plain(rows(url, view.sql(sql.INCIDENTS)))}
    for target in _targets():
        chosen = zoomed if target["format"] == "time_series" else view
        told[target["rawSql"]] = _plain(rows(url, chosen.sql(target["rawSql"])))
    return told


def _plain(found: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [
        [
            value.timestamp() * 1000 if isinstance(value, datetime)
            else value if isinstance(value, (int, float, str, type(None))) else float(value)
            for value in row
        ]
        for row in found
    ]  # fmt: skip
