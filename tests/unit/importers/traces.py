"""Traces of the PyTorch profiler as files, of a made-up job whose truth is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EPOCH_US = 1_700_000_000_000_000


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A data-parallel job: each step computes, all-reduces, and all-gathers.

    ``slow`` takes ``extra_us`` more in each step, on its GPU or, with ``host_late``, because its
    host launches late. ``groups`` replaces the group of all ranks; each member names it.
    """

    world_size: int = 4
    steps: int = 40
    first_step: int = 10
    compute_us: float = 10_000
    transfer_us: float = 200
    jitter: float = 0.005
    slow: int = -1
    extra_us: float = 2_000
    host_late: bool = False
    labelled: bool = False
    numbered: bool = True
    kernels: tuple[str, ...] = (REDUCE, GATHER)
    groups: tuple[tuple[int, ...], ...] = ()
    seed: int = 3
    clock_us: Sequence[float] = field(default_factory=tuple)


def traces(job: TraceJob) -> list[Json]:
    """Return the trace of each rank."""
    rng = np.random.default_rng(job.seed)
    groups = job.groups or (tuple(range(job.world_size)),)
    writers = [_Writer(job, rank) for rank in range(job.world_size)]
    free = np.full(job.world_size, 1_000.0)
    for step in range(job.steps):
        begin = free.copy()
        for index, kernel in enumerate(job.kernels):
            part = job.compute_us / len(job.kernels)
            own = part * (1 + job.jitter * rng.standard_normal(job.world_size))
            arrival = free + own
            late = np.zeros(job.world_size)
            if job.slow >= 0:
                late[job.slow] = job.extra_us / len(job.kernels)
            arrival += late
            for group in groups:
                members = list(group)
                free[members] = arrival[members].max() + job.transfer_us
            for rank, writer in enumerate(writers):
                busy = own[rank] + (0 if job.host_late else late[rank])
                start = arrival[rank] - busy
                writer.work(start, busy, at_once=job.host_late and rank == job.slow)
                writer.collective(kernel, arrival[rank], free[rank], index, groups,
                                  at_once=job.host_late and rank == job.slow)  # fmt: skip
        for rank, writer in enumerate(writers):
            writer.step(job.first_step + step, begin[rank], free[rank])
    return [writer.trace() for writer in writers]


class _Writer:
    def __init__(self, job: TraceJob, rank: int) -> None:
        self._job, self._rank = job, rank
        self._events: list[Json] = []
        self._correlation = 0
        self._clock_us = job.clock_us[rank] if job.clock_us else 0.0

    def work(self, start: float, length: float, *, at_once: bool) -> None:
        self._launched("gemm", start, length, stream=7, args={}, at_once=at_once)

    def collective(
        self, kernel: str, arrival: float, release: float, index: int,
        groups: Sequence[tuple[int, ...]], *, at_once: bool,
    ) -> None:  # fmt: skip
        args: Json = {}
        if self._job.labelled:
            number, group = next((n, g) for n, g in enumerate(groups) if self._rank in g)
            args = {
                "Collective name": "allreduce" if "AllReduce" in kernel else "_allgather_base",
                "In msg nelems": 1024 * (index + 1), "Group size": len(group), "dtype": "Float",
                "Process Group Name": str(number), "Process Group Ranks": str(list(group)),
            }  # fmt: skip
        self._launched(kernel, arrival, release - arrival, stream=20, args=args, at_once=at_once)

    def step(self, number: int, begin: float, end: float) -> None:
        if self._job.numbered:
            # The host runs a little ahead of its device, but for one that is late.
            late = self._job.host_late and self._rank == self._job.slow
            ahead = 20 if late else 500
            self._add("user_annotation", f"ProfilerStep#{number}", begin - ahead, end - begin)

    def trace(self) -> Json:
        info = {"backend": "nccl", "rank": self._rank, "world_size": self._job.world_size}
        return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": self._events}

    def _launched(
        self, name: str, start: float, length: float, *, stream: int, args: Json, at_once: bool
    ) -> None:
        self._correlation += 1
        issued = start - (12 if at_once else 450)
        launch = {"correlation": self._correlation}
        self._add("cuda_runtime", "cudaLaunchKernel", issued, 8, launch)
        more = {"stream": stream, "grid": [24, 1, 1], **launch, **args}
        self._add("kernel", name, start, length, more)

    def _add(
        self, category: str, name: str, start: float, length: float, args: Json | None = None
    ) -> None:
        ts = EPOCH_US + round(start + self._clock_us)
        self._events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 1, "ts": ts,
             "dur": round(start + self._clock_us + length) + EPOCH_US - ts, "args": args or {}}
        )  # fmt: skip


def write_traces(directory: Path, documents: Sequence[Json], *, packed: bool = False) -> list[Path]:
    """Write each as ``rank<N>.json``, or ``.json.gz``."""
    paths = []
    for rank, document in enumerate(documents):
        text = json.dumps(document, indent=1).encode()
        path = directory / (f"rank{rank}.json.gz" if packed else f"rank{rank}.json")
        path.write_bytes(gzip.compress(text) if packed else text)
        paths.append(path)
    return paths


def kernels_of(document: Json, word: str = "nccl") -> list[Json]:
    """Return the communication kernels of a trace, in order."""
    return [e for e in document["traceEvents"] if e["cat"] == "kernel" and word in e["name"]]


def without(document: Json, left_out: Sequence[Json]) -> Json:
    """Return a trace that lacks some of its events."""
    kept = [event for event in document["traceEvents"] if event not in left_out]
    return {**document, "traceEvents": kept}
