from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from paceline.ring.layout import Record
from tests.plugin import kit

pytestmark = pytest.mark.integration
MS = 1_000_000


def start_ranks(directory: Path, world: int, **options: object) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            kit.built().command(
                "ranks", {"path": directory / "meetings", "rank": rank, "world": world, **options}
            ),
            env=kit.environment(
                directory / "rings", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world)
            ),
            stdout=subprocess.DEVNULL,
        )
        for rank in range(world)
    ]


def run_ranks(directory: Path, world: int, **options: object) -> dict[int, list[Record]]:
    """Run a job of ``world`` processes; returns each rank's records in order."""
    processes = start_ranks(directory, world, **options)
    assert [process.wait(timeout=60) for process in processes] == [0] * world
    rings = map(kit.read_ring, kit.ring_paths(directory / "rings"))
    found = {ring.identity.rank: ring.records for ring in rings}
    assert sorted(found) == list(range(world))
    return {rank: sorted(records, key=lambda one: one.seq) for rank, records in found.items()}


@pytest.mark.parametrize("host_bound", [0, 1])
def test_the_slow_rank_of_a_job_is_last_and_waits_least(tmp_path: Path, host_bound: int) -> None:
    ranks = run_ranks(
        tmp_path, 4, steps=12, per_step=3, compute_ms=6, slow_rank=2, slow_ms=25,
        host_bound=host_bound,
    )  # fmt: skip
    assert {len(records) for records in ranks.values()} == {36}
    late = range(0, 36, 3)  # the first collective of each step
    for rank, records in ranks.items():
        waited_ms = median((records[at].end_ns - records[at].start_ns) / MS for at in late)
        behind_ms = median((records[at].start_ns - ranks[2][at].start_ns) / MS for at in late)
        if rank == 2:
            assert waited_ms < 10
        else:
            assert waited_ms > 15
            assert -45 < behind_ms < -15


def test_nobody_leaves_a_collective_before_everybody_has_come(tmp_path: Path) -> None:
    ranks = run_ranks(tmp_path, 3, steps=10, per_step=2, compute_ms=4)
    for at in range(20):
        # On one machine with one clock; the mapping of each rank is off by what its callbacks lag.
        assert (
            min(r[at].end_ns for r in ranks.values())
            > max(r[at].start_ns for r in ranks.values()) - 5 * MS
        )


def report_of(directory: Path, **options: object) -> str:
    """Run four ranks with both rings and a sidecar, and return what the analysis says."""
    runtime, events = directory / "rings", directory / "events"
    runtime.mkdir(mode=0o700)
    words = [sys.executable, "-m", "paceline"]
    sidecar = subprocess.Popen(
        [*words, "sidecar", "--runtime-dir", str(runtime), "--events-dir", str(events),
         "--exit-when-idle", "--telemetry-interval-s", "0"],
        env={**os.environ, "PACELINE_RUNTIME_DIR": str(runtime)},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        processes = start_ranks(
            directory, 4, steps=120, per_step=4, compute_ms=15, slow_rank=2, hooks=1, **options
        )
        assert [process.wait(timeout=60) for process in processes] == [0] * 4
        sidecar.wait(timeout=30)
    finally:
        sidecar.kill()
        sidecar.wait()
    done = subprocess.run(
        [*words, "analyze", str(events)], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def test_the_rank_whose_gpu_is_slow_is_named_from_the_rings_of_plugin_and_hooks(
    tmp_path: Path,
) -> None:
    said = report_of(tmp_path, slow_ms=9)
    assert "Rank 2 " in said
    assert "is slow in forward" in said
    assert "Its GPU was busy" in said
    assert "Data: complete; 120 steps, 480 collectives, 4 of 4 ranks" in said


def test_a_slow_data_loader_is_told_from_a_slow_gpu(tmp_path: Path) -> None:
    said = report_of(tmp_path, slow_ms=9, host_bound=1)
    assert "Rank 2 " in said
    assert "is slow in input" in said
