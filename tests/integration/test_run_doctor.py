from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.hooks.native.cache import library_file

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


def test_doctor_builds_the_native_hook_and_says_that_it_serves(tmp_path: Path) -> None:
    before = doctor("--format", "json", XDG_CACHE_HOME=str(tmp_path))
    if "no C++ compiler" in before.stdout:
        pytest.skip("no C++ compiler for the native hook: apt-get install g++")
    (check,) = [c for c in json.loads(before.stdout)["checks"] if c["name"] == "native hook"]
    assert "not built for this torch" in check["found"]
    assert "paceline doctor --build" in check["remedy"]
    built = doctor("--build", "--format", "json", XDG_CACHE_HOME=str(tmp_path))
    checks = {c["name"]: c for c in json.loads(built.stdout)["checks"]}
    assert checks["build hook"]["status"] == "ok"
    assert checks["native hook"]["found"] == f"serves: {checks['build hook']['found']}"


def test_doctor_warns_of_a_library_that_another_user_could_have_written(tmp_path: Path) -> None:
    import torch

    library = library_file(torch, {"XDG_CACHE_HOME": str(tmp_path)})
    library.parent.mkdir(parents=True)
    library.touch(mode=0o700)
    library.parent.chmod(0o777)
    done = doctor("--format", "json", XDG_CACHE_HOME=str(tmp_path))
    (check,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "native hook"]
    assert check["status"] == "warn"
    assert f"{library.parent} can be written by others" in check["found"]


def test_doctor_warns_of_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    import torch

    library = library_file(torch, {"XDG_CACHE_HOME": str(tmp_path)})
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    done = doctor("--format", "json", XDG_CACHE_HOME=str(tmp_path))
    (check,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "native hook"]
    assert check["status"] == "warn"
    assert "the Python hooks serve: cannot be loaded" in check["found"]
