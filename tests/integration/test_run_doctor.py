from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration


def doctor(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith("PACELINE")}
    return subprocess.run(
        [sys.executable, "-m", "paceline", "doctor", *options],
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_doctor_finds_what_a_job_needs_and_nothing_fails_here() -> None:
    done = doctor("--format", "json")
    assert done.returncode == 0, done.stdout
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert set(checks) >= {"torch", "backends", "nccl", "plugin", "injection", "rings", "sidecar"}
    assert "gloo" in checks["backends"]["found"]


def test_doctor_fails_with_a_remedy_when_the_collector_is_away() -> None:
    done = doctor(PACELINE_URL="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "fail  collector" in done.stdout
    assert "paceline serve" in done.stdout
