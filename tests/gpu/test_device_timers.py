"""CUDA event timers on a real GPU; the figures go to the report of the run (``-rP``)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.vocabulary import Flag, Phase, RecordKind
from tests.integration.hooks.kit import Finished, run_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no NVIDIA GPU; on a machine with one: make test-gpu"
    ),
]

JOB = str(Path(__file__).parent / "jobs" / "device_timers.py")
MS = 1_000_000
# Several ranks on one GPU: NCCL must take them for ranks of several hosts.
ONE_GPU = {
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_MAX_NCHANNELS": "2",
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
}


def run(part: str, directory: Path, world_size: int = 1, **env: str) -> Finished:
    job = run_ranks(JOB, directory, world_size, env={"PART": part, **env})
    assert job.returncodes == [0] * world_size, "\n".join(job.output)
    assert all(ring.errors == 0 for ring in job.rings.values()), "\n".join(job.output)
    print(job.said)
    return job


def test_the_driver_tells_negative_times(tmp_path: Path) -> None:
    said = run("negative", tmp_path).said[0]
    assert said["forward_ms"] == pytest.approx(said["torch_ms"], abs=0.001)
    assert said["backward_ms"] == pytest.approx(-said["torch_ms"], abs=0.001)


def test_synchronous_collectives_are_timed_as_the_jobs_own_events_time_them(tmp_path: Path) -> None:
    job = run("exact", tmp_path)
    records = [r for r in job.rings[0].collectives() if r.flags & Flag.GPU_TIME][1:-1]
    measured = job.said[0]["measured"]
    assert len(records) == len(measured)
    for record, (before_ns, after_ns, took_ns) in zip(records, measured, strict=True):
        assert not record.flags & Flag.PARTIAL
        assert record.end_ns - record.start_ns == pytest.approx(took_ns, abs=50_000)
        assert before_ns <= record.start_ns <= record.end_ns <= after_ns + 100_000
    lags_ms = sorted((record.start_ns - record.issue_ns) / MS for record in records)
    print("lags of the device, ms:", [round(lag, 3) for lag in lags_ms])
    assert lags_ms[-1] > 15  # behind a kernel of 20 ms
    assert job.said[0]["error_ns"] < 100_000


def test_the_rank_that_comes_late_has_the_shortest_duration(tmp_path: Path) -> None:
    job = run("delayed", tmp_path, 2, **ONE_GPU, HOSTID_BY_RANK="1")
    durations = {
        rank: [r.end_ns - r.start_ns for r in ring.collectives() if r.flags & Flag.GPU_TIME]
        for rank, ring in job.rings.items()
    }
    late = [i for i in range(4, len(durations[0])) if i % 4 == 3]
    for index in late:
        assert durations[0][index] - durations[1][index] > 100 * MS


def test_captures_survive_the_poller_and_stay_free_of_events(tmp_path: Path) -> None:
    job = run("graph", tmp_path)
    assert job.said[0]["captured"] == 5
    flags = [record.flags for record in job.rings[0].collectives()]
    assert sum(bool(flag & Flag.HOST_RETURN) for flag in flags) == 5
    assert sum(bool(flag & Flag.GPU_TIME) for flag in flags) == 250


def test_phases_on_the_device_tell_a_late_host_from_a_busy_device(tmp_path: Path) -> None:
    job = run("training", tmp_path)
    lag_ms = {
        record.step: (record.start_ns - record.issue_ns) / MS
        for record in job.rings[0].records
        if record.kind == RecordKind.PHASE
        and record.code == Phase.BACKWARD
        and record.flags & Flag.GPU_TIME
    }
    print("lag of backward by step, ms:", {step: round(lag, 3) for step, lag in lag_ms.items()})
    busy = sorted(lag for step, lag in lag_ms.items() if step > 4 and step % 2 == 0)
    late = sorted(lag for step, lag in lag_ms.items() if step > 4 and step % 2 == 1)
    assert busy[len(busy) // 2] > 5 * late[len(late) // 2]
    steps = [r for r in job.rings[0].steps() if r.flags & Flag.GPU_TIME]
    assert len(steps) >= 17


def test_timers_cost_microseconds_a_collective(tmp_path: Path) -> None:
    said = run("cost", tmp_path).said[0]
    print(f"synchronous all_reduce, us of host time: {said['off']:.1f} off, {said['on']:.1f} on")
    assert said["on"] - said["off"] < 20


def test_the_gpu_is_named_as_nvidia_smi_names_it(tmp_path: Path) -> None:
    info = run("negative", tmp_path).rings[0].info
    assert info["gpu_uuid"].startswith(("GPU-", "MIG-"))
    assert info["gpu_name"] == torch.cuda.get_device_name(0)
    assert info["nccl"].count(".") == 2
