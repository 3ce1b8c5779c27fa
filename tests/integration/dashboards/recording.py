"""Records jobs as Prometheus would: a real collector, asked for its metrics at every interval.

What it told at what moment becomes a file of OpenMetrics, blocks of a time series database, and
a real Prometheus over them: minutes of a job in seconds of a test.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.collector.kit import CollectorProcess, post_all, wait_until
from tests.integration.dashboards.jobs import Job

INTERVAL_S = 20
S = 1_000_000_000
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")


@dataclass(kw_only=True)
class Recording:
    """What a collector told, from ``began_s`` to ``ended_s``."""

    began_s: float
    ended_s: float = 0.0
    lines: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Of the series that had a sample."""

    def add(self, at_s: float, text: str) -> None:
        """Add what ``/metrics`` told, with the labels that a scrape adds."""
        self.ended_s = at_s
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            found = SAMPLE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            # honor_labels: the collector's own label `job` is kept where it has one.
            added = ['instance="collector:8750"']
            if not re.search(r'(^|,)job="', labels or ""):
                added.append('job="paceline"')
            told = ",".join([*([labels] if labels else []), *added])
            self.lines.append(f"{name}{{{told}}} {value} {at_s:.3f}")
            self.names.add(name)

    def write(self, path: Path) -> None:
        """Write it as OpenMetrics."""
        path.write_text("\n".join([*self.lines, "# EOF", ""]))


def metrics_of(collector: CollectorProcess) -> str:
    """Return the text of ``/metrics``."""
    return b"".join(collector.client().stream("/metrics")).decode()


def record(collector: CollectorProcess, jobs: list[Job], began_s: float, until_s: int) -> Recording:
    """Let the collector live through ``until_s`` seconds of the jobs, as fast as it can."""
    recording = Recording(began_s=began_s)
    client = collector.client()
    frames = 0
    recording.add(began_s, metrics_of(collector))
    for at_s in range(INTERVAL_S, until_s + 1, INTERVAL_S):
        for job in jobs:
            frames += post_all(client, job.bodies(at_s - INTERVAL_S, at_s))
        _wait_for(collector, "paceline_analysis_frames_total", frames)
        ticks = _told(collector)["paceline_analysis_ticks_total"]
        _wait_for(collector, "paceline_analysis_ticks_total", ticks + 1)
        recording.add(began_s + at_s, metrics_of(collector))
    return recording


def _wait_for(collector: CollectorProcess, name: str, value: float) -> None:
    wait_until(lambda: _told(collector)[name] >= value, 30)


def _told(collector: CollectorProcess) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in metrics_of(collector).splitlines())
    return {name: float(value) for name, _, value in rows if name.startswith("paceline_analysis_")}


class Prometheus:
    """A real Prometheus over a recording."""

    def __init__(self, url: str) -> None:
        self.url = url

    def range(self, expr: str, from_s: float, to_s: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of a query over time."""
        asked = {"query": expr, "start": from_s, "end": to_s, "step": step_s}
        found: list[dict[str, Any]] = self.ask("query_range", asked)["result"]
        return found

    def instant(self, expr: str, at_s: float) -> list[dict[str, Any]]:
        """Return the series of a query at a moment."""
        found: list[dict[str, Any]] = self.ask("query", {"query": expr, "time": at_s})["result"]
        return found

    def values(self, label: str, selector: str, from_s: float, to_s: float) -> list[str]:
        """Return the values of a label."""
        asked = {"match[]": selector, "start": from_s, "end": to_s}
        found: list[str] = self.ask(f"label/{label}/values", asked)
        return found

    def ask(self, what: str, values: dict[str, Any]) -> Any:
        """Return the data of an answer."""
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{values}: {error.read().decode()}") from error


@contextmanager
def prometheus_over(
    recording: Recording, directory: Path, interval_s: int = INTERVAL_S
) -> Iterator[Prometheus]:
    """Run a Prometheus over a recording; skip where there is none."""
    promtool, binary = shutil.which("promtool"), shutil.which("prometheus")
    if promtool is None or binary is None:
        pytest.skip("prometheus and promtool are missing: apt-get install prometheus")
    source, data = directory / "metrics.om", directory / "data"
    recording.write(source)
    done = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    config = directory / "prometheus.yml"
    config.write_text("{}\n")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                binary, f"--config.file={config}", f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=10y", f"--web.listen-address={address}",
                # A scrape marks the end of a series that is gone; OpenMetrics has no such mark.
                f"--query.lookback-delta={interval_s + 5}s",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_until(lambda: _ready(f"http://{address}/-/ready"), 30)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(20)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        time.sleep(0.1)
        return False
