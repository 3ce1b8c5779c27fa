"""Real Gloo jobs that stand still while the collector watches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder.answer import read_dumps
from paceline_service.importers.sources import analyze_paths
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_for_state, wait_until

JOB = Path(__file__).parent / "jobs" / "standing.py"
RANKS = 3
FLOOR_S = 6
"""The collector's, far above the steps of the job and far below the time it stands."""

pytestmark = pytest.mark.timeout(150)
FAKE_PY_SPY = """#!/bin/sh
echo "$@" >> "{calls}"
cat <<'STACK'
Process 1: python standing.py

Thread 12 (idle): "paceline-poller"
    wait (threading.py:327)
Thread 11 (idle): "MainThread"
    stand_still (standing.py:36)
    main (standing.py:51)
STACK
"""
DUMPING = """
import os, time, torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
dist.init_process_group("gloo")
rank, tensor = dist.get_rank(), torch.ones(4)
for _ in range(3):
    dist.all_reduce(tensor)
if rank != 1:
    dist.all_reduce(torch.ones(8), async_op=True)
time.sleep(6)  # what is younger than 5 s may be a job that runs
for name, dump in (("pickle", c10d._dump_fr_trace()), ("json", c10d._dump_fr_trace_json())):
    os.makedirs(name, exist_ok=True)
    with open(f"{name}/dump_{rank}", "wb") as file:
        file.write(dump if isinstance(dump, bytes) else dump.encode())
time.sleep(1)
os._exit(0)
"""


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    collector = CollectorProcess(
        tmp_path / "state", PACELINE_SERVE_HANG_FLOOR_S=str(FLOOR_S)
    ).start()
    yield collector
    collector.stop()


@contextmanager
def job(tmp_path: Path, url: str, wound: str, stands_s: float, **extra: str) -> Iterator[None]:
    environ = {
        **os.environ,
        "PACELINE_URL": url,
        "PACELINE_TOKEN": TOKEN,
        "PACELINE_RUNTIME_DIR": str(tmp_path / "rings"),
        "OMP_NUM_THREADS": "1",
        "WOUND": wound,
        "STANDS_S": str(stands_s),
        **extra,
    }
    launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "run", "--job", "standing", "--", sys.executable,
         *launcher, str(JOB)],
        env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def report_of(collector: CollectorProcess) -> dict[str, Any]:
    names = [row["job"] for row in collector.client().get_json("/v1/jobs")["jobs"]]
    return collector.client().report("standing") if "standing" in names else {}


def test_a_rank_that_does_not_come_is_named_while_its_peers_wait_with_its_stack(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    fake = tmp_path / "bin" / "py-spy"
    fake.parent.mkdir()
    fake.write_text(FAKE_PY_SPY.format(calls=calls))
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    with job(tmp_path, collector.url, "sleep:1", 120, PATH=path):

        def named() -> dict[str, Any] | None:
            found = [f for f in report_of(collector).get("findings", []) if f["kind"] == "hang"]
            return found[0] if found else None

        finding = wait_until(named, 60)
        assert (finding["ranks"], finding["cause"]) == ([1], "host")
        assert finding["collective"]["op"] == "all_reduce"
        assert finding["collective"]["age_s"] >= FLOOR_S
        assert report_of(collector)["verdict"] == "hang"
        told = wait_until(lambda: "stand_still (standing.py:36)" in str(named()), 40)
        assert told
        assert any("stands in stand_still" in sentence for sentence in named()["evidence"])
        metrics = b"".join(collector.client().stream("/metrics")).decode()
        ages = {
            line.split('rank="')[1][0]: float(line.split()[-1])
            for line in metrics.splitlines()
            if line.startswith("paceline_inflight_collective_age_seconds{")
        }
        assert min(ages["0"], ages["2"]) >= FLOOR_S
        assert ages["1"] == 0
    once_each = calls.read_text().splitlines()
    assert len(once_each) == len(set(once_each)) <= RANKS


def test_a_rank_that_saves_a_long_checkpoint_is_not_called_hung(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    verdicts: list[str] = []
    notes: set[str] = set()

    def ended() -> bool:
        report = report_of(collector)
        if report:
            verdicts.append(report["verdict"])
            notes.update(report["data"]["notes"])
        return report.get("job", {}).get("state") == "ended"

    with job(tmp_path, collector.url, "save:1", 4 * FLOOR_S):
        wait_until(ended, 90)
    wait_for_state(collector.client(), "standing", "ended")
    assert "hang" not in verdicts
    assert any("rank 1, which is saving a checkpoint: no hang" in note for note in notes)


def test_dumps_of_a_real_gloo_job_name_the_rank_that_is_missing(tmp_path: Path) -> None:
    program = tmp_path / "dumping.py"
    program.write_text(DUMPING)
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3",
         str(program)],
        cwd=tmp_path, timeout=90, check=True, capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "200"},
    )  # fmt: skip
    report = analyze_paths([tmp_path / "pickle"]).report
    assert (report["verdict"], report["findings"][0]["ranks"]) == ("hang", [1])
    assert report["findings"][0]["collective"]["seq"] == 4
    again = read_dumps(sorted((tmp_path / "json").iterdir()), Faults())
    assert [finding.ranks for finding in again.findings] == [[1]]
