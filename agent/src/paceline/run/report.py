"""Fetching the report of a job that ended."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TIMEOUT_S = 20.0


def fetch_report(url: str, job: str, token: str) -> dict[str, Any]:
    """Return the ``paceline.report/1`` of ``job``.

    Raises:
        OSError: the collector does not answer, or has no such job.
        ValueError: what it answers is no report.
    """
    request = urllib.request.Request(f"{url.rstrip('/')}/v1/jobs/{job}/report")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        report = json.load(answer)
    if not isinstance(report, dict) or report.get("schema") != "paceline.report/1":
        raise ValueError("the collector's answer is no paceline.report/1")
    return report


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Write ``report`` to ``path``, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def print_report(url: str, job: str, env: Mapping[str, str]) -> bool:
    """Print the readable report through the installed ``paceline report``; whether that worked."""
    command = [sys.executable, "-m", "paceline", "report", job, "--url", url]
    try:
        return subprocess.run(command, env=dict(env), timeout=2 * TIMEOUT_S).returncode in (0, 1, 3)
    except (OSError, subprocess.TimeoutExpired):
        return False
