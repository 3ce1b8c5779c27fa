"""A real sidecar with a faked NVML and trees of files: its telemetry on every way it can take."""

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

from paceline import telemetry as names
from paceline.event_log import LogTelemetry, parse_line
from tests.fakes.captures import fake_gpu, query_trees, shared_data
from tests.fakes.loading import FAKE_NVML, a_gpu
from tests.fakes.trees import procfs, sysfs
from tests.integration.collector.kit import TOKEN, CollectorProcess
from tests.integration.collector.kit import wait_until as wait
from tests.integration.sidecar_kit import FakeCollector, Processes, wait_until

CAPTURE = "gpu_telemetry/gpud/nvidia-smi-query.535.154.05.out.1.valid"


class Machine:
    """The trees and the NVML that one sidecar is shown."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "nvml.json"
        self.kmsg = directory / "kmsg"
        self.kmsg.write_bytes(b"")
        self.show([a_gpu(0), a_gpu(1)])
        self.environ = {
            "PACELINE_SYSFS_ROOT": str(sysfs(directory / "sys")),
            "PACELINE_PROCFS_ROOT": str(procfs(directory / "proc")),
            "PACELINE_KMSG": str(self.kmsg),
            "FAKE_NVML_STATE": str(self.state),
            "PYTHONPATH": str(FAKE_NVML),
        }

    def show(self, gpus: list[dict]) -> None:
        """Replace the GPUs, at once for who reads."""
        fresh = self.state.with_suffix(".new")
        fresh.write_text(json.dumps({"gpus": gpus}))
        os.replace(fresh, self.state)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop()


def samples_of(path: Path) -> list[LogTelemetry]:
    """Every sample of an event log, by rank and time."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    lines = [parse_line(json.loads(line)) for line in text.splitlines()]
    samples = [line for line in lines if isinstance(line, LogTelemetry)]
    return sorted(samples, key=lambda sample: (sample.rank, sample.time_ns, str(sample.values)))


def telemetry_of(path: Path) -> dict[str, object]:
    """The values of the log of one rank, the newest of each name."""
    return {name: value for sample in samples_of(path) for name, value in sample.values.items()}


def test_frames_carry_gpu_host_and_kernel_events_to_the_right_ranks(
    machine: Machine, processes: Processes
) -> None:
    with FakeCollector() as collector:
        for rank in (0, 1):
            processes.writer(rank=rank, world=2, total=10_000, per_s=50)
        processes.sidecar(
            "--url", collector.url, "--telemetry-interval-s", "0.1", **machine.environ
        )

        def seen(rank: int) -> dict[str, object]:
            with collector.lock:
                frames = [f for _, f in sorted(collector.got.frames.items()) if f.rank == rank]
            return {n: v for f in frames for s in f.telemetry for n, v in s.values.items()}

        wait_until(lambda: names.CPU_CLOCK_MIN in seen(0) and names.SM_CLOCK in seen(1), 20)
        wait_until(lambda: names.RANK_ON_CPU in seen(1), 20)  # a rank's process is read later
        assert seen(0)[names.GPU_INDEX] == 0
        assert seen(1)[names.GPU_INDEX] == 1
        assert seen(0)[names.STALL_CPU] == 111
        assert names.STALL_CPU not in seen(1)
        assert seen(1)[names.RANK_ON_CPU] > 0, "its process is known by the lock of its ring"

        machine.show([a_gpu(0), a_gpu(1, error=15)])
        wait_until(lambda: names.GPU_LOST in seen(1), 20)
        assert names.GPU_LOST not in seen(0)
        with open(machine.kmsg, "ab") as kmsg:
            kmsg.write(
                b"4,9,%d,-;NVRM: Xid (PCI:0000:11:00): 79, gone\n" % int(time.monotonic() * 1e6)
            )
        wait_until(lambda: seen(1).get(names.XID) == 79, 20)

        with collector.lock:
            frames = [f for f in collector.got.frames.values() if f.telemetry]
        for frame in frames:
            for sample in frame.telemetry:
                assert abs(sample.time_ns - frame.anchor_mono_ns) < 60_000_000_000


def test_values_of_a_real_capture_reach_the_event_log(
    machine: Machine, processes: Processes, tmp_path: Path
) -> None:
    machine.show([fake_gpu(tree) for tree in query_trees(shared_data(CAPTURE).read_text())])
    logs = tmp_path / "logs"
    writer = processes.writer(rank=1, world=8, total=150, per_s=100)
    sidecar = processes.sidecar(
        "--events-dir", str(logs), "--telemetry-interval-s", "0.1", "--exit-when-idle",
        **machine.environ,
    )  # fmt: skip
    writer.wait(20)
    assert sidecar.wait(60) == 0
    [log] = logs.glob("*.gz")
    values = telemetry_of(log)
    assert values[names.THROTTLE] == ["sw_power_cap"]
    assert values[names.POWER_LIMIT] == 450
    assert values[names.GPU_NAME] == "NVIDIA GeForce RTX 4090"
    assert values[names.IB_STATE + "/mlx5_0:1"] == 1


def test_an_interval_of_0_samples_nothing(
    machine: Machine, processes: Processes, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    writer = processes.writer(total=100, per_s=100)
    sidecar = processes.sidecar(
        "--events-dir", str(logs), "--exit-when-idle", PACELINE_TELEMETRY_INTERVAL_S="0",
        **machine.environ,
    )  # fmt: skip
    writer.wait(20)
    assert sidecar.wait(60) == 0
    assert telemetry_of(next(logs.glob("*.gz"))) == {}


@pytest.mark.parametrize("value", ["0.01", "61", "-1", "fast", "nan"])
def test_an_interval_that_cannot_be_used_is_refused(processes: Processes, value: str) -> None:
    sidecar = processes.sidecar("--url", "http://x", PACELINE_TELEMETRY_INTERVAL_S=value)
    assert sidecar.wait(60) == 2
    assert "telemetry" in processes.log.read_text().lower()


def test_telemetry_goes_through_the_collector_into_a_log_and_a_replay_of_it(
    machine: Machine, processes: Processes, tmp_path: Path
) -> None:
    collector = CollectorProcess(tmp_path / "collector").start()
    try:
        writers = [processes.writer(rank=r, world=2, total=300, per_s=100) for r in (0, 1)]
        processes.sidecar(
            "--url", collector.url, "--telemetry-interval-s", "0.1", "--exit-when-idle",
            **{**machine.environ, "PACELINE_TOKEN": TOKEN},
        )  # fmt: skip
        client = collector.client()

        def rows(job: str) -> list[dict]:
            return client.get_json(f"/v1/jobs/{job}/ranks")["ranks"]

        def live() -> bool:
            jobs = [row["job"] for row in client.get_json("/v1/jobs")["jobs"]]
            return "job-a" in jobs and all(
                names.SM_CLOCK in (row["telemetry"] or {"values": {}})["values"]
                for row in rows("job-a")
            )

        wait(live, 30)
        newest = rows("job-a")[0]["telemetry"]
        assert newest["values"][names.GPU_NAME] == "a GPU"
        assert newest["time_wall_ns"] > 1_700_000_000_000_000_000
        for writer in writers:
            writer.wait(30)
        wait(lambda: client.get_json("/v1/jobs/job-a")["state"] == "ended", 30)

        exported, again = tmp_path / "exported.ndjson", tmp_path / "again.ndjson"
        paceline(collector, "export", "job-a", "--output", str(exported))
        samples = samples_of(exported)
        assert any(sample.values.get(names.STALL_CPU) == 111 for sample in samples)
        assert {sample.rank for sample in samples} == {0, 1}
        paceline(collector, "replay", str(exported), "--job", "again")
        paceline(collector, "export", "again", "--output", str(again))
        assert samples_of(again) == samples
        assert rows("again")[1]["telemetry"]["values"][names.GPU_INDEX] == 1
    finally:
        collector.stop()


def paceline(collector: CollectorProcess, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "paceline", *arguments, "--url", collector.url],
        env=collector.environ(), check=True, timeout=60, stdout=subprocess.DEVNULL,
    )  # fmt: skip
