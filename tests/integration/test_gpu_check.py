"""The check of a GPU machine, on Gloo: its ranks, its reading of rings, its verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import ROOT


def run_section(name: str, directory: Path) -> dict[str, Any]:
    answer = directory / "answer.json"
    subprocess.run(
        [sys.executable, "-m", "tools.gpu_check.sections", name, str(answer), "60"],
        cwd=ROOT,
        env={
            **os.environ,
            "GPU_CHECK_DEVICE": "cpu",
            "TMPDIR": str(directory),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'agent/src'}",
        },
        check=True,
        timeout=100,
    )
    found: dict[str, Any] = json.loads(answer.read_text())
    assert not list(directory.glob("ranks-*")), "the rings of a section go with it"
    return found


def test_a_rank_that_sleeps_before_collectives_is_found(tmp_path: Path) -> None:
    found = run_section("two ranks", tmp_path)
    assert found["status"] == "ok", found
    assert found["figures"]["late_found"] == found["figures"]["late_of"] == 6
    assert found["figures"]["arrived_later_ms"] > 80


def test_every_operation_is_looked_for_by_name_and_size(tmp_path: Path) -> None:
    found = run_section("operations", tmp_path)
    assert found["status"] == "ok", found
    assert ["REDUCE_SCATTER", 24000] in found["figures"]["seen"]


def test_what_fails_in_a_section_is_said(tmp_path: Path) -> None:
    found = run_section("same collectives", tmp_path)  # needs CUDA's events
    assert found["status"] == "FAILED"
    assert "ranks ended with" in found["figures"]["error"]
