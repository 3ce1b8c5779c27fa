"""Profiler traces of a made-up job with one slow rank, written the way Kineto writes them.

A step launches units of work. Each unit is what torch makes of an operator: nested operators, calls
of the CUDA runtime, a kernel, and the two ends of the arrow between them; every 25th unit is an
all-reduce. The GPU of the slow rank takes longer for the same kernels, so that the others wait for
it in every collective.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EVENTS_PER_UNIT = 10
UNITS_PER_COLLECTIVE = 25
STEPS = 25
_FIRST_US = 4_458_676_524_670.0
_HOST_US, _KERNEL_US, _TRANSFER_US = 9.0, 40.0, 120.0
_KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "ampere_sgemm_128x64_tn",
    "void at::native::(anonymous namespace)::layer_norm_kernel<float, float>(int, float)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma",
)
_OPERATORS = (
    "nn.Module: Linear",
    "aten::linear",
    "aten::addmm",
    "aten::expand",
    "aten::as_strided",
)
_ALL_REDUCE = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
"""A name of NCCL before 2.19: HTA does not know the later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is made up: ``slow_rank`` computes ``slowness`` times as long as the others."""

    ranks: int = 8
    events: int = 100_000
    slow_rank: int = 5
    slowness: float = 1.25
    seed: int = 1


def write_traces(directory: Path, job: Job) -> list[Path]:
    """Write a trace for each rank into ``directory`` and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    units = max(job.events // EVENTS_PER_UNIT // STEPS, UNITS_PER_COLLECTIVE) * STEPS
    launched, start, end = _timeline(job, units)
    paths = []
    for rank in range(job.ranks):
        path = directory / f"rank{rank}_trace.json"
        path.write_text(_trace(job, rank, launched[rank], start[rank], end[rank]), encoding="ascii")
        paths.append(path)
    return paths


def _timeline(
    job: Job, units: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return launch, start and end of each unit's kernel, (ranks, units), us."""
    rng = np.random.default_rng(job.seed)
    length = _KERNEL_US * rng.lognormal(0, 0.05, (job.ranks, units))
    length[job.slow_rank] *= job.slowness
    launched = _FIRST_US + np.arange(units) * _HOST_US + rng.uniform(0, 2, (job.ranks, units))
    start, end = np.zeros_like(launched), np.zeros_like(launched)
    free = np.full(job.ranks, _FIRST_US)
    for unit in range(units):
        start[:, unit] = np.maximum(free, launched[:, unit] + 4)
        end[:, unit] = start[:, unit] + length[:, unit]
        if unit % UNITS_PER_COLLECTIVE == UNITS_PER_COLLECTIVE - 1:
            released = start[:, unit].max() + _TRANSFER_US
            end[:, unit] = released + rng.uniform(0, 0.4, job.ranks)
        free = end[:, unit] + 0.5
    return launched, start, end


def _trace(
    job: Job,
    rank: int,
    launched: NDArray[np.float64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
) -> str:
    members = str(list(range(job.ranks)))
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
             "pg_size": job.ranks, "ranks": list(range(job.ranks))}  # fmt: skip
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.ranks,
                            "pg_count": 1, "pg_config": [group], "nccl_version": "2.18.1"},
        "baseTimeNanoseconds": 1_711_964_646_000_000_000,
        "displayTimeUnit": "ms",
    }  # fmt: skip
    collective = (
        '"Collective name": "allreduce", "In msg nelems": 4194304, "Out msg nelems": 4194304, '
        f'"Group size": {job.ranks}, "dtype": "Float", "In split size": "[]", '
        '"Out split size": "[]", "Process Group Name": "0", '
        f'"Process Group Description": "default_pg", "Process Group Ranks": "{members}"'
    )
    events: list[str] = []
    pid, per_step = 4000 + rank, len(launched) // STEPS
    for unit, (at, begin, done) in enumerate(
        zip(launched.tolist(), start.tolist(), end.tolist(), strict=True)
    ):
        if unit % per_step == 0:
            last = min(unit + per_step, len(launched)) - 1
            events.append(_host("user_annotation", f"ProfilerStep#{unit // per_step + 3}", pid,
                                at - 1, float(launched[last]) + 8 - at, unit))  # fmt: skip
        events += _unit(unit, rank, pid, at, begin, done, collective)
    return json.dumps(head)[:-1] + ',\n  "traceEvents": [\n' + ",\n".join(events) + "\n  ]\n}\n"


def _unit(
    unit: int, rank: int, pid: int, at: float, begin: float, done: float, collective: str
) -> list[str]:
    """Return the events of one unit, ``EVENTS_PER_UNIT`` of them."""
    is_collective = unit % UNITS_PER_COLLECTIVE == UNITS_PER_COLLECTIVE - 1
    number, stream = 1000 + 2 * unit, 20 if is_collective else 7
    names = _OPERATORS
    if is_collective:
        names = ("c10d::allreduce_", "record_param_comms", "nccl:all_reduce", *_OPERATORS[3:])
    events = [
        _host("cpu_op", name, pid, at + 0.3 * depth, 7.5 - 0.6 * depth, number,
              f", {collective}" if name == "record_param_comms" else "")
        for depth, name in enumerate(names)
    ]  # fmt: skip
    queried, launched = (
        f', "cbid": {call}, "correlation": {correlation}'
        for call, correlation in ((317, number - 1), (211, number))
    )
    name = _ALL_REDUCE if is_collective else _KERNELS[unit % len(_KERNELS)]
    args = (
        f'"External id": {number},\n      "queued": 0, "device": {rank}, "context": 1,\n      '
        f'"stream": {stream}, "correlation": {number},\n      "registers per thread": 32, '
        '"shared memory": 0,\n      "blocks per SM": 0.148, "warps per SM": 1.18,\n      '
        '"grid": [16, 1, 1],\n      "block": [256, 1, 1],\n      "est. achieved occupancy %": 12'
    )
    if is_collective:
        args += f",\n      {collective}"
    return [
        *events,
        _host("cuda_runtime", "cudaStreamIsCapturing", pid, at + 1.6, 0.4, number, queried),
        _host("cuda_runtime", "cudaLaunchKernel", pid, at + 2.1, 1.8, number, launched),
        _arrow("s", number, pid, pid, at + 2.1, ""),
        _arrow("f", number, rank, stream, begin, ', "bp": "e"'),
        _complete("kernel", name, rank, stream, begin, done - begin, args),
    ]


def _host(
    category: str, name: str, pid: int, ts: float, dur: float, number: int, more: str = ""
) -> str:
    args = f'"External id": {number}, "Ev Idx": {number}{more}'
    return _complete(category, name, pid, pid, ts, dur, args)


def _complete(
    category: str, name: str, pid: int, tid: int, ts: float, dur: float, args: str
) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _arrow(phase: str, number: int, pid: int, tid: int, ts: float, more: str) -> str:
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g"{more}\n  }}'
    )
