from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.event_log import LogHeader, LogRank, LogRow, parse_line
from tests.integration.sidecar_kit import Processes, wait_until


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def read(path: Path) -> list[object]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [parse_line(json.loads(line)) for line in data.splitlines()]


def sequences(lines: list[object]) -> list[int]:
    return [line.row[3] for line in lines if isinstance(line, LogRow)]


def test_each_rank_gets_a_compressed_log_with_a_complete_header(
    processes: Processes, logs: Path
) -> None:
    sidecar = processes.sidecar("--events-dir", str(logs), "--exit-when-idle", "--node", "node-x")
    for rank in range(2):
        processes.writer(rank=rank, world=2, total=500, per_s=500)
    assert sidecar.wait(60) == 0
    files = sorted(logs.iterdir())
    assert [file.suffix for file in files] == [".gz", ".gz"]
    for rank, file in enumerate(files):
        header, *lines = read(file)
        assert isinstance(header, LogHeader)
        assert (header.world_size, header.rank, header.job) == (2, rank, "job-a")
        assert header.shared_clock
        assert header.nodes == {0: "node-x", 1: "node-x"}
        assert header.groups["dp"].ranks == (0, 1)
        assert header.groups["dp"].mesh_dim == "dp"
        assert header.info["torch"] == "9.9"
        assert sequences(lines) == list(range(500))
        assert lines[-1] == LogRank(rank=rank, ended="closed")
    assert list(processes.runtime_dir.glob("*.ring")) == []


def test_collective_pending_when_its_rank_was_killed_has_no_end(
    processes: Processes, logs: Path
) -> None:
    sidecar = processes.sidecar("--events-dir", str(logs), "--exit-when-idle")
    writer = processes.writer(total=50, end="pending")
    assert writer.stdout is not None
    writer.stdout.readline()
    writer.kill()
    assert sidecar.wait(60) == 0
    (file,) = logs.iterdir()
    _, *lines = read(file)
    *_, pending, state = lines
    assert isinstance(pending, LogRow)
    assert (pending.row[3], pending.row[8]) == (49, 0)
    assert isinstance(state, LogRank)
    assert state.ended == "killed"


def test_killed_sidecar_neither_loses_nor_repeats_a_line(processes: Processes, logs: Path) -> None:
    writer = processes.writer(total=1500, per_s=500)
    for _ in range(3):
        sidecar = processes.sidecar("--events-dir", str(logs))
        time.sleep(0.7)
        sidecar.kill()
        sidecar.wait()
    sidecar = processes.sidecar("--events-dir", str(logs), "--exit-when-idle")
    assert writer.wait(60) == 0
    assert sidecar.wait(60) == 0
    (file,) = logs.iterdir()
    assert sequences(read(file)) == list(range(1500))


def test_sigterm_leaves_a_readable_log_that_the_next_sidecar_goes_on_with(
    processes: Processes, logs: Path
) -> None:
    writer = processes.writer(total=800, per_s=400)
    sidecar = processes.sidecar("--events-dir", str(logs))
    wait_until(lambda: any(logs.glob("*.ndjson")))
    time.sleep(0.4)
    sidecar.terminate()
    assert sidecar.wait(60) == 0
    (file,) = logs.iterdir()
    lines = read(file)
    assert isinstance(lines[0], LogHeader)
    assert isinstance(lines[-1], LogRank)
    assert (lines[-1].ended, lines[-1].dropped) == ("", {})
    assert lines[-1].now_ns > 0  # so that the age of what is pending is known
    so_far = sequences(lines)
    assert so_far == list(range(len(so_far)))
    assert processes.sidecar("--events-dir", str(logs), "--exit-when-idle").wait(60) == 0
    assert writer.wait(60) == 0
    (file,) = logs.iterdir()
    assert sequences(read(file)) == list(range(800))
