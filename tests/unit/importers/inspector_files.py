"""Files as NCCL Inspector writes them, of a simulated job whose truth is known."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FIRST_US = 1_772_585_000_000_000


@dataclass(frozen=True, kw_only=True)
class InspectorJob:
    """What is simulated: ranks numbered tensor first, a GPU a process, eight processes a host.

    With two ``stages`` (and no tensor ranks) the second half of the ranks works behind the first,
    which sends to it and waits for what it sends back.

    ``slow`` computes ``extra_ms`` longer in every step from ``since``. Transfers of collectives
    over more than one host take ``link_ms`` longer from ``link_since`` on. ``lost`` of the records
    are missing, each on its own rank.
    """

    tensor: int = 1
    data: int = 4
    stages: int = 1
    steps: int = 60
    seed: int = 1
    layers: int = 3
    buckets: tuple[int, ...] = (25 << 20, 25 << 20, 9 << 20)
    world_every_step: bool = True
    slow: int = -1
    extra_ms: float = 0.0
    since: int = 0
    link_ms: float = 0.0
    link_since: int = 0
    lost: float = 0.0
    dump_ms: float = 1.0
    at_end: bool = False
    verbose: bool = False
    source: str = "kernel_gpu"
    per_host: int = 8
    jitter: float = 0.01
    work_ms: float = 6.0
    clock_skew_ms: float = 0.0

    @property
    def world_size(self) -> int:
        return self.tensor * self.data * self.stages


@dataclass
class _Process:
    host: str
    pid: int
    records: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    """Communicator in the plugin's list, end in ms, and the record."""


def write_inspector(folder: Path, job: InspectorJob) -> list[Path]:
    """Write the files of ``job``, one per process; the same job gives the same files."""
    rng = np.random.default_rng(job.seed)
    folder.mkdir(parents=True, exist_ok=True)
    processes = _simulated(job, rng)
    skew = rng.normal(0, 1, size=1 + job.world_size // job.per_host) * job.clock_skew_ms
    paths = []
    for rank, process in enumerate(processes):
        path = folder / f"{process.host}-pid{process.pid}.log"
        late_ms = float(skew[rank // job.per_host])
        path.write_text("".join(_lines(process, job, rng, late_ms)))
        paths.append(path)
    return paths


def _simulated(job: InspectorJob, rng: np.random.Generator) -> list[_Process]:
    size = job.world_size
    grid = np.arange(size).reshape(-1, job.tensor)
    processes = [
        _Process(f"worker-{rank // job.per_host}", 4000 + 7 * (rank % job.per_host))
        for rank in range(size)
    ]
    groups = {"world": [list(range(size))]}
    if job.tensor > 1:
        groups["tp"] = [row.tolist() for row in grid]
        groups["dp"] = [column.tolist() for column in grid.T]
    if job.stages > 1:
        halves = np.arange(size).reshape(job.stages, job.data)
        groups["pp"] = halves.T.tolist()
        groups["dp"] = halves.tolist()
    data = "dp" if len(groups) > 1 else "world"
    ids = {
        (name, i): int(rng.integers(1 << 60))
        for name, all_ in groups.items()
        for i in range(len(all_))
    }
    kinds = list(groups)
    sn: dict[tuple[str, int, str], int] = {}
    now = np.zeros(size)

    def run(name: str, func: str, payload: int, transfer_ms: float, step: int) -> None:
        for index, members in enumerate(groups[name]):
            key = (name, index, func)
            number = sn[key] = sn.get(key, -1) + 1
            begin = now[members].copy()
            took = transfer_ms * rng.normal(1, 0.02)
            hosts = {rank // job.per_host for rank in members}
            if len(hosts) > 1 and step >= job.link_since:
                took += job.link_ms
            left = begin.max() + max(took, 0.01) + np.abs(rng.normal(0, 0.004, len(members)))
            for place, rank in enumerate(members):
                record = _record(job, ids[name, index], name, place, len(members), processes[rank],
                                 func, number, payload, begin[place], left[place])  # fmt: skip
                if rng.random() >= job.lost:
                    processes[rank].records.append((kinds.index(name), left[place], record))
                now[rank] = left[place]

    def transfer(members: list[int], forward: bool) -> None:
        source, sink = members if forward else members[::-1]
        left = max(now[source], now[sink]) + 0.1
        for rank, name in ((source, "Send"), (sink, "Recv")):
            counter = sn[f"p2p{rank}", 0, name] = sn.get((f"p2p{rank}", 0, name), 0) + 1
            index = groups["pp"].index(members)
            record = _record(job, ids["pp", index], "pp", members.index(rank), 2, processes[rank],
                             name, counter, 8 << 20, now[rank], left)  # fmt: skip
            perf = record.pop("coll_perf")
            record["p2p_perf"] = {key.replace("coll", "p2p"): value for key, value in perf.items()}
            record["p2p_perf"]["p2p_peer"] = 1 - members.index(rank)
            processes[rank].records.append((kinds.index("pp"), left, record))
            now[rank] = left

    for step in range(job.steps):
        for layer in range(job.layers):
            work = job.work_ms / job.layers * np.exp(rng.normal(0, job.jitter, size))
            if job.slow >= 0 and step >= job.since:
                work[job.slow] += job.extra_ms / job.layers
            now += work
            if job.tensor > 1:
                run("tp", "AllReduce", 4 << 20, 0.15, step)
            del layer
        if job.stages > 1:
            for forward in (True, False):
                for members in groups["pp"]:
                    transfer(members, forward)
                now += job.work_ms / 3 * np.exp(rng.normal(0, job.jitter, size))
                if job.slow >= 0 and step >= job.since:
                    now[job.slow] += job.extra_ms / 2
        for payload in job.buckets:
            run(data, "AllReduce", payload, payload / (64 << 20), step)
        if job.world_every_step and len(groups) > 1:
            run("world", "AllGather", 1 << 16, 0.08, step)
    return processes


def _record(
    job: InspectorJob, id_: int, name: str, place: int, size: int, process: _Process, func: str,
    number: int, payload: int, begin_ms: float, end_ms: float,
) -> dict[str, Any]:  # fmt: skip
    took_us = int((end_ms - begin_ms) * 1000)
    perf: dict[str, Any] = {
        "coll": func, "coll_sn": number, "coll_msg_size_bytes": payload,
        "coll_exec_time_us": took_us, "coll_timing_source": job.source,
        "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.5,
    }  # fmt: skip
    if job.verbose:
        begin, end = (FIRST_US + int(ms * 1000) + 20 for ms in (begin_ms, end_ms))
        perf["event_trace_sn"] = {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": []}
        perf["event_trace_ts"] = {
            "coll_start_ts": begin - 300, "coll_stop_ts": begin - 290,
            "kernel_events": [
                {"channel_id": 0, "kernel_start_ts": begin + 7, "kernel_stop_ts": end,
                 "kernel_record_ts": end},
                {"channel_id": 1, "kernel_start_ts": begin, "kernel_stop_ts": end + 3,
                 "kernel_record_ts": end},
            ],
        }  # fmt: skip
    return {
        "header": {"id": hex(id_), "comm_name": name, "rank": place, "n_ranks": size, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0", "git_rev": "", "hostname": process.host,
            "rec_mechanism": "nccl_profiler_interface", "pid": process.pid,
        },
        "coll_perf": perf,
    }  # fmt: skip


def _lines(
    process: _Process, job: InspectorJob, rng: np.random.Generator, late_ms: float
) -> list[str]:
    """Return the lines as the dump thread writes them: each time one communicator by one."""
    last_ms = max((end for _, end, _ in process.records), default=0.0)
    period = last_ms + 1 if job.at_end else job.dump_ms
    phase = float(rng.uniform(0, period)) if not job.at_end else 0.0
    dumps: dict[int, list[tuple[int, float, dict[str, Any]]]] = {}
    for item in process.records:
        dumps.setdefault(int((item[1] + phase) // period), []).append(item)
    lines = []
    for number in sorted(dumps):
        when_us = FIRST_US + int(((number + 1) * period - phase + late_ms) * 1000)
        for _, _, record in sorted(dumps[number], key=lambda item: (item[0], item[1])):
            when_us += 4
            record["metadata"]["dump_timestamp_us"] = when_us
            lines.append(json.dumps(record, separators=(",", ":")) + "\n")
    return lines
