"""The whole way: a real job trains, and the answer comes from what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 170


def demo(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", "demo", "--no-live", *arguments],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"status {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_a_rank_that_becomes_slow_in_backward_is_named(tmp_path: Path) -> None:
    done = demo(
        tmp_path, "--report", "report.json", "--expect", "straggler:2:backward", FAULT="backward"
    )
    assert done.returncode == 0, said(done)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["schema"] == "paceline.report/1"
    assert report["job"]["world_size"] == 4
    finding = report["findings"][0]
    assert finding["first_step"] > 60
    assert finding["wasted_gpu_s"] > 0
    assert "rank 2" in done.stdout.lower()
    assert "http://127.0.0.1:" in done.stdout


def assert_nobody_is_named(tmp_path: Path) -> None:
    """What else runs on this machine may slow all ranks together, and that may be said."""
    done = demo(tmp_path, "--report", "report.json", "--expect", "healthy", FAULT="none")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] in ("healthy", "uniform_slowdown"), said(done)
    assert [finding["ranks"] for finding in report["findings"] if finding["ranks"]] == []
    assert done.returncode == (0 if report["verdict"] == "healthy" else 1), said(done)


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_in_a_healthy_job_nobody_is_named(tmp_path: Path) -> None:
    assert_nobody_is_named(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 10)
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("fault", ["input", "forward", "backward", "optimizer", "host"])
def test_every_fault_names_its_rank_and_its_phase(tmp_path: Path, fault: str, rank: int) -> None:
    done = demo(tmp_path, "--expect", f"straggler:{rank}:{fault}", FAULT=fault, RANK=str(rank))
    assert done.returncode == 0, said(done)


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 10)
@pytest.mark.parametrize("attempt", range(3))
def test_in_a_healthy_job_nobody_is_named_again(tmp_path: Path, attempt: int) -> None:
    assert_nobody_is_named(tmp_path)


def test_the_status_tells_when_the_report_is_not_the_expected_one(tmp_path: Path) -> None:
    done = demo(tmp_path, "--steps", "40", "--expect", "hang:1", FAULT="none")
    assert done.returncode == 1, said(done)
    assert "hang was expected" in done.stderr


def test_a_fault_that_does_not_exist_is_said_and_fails(tmp_path: Path) -> None:
    done = demo(tmp_path, FAULT="gremlin")
    assert done.returncode == 2, said(done)
    assert "FAULT=gremlin is unknown" in done.stderr


def test_a_port_in_use_is_said_and_fails(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = demo(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2, said(done)
    assert "in use" in done.stderr
