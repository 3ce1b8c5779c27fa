"""One NCCL rank of the check: ``python -m tools.gpu_check.job MODE ARGUMENTS``."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import paceline
from paceline import plugin as nccl_plugin

MS = 1_000_000
FLOAT_BYTES = 4
DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
cuda: Any = torch.cuda


def synchronize() -> None:
    """Wait for the GPU."""
    if DEVICE == "cuda":
        cuda.synchronize()


def tensor_of(number: int, kib: int = 1024) -> torch.Tensor:
    """Return a tensor whose size no other ``number`` has: sizes are how records are found again."""
    return torch.ones(kib * 256 + 64 * number, device=DEVICE)


def payload(tensor: torch.Tensor) -> int:
    """Return the bytes that a record of its all_reduce has."""
    return tensor.numel() * FLOAT_BYTES


def delayed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Collectives before some of which one rank sleeps."""
    rank, late, right = dist.get_rank(), [], True
    for number in range(arguments["collectives"]):
        tensor = tensor_of(number)
        if number % 4 == 3:
            late.append(payload(tensor))
            if rank == arguments["slow_rank"]:
                time.sleep(arguments["delay_ms"] / 1e3)
        dist.all_reduce(tensor)
        synchronize()
        right = right and bool((tensor == dist.get_world_size()).all())
    return {"late": late, "right": right}


def exact(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same collectives by the job's own events and by torch's Flight Recorder."""
    events, bracket = {}, {}
    for number in range(arguments["collectives"]):
        tensor = tensor_of(number)
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        synchronize()
        before_ns = time.monotonic_ns()
        start.record()
        dist.all_reduce(tensor)
        end.record()
        synchronize()
        bracket[payload(tensor)] = [before_ns, time.monotonic_ns()]
        events[payload(tensor)] = start.elapsed_time(end) * MS
    time.sleep(1.5)  # the watchdog reads torch's events, and the poller ours
    return {"events_ns": events, "bracket_ns": bracket, "recorder_ns": flight_recorder()}


def flight_recorder() -> dict[int, float]:
    """Return torch's own durations, ns, by payload."""
    c10d = torch._C._distributed_c10d
    dump = getattr(c10d, "_dump_nccl_trace", None) or getattr(c10d, "_dump_fr_trace", None)
    if dump is None:
        return {}
    found = {}
    for entry in pickle.loads(dump()).get("entries", []):
        sizes = entry.get("input_sizes") or [[0]]
        count = 1
        for size in sizes[0]:
            count *= size
        if entry.get("duration_ms") is not None and "all_reduce" in entry.get("profiling_name", ""):
            found[count * FLOAT_BYTES] = entry["duration_ms"] * MS
    return found


def operations(arguments: dict[str, Any]) -> dict[str, Any]:
    """Every kind of operation once, and what a record of it should hold."""
    rank, world = dist.get_rank(), dist.get_world_size()
    part, whole = torch.ones(3000, device=DEVICE), torch.ones(3000 * world, device=DEVICE)
    nearest, before = (rank + 1) % world, (rank - 1) % world
    calls: list[tuple[str, int, Callable[[], Any]]] = [
        ("ALL_REDUCE", 12000, lambda: dist.all_reduce(part)),
        ("ALL_GATHER", 12000 * world, lambda: dist.all_gather_into_tensor(whole, part)),
        ("REDUCE_SCATTER", 12000 * world, lambda: dist.reduce_scatter_tensor(part, whole)),
        ("BROADCAST", 12000, lambda: dist.broadcast(part, 0)),
        ("REDUCE", 12000, lambda: dist.reduce(part, 1)),
    ]
    for _, _, call in calls:
        call()
        synchronize()
    sends = [
        dist.P2POp(dist.isend, part, nearest),
        dist.P2POp(dist.irecv, part.clone(), before),
    ]
    for request in dist.batch_isend_irecv(sends):
        request.wait()
    synchronize()
    dist.all_to_all_single(torch.empty_like(whole), whole)
    synchronize()
    time.sleep(0.5)
    expected = [[name, size] for name, size, _ in calls]
    return {"expected": [*expected, ["SEND", 12000], ["RECV", 12000]]}


def hang(arguments: dict[str, Any]) -> dict[str, Any]:
    """Rank 1 comes seconds late to a collective: until then it looks like a hang."""
    tensor = tensor_of(500)
    synchronize()
    if dist.get_rank() == 1:
        time.sleep(arguments["hang_s"])
    dist.all_reduce(tensor)
    synchronize()
    return {"payload": payload(tensor)}


def graph(arguments: dict[str, Any]) -> dict[str, Any]:
    """A captured collective, replayed."""
    tensor = tensor_of(700)
    stream = cuda.Stream()
    with cuda.stream(stream):
        dist.all_reduce(tensor)
    synchronize()
    captured = cuda.CUDAGraph()
    with cuda.graph(captured):
        dist.all_reduce(tensor)
    for _ in range(arguments["replays"]):
        captured.replay()
        synchronize()
    time.sleep(0.5)
    return {"payload": payload(tensor), "replays": arguments["replays"]}


def cost(arguments: dict[str, Any]) -> dict[str, Any]:
    """Time of a call on the host, and of a collective from beginning to end, us, by block.

    With ``toggle`` every other block is one in which the plugin ignores what NCCL tells it.
    """
    tensor = torch.ones(1 << 16, device=DEVICE)
    library = nccl_plugin.load() if arguments.get("toggle") else None
    found: dict[str, list[float]] = {
        "host_us": [], "wall_us": [], "ignored_host_us": [], "ignored_wall_us": [],
    }  # fmt: skip
    for block in range(arguments["blocks"]):
        ignored = library is not None and block % 2 == 1
        if library is not None:
            library.paceline_capture(0 if ignored else 1)
        dist.barrier()
        synchronize()
        begun_ns = time.perf_counter_ns()
        for _ in range(arguments["calls"]):
            dist.all_reduce(tensor)
        issued_ns = time.perf_counter_ns()
        synchronize()
        done_ns = time.perf_counter_ns()
        prefix = "ignored_" if ignored else ""
        found[f"{prefix}host_us"].append((issued_ns - begun_ns) / 1e3 / arguments["calls"])
        found[f"{prefix}wall_us"].append((done_ns - begun_ns) / 1e3 / arguments["calls"])
    return found


MODES = {
    "delayed": delayed, "exact": exact, "operations": operations, "hang": hang, "graph": graph,
    "cost": cost,
}  # fmt: skip


def main(mode: str, arguments: dict[str, Any]) -> None:
    """Join the job, run ``mode``, leave the answer where the section looks for it."""
    if arguments.get("agent", True):
        paceline.init()
    if DEVICE == "cuda":
        cuda.set_device(0)
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    for _ in range(3):
        dist.all_reduce(torch.ones(1, device=DEVICE))
    synchronize()
    answer = MODES[mode](arguments)
    path = Path(os.environ["GPU_CHECK_OUT"]) / f"rank{dist.get_rank()}.json"
    dist.destroy_process_group()
    path.write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
