"""Two rings of one process, of the hooks and of the NCCL plugin, and a real sidecar."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.event_log import LogRow, parse_line
from paceline.vocabulary import Flag
from paceline.wire.columns import RESOLUTION_NS, decode
from tests.integration.sidecar_kit import FakeCollector, Got, Processes, wait_until

ROUNDED_NS = {499_000 // RESOLUTION_NS * RESOLUTION_NS + more for more in (0, RESOLUTION_NS)}
"""What 499 us become when both ends are rounded down."""
WRITER = """
import sys, time
from pathlib import Path
from paceline.clock import boot_id, time_namespace
from paceline.ring import RingWriter, new_identity
from paceline.vocabulary import Flag, Op, RecordKind

directory, which, total, lag_s, end = sys.argv[1:6]
total, lag_s = int(total), float(lag_s)
rings = {}
def ring(producer):
    identity = new_identity(
        job="job-a", run_id="run-1", attempt=0, rank=0, local_rank=0, world_size=2,
        node="node-a", boot_id=boot_id(), time_namespace=time_namespace(), producer=producer)
    rings[producer] = RingWriter(Path(directory), identity)
if "hooks" in which:
    ring("hooks")
    rings["hooks"].meta({"group": 0, "name": "dp", "ranks": "0-1", "epoch": 0, "mesh_dim": "",
                         "backend": "nccl"})
print("ready", flush=True)
late = []
for seq in range(total):
    start = time.monotonic_ns()
    time.sleep(0.0002)
    issue = time.monotonic_ns()
    time.sleep(0.0002)
    end_ns = time.monotonic_ns()
    if "hooks" in which:
        rings["hooks"].record(RecordKind.COLLECTIVE, Op.ALL_REDUCE, 0, seq, seq // 10, -1, 4096,
                              start, end_ns, 0, start, Flag.HOST_RETURN)
        if seq % 10 == 9:
            rings["hooks"].record(RecordKind.STEP, 0, 0, 0, seq // 10, -1, 0, start, end_ns)
    late.append((seq, issue))
    while "plugin" in which and late and (
            end_ns - late[0][1] > lag_s * 1e9 or seq == total - 1):
        if "nccl" not in rings:
            ring("nccl")
            rings["nccl"].meta({"comm": 0, "hash": "00ab", "name": "", "rank": 0, "nranks": 2,
                                "nnodes": 1})
            rings["nccl"].meta({"info": {"nccl": "2.28.9"}})
        number, issue = late.pop(0)
        rings["nccl"].record(RecordKind.COLLECTIVE, Op.ALL_REDUCE, 0, number, 0, -1, 4096,
                             issue + 1000 + number, issue + 500_000 + number, 0, issue,
                             Flag.GPU_TIME)
if end == "pending":
    start = time.monotonic_ns()
    rings["hooks"].record(RecordKind.COLLECTIVE, Op.ALL_REDUCE, 0, total, total // 10, -1, 4096,
                          start, time.monotonic_ns(), 0, start, Flag.HOST_RETURN)
    rings["nccl"].begin(Op.ALL_REDUCE, 0, total, 0, -1, 4096, start + 1)
print("written", flush=True)
if end == "close":
    for one in list(rings.values())[::-1]:
        one.close()
        time.sleep(0.3)
else:
    time.sleep(60)
"""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def writers() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def write(
    writers: list[subprocess.Popen[str]], processes: Processes, which: str, *,
    total: int = 600, lag_s: float = 0.01, end: str = "close",
) -> subprocess.Popen[str]:  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(processes.runtime_dir), which, str(total), str(lag_s),
         end],
        stdout=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    writers.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def rows(got: Got) -> list[tuple[int, int, int, int]]:
    """Kind, seq, duration (-1 unknown) and flags, in the order of the frames."""
    found: list[tuple[int, int, int, int]] = []
    for _, frame in sorted(got.frames.items(), key=lambda item: item[0][1]):
        columns = [
            decode(frame.columns[name], frame.count)
            for name in ("kind", "seq", "end_after_ns", "flags")
        ]
        found += zip(*columns, strict=True)
    return found


def test_one_stream_with_device_times_comes_of_two_rings(
    processes: Processes, writers: list[subprocess.Popen[str]]
) -> None:
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        write(writers, processes, "hooks plugin", lag_s=0.15)
        assert sidecar.wait(60) == 0
    assert len({incarnation for incarnation, _ in collector.got.frames}) == 1
    collectives = [row for row in rows(collector.got) if row[0] == 1]
    assert [seq for _, seq, _, _ in collectives] == list(range(600))
    assert {flags for *_, flags in collectives} == {int(Flag.GPU_TIME)}
    assert {duration for _, _, duration, _ in collectives} <= ROUNDED_NS
    assert [row[0] for row in rows(collector.got)] == ([1] * 10 + [3]) * 60
    assert collector.got.ended() == ["closed"]
    assert collector.got.dropped() == {}
    assert collector.got.facts() == {"nccl": "2.28.9"}
    assert list(processes.runtime_dir.glob("*.ring")) == []


def test_without_a_plugin_the_release_is_unknown(
    processes: Processes, writers: list[subprocess.Popen[str]]
) -> None:
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        write(writers, processes, "hooks")
        assert sidecar.wait(60) == 0
    collectives = [row for row in rows(collector.got) if row[0] == 1]
    assert [row[1] for row in collectives] == list(range(600))
    assert {row[2:] for row in collectives} == {(-1, 0)}


def test_plugin_without_hooks_gives_a_stream_of_its_own(
    processes: Processes, writers: list[subprocess.Popen[str]]
) -> None:
    with FakeCollector() as collector:
        write(writers, processes, "plugin").wait(20)
        assert processes.sidecar("--url", collector.url, "--drain").wait(60) == 0
    assert collector.got.sequences() == list(range(600))
    (frame, *_) = [frame for frame in collector.got.frames.values() if frame.count]
    assert [(group.name, group.ranks) for group in frame.groups] == [("nccl:00ab", "0-1")]
    assert frame.producer == "nccl"


def test_sidecar_killed_again_and_again_joins_every_call_once(
    processes: Processes, writers: list[subprocess.Popen[str]]
) -> None:
    with FakeCollector() as collector:
        writer = write(writers, processes, "hooks plugin", total=4000, lag_s=0.3)
        for _ in range(3):
            sidecar = processes.sidecar("--url", collector.url)
            time.sleep(0.8)
            sidecar.kill()
            sidecar.wait()
        assert writer.wait(60) == 0
        assert processes.sidecar("--url", collector.url, "--drain").wait(60) == 0
    collectives = [row for row in rows(collector.got) if row[0] == 1]
    assert [row[1] for row in collectives] == list(range(4000))
    assert [row[1] for row in collectives if row[2] < 0] == []
    assert {row[2] for row in collectives} <= ROUNDED_NS
    assert {row[3:] for row in collectives} == {(int(Flag.GPU_TIME),)}
    assert collector.got.dropped() == {}
    assert "nccl_foreign_events" not in collector.got.facts()


def test_killed_rank_tells_what_still_ran_on_its_device(
    processes: Processes, writers: list[subprocess.Popen[str]]
) -> None:
    with FakeCollector() as collector:
        sidecar = processes.sidecar("--url", collector.url, "--exit-when-idle")
        writer = write(writers, processes, "hooks plugin", total=100, end="pending")
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        wait_until(lambda: any(frame.pending for frame in collector.got.frames.values()))
        writer.kill()
        assert sidecar.wait(60) == 0
    last = next(frame for frame in collector.got.frames.values() if frame.ended)
    assert (last.ended, [(one.group, one.seq) for one in last.pending]) == ("killed", [(0, 100)])
    collectives = [row for row in rows(collector.got) if row[0] == 1]
    assert [row[1] for row in collectives] == list(range(101))
    assert collectives[-1][2:] == (-1, 0)


def test_event_log_has_the_joined_records(
    processes: Processes, writers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    sidecar = processes.sidecar("--events-dir", str(logs), "--exit-when-idle")
    write(writers, processes, "hooks plugin")
    time.sleep(0.3)
    sidecar.kill()
    sidecar.wait()
    assert processes.sidecar("--events-dir", str(logs), "--exit-when-idle").wait(60) == 0
    (file,) = logs.iterdir()
    lines = [
        parse_line(json.loads(line))
        for line in gzip.decompress(file.read_bytes()).split(b"\n")
        if line
    ]
    found = [line.row for line in lines if isinstance(line, LogRow) and line.row[0] == 1]
    assert [row[3] for row in found] == list(range(600))
    assert {row[8] - row[7] for row in found} == {499_000}
