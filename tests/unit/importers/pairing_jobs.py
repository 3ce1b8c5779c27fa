"""Traces of made-up jobs with several groups, streams and pipelines, and which calls are one.

Each collective has an id that only the test knows; ``truth`` gives it by rank and start.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np

from tests.unit.importers.traces import EPOCH_US, Json

KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


@dataclass(frozen=True, kw_only=True)
class Group:
    """A process group; ``stream`` is where its members run it."""

    name: str
    ranks: tuple[int, ...]
    stream: int


@dataclass(frozen=True, kw_only=True)
class Call:
    """One collective of a step; a transfer has a source and a destination."""

    what: str
    group: Group
    elements: int = 1024
    source: int = -1
    destination: int = -1
    both_ways: bool = False
    """Whether the two also send the other way at the same time."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Who takes part."""
        return self.group.ranks if self.source < 0 else (self.source, self.destination)


@dataclass(frozen=True, kw_only=True)
class PairingJob:
    """A job whose every step issues ``program``."""

    world_size: int
    program: tuple[Call, ...]
    steps: int = 12
    labels: str = "full"
    """``full``, ``strided`` (long lists cut short), ``nameless``, ``own_names``, ``none``."""
    numbered: bool = True
    seq: int | None = None
    """The group's number of its first collective; None leaves numbers out."""
    wrap: int = 1 << 31
    clock_us: tuple[float, ...] = ()
    seed: int = 0
    slow: int = -1
    """A rank that comes 30 % later to everything, because of its host."""
    batched: bool = False
    """Transfers go by batch_isend_irecv: the call tells of them, and their kernel does not."""
    titled: bool = False
    """Transfers lie within ``nccl:send 0->1``, places within the group."""
    late_launches: bool = False
    """Beside the main thread: the last of a step may come when the next one has begun."""


@dataclass(kw_only=True)
class Recorded:
    """What a job's profilers wrote; ``ids`` beside each rank's communication kernels."""

    documents: list[Json]
    truth: dict[tuple[int, int], int] = field(default_factory=dict)
    """By rank and start of the kernel, microseconds: the collective."""


def record(job: PairingJob) -> Recorded:
    """Return the traces of a job."""
    rng = np.random.default_rng(job.seed)
    clock = job.clock_us or (0.0,) * job.world_size
    events: list[list[Json]] = [[] for _ in range(job.world_size)]
    recorded = Recorded(documents=[])
    free = np.full(job.world_size, 1_000.0)
    counters: dict[tuple[int, str], int] = {}
    correlation = 0
    for step in range(job.steps):
        begin = free.copy()
        for number, call in enumerate(job.program):
            members = list(call.ranks)
            own = (
                rng.uniform(9_000, 15_000, len(members))
                if job.slow < 0
                else (rng.normal(12_000, 200, len(members)))
            )
            own[[rank == job.slow for rank in members]] *= 1.3
            arrival = free[members] + own
            release = arrival.max() + 50
            for rank, start in zip(members, arrival, strict=True):
                correlation += 1
                what = call.what if call.source < 0 else ("send", "recv")[rank != call.source]
                seq = _number(job, call, rank, counters)
                at = EPOCH_US + round(start + clock[rank])
                recorded.truth[rank, at] = step * len(job.program) + number
                launch = {"correlation": correlation}
                label = _label(job, call, rank, what, seq)
                if job.batched and call.source >= 0:
                    events[rank] += _batch(call, at - 60, label)
                    label = {}
                if job.titled and call.source >= 0:
                    events[rank].append(_title(call, at - 35, what))
                events[rank] += [
                    _event("cuda_runtime", "cudaLaunchKernel", at - 30, 5, launch),
                    _event(
                        "kernel", KERNELS[what], at,
                        EPOCH_US + round(release + clock[rank]) - at,
                        {"stream": call.group.stream, "grid": [24, 1, 1], **launch,
                         **label},
                    ),
                ]  # fmt: skip
            free[members] = release
        if job.numbered:
            for rank in range(job.world_size):
                at = EPOCH_US + round(begin[rank] + clock[rank]) - 3_000 * job.late_launches
                length = round(free[rank] - begin[rank])
                events[rank].append(
                    _event("user_annotation", f"ProfilerStep#{30 + step}", at, length, {})
                )
    for rank in range(job.world_size):
        info = {"backend": "nccl", "rank": rank, "world_size": job.world_size}
        recorded.documents.append(
            {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events[rank]}
        )
    return recorded


def cut(document: Json, head: int, tail: int) -> Json:
    """Return a trace whose profiler missed the first and last so many collectives."""
    kernels = [e for e in document["traceEvents"] if e["cat"] == "kernel"]
    gone = {id(e) for e in kernels[:head] + kernels[len(kernels) - tail :]}
    return {**document, "traceEvents": [e for e in document["traceEvents"] if id(e) not in gone]}


def lose(document: Json, which: int) -> Json:
    """Return a trace that lost one collective."""
    kernels = [e for e in document["traceEvents"] if e["cat"] == "kernel"]
    gone = kernels[which % len(kernels)] if kernels else None
    return {**document, "traceEvents": [e for e in document["traceEvents"] if e is not gone]}


def swap(recorded: Recorded, rank: int, which: int) -> None:
    """Let a rank issue two neighbours the other way round."""
    document = recorded.documents[rank] = copy.deepcopy(recorded.documents[rank])
    kernels = [e for e in document["traceEvents"] if e["cat"] == "kernel"]
    if len(kernels) < 2:
        return
    which %= len(kernels) - 1
    one, two = kernels[which], kernels[which + 1]
    for event in (one, two):
        del event["args"]["correlation"]
    # Transfers have no identity but their order.
    same = {key: value for key, value in one["args"].items() if key != "Seq"}
    if ("Send" in one["name"] and same == {k: v for k, v in two["args"].items() if k != "Seq"}) or (
        one["args"] == two["args"] and one["name"] == two["name"]
    ):
        return
    for key in ("name", "args"):
        one[key], two[key] = two[key], one[key]
    first, second = (rank, one["ts"]), (rank, two["ts"])
    truth = recorded.truth
    truth[first], truth[second] = truth[second], truth[first]


def _number(
    job: PairingJob, call: Call, rank: int, counters: dict[tuple[int, str], int]
) -> int | None:
    """Return the number that torch gives a call; batches count on the ranks that take part."""
    if job.seq is None:
        return None
    key = (rank, f"{call.group.name}{call.group.ranks}")
    number = counters.get(key, 0)
    if call.source < 0 or job.batched:
        counters[key] = number + 1
    return (job.seq + number) % job.wrap


def _label(job: PairingJob, call: Call, rank: int, what: str, seq: int | None) -> Json:
    group = call.group
    if job.labels == "none":
        return {}
    label: Json = {
        "Collective name": what, "In msg nelems": call.elements, "Out msg nelems": call.elements,
        "dtype": "Float", "Group size": len(group.ranks), "Process Group Name": group.name,
        "Process Group Ranks": str(list(group.ranks)),
    }  # fmt: skip
    if job.labels == "strided":
        stride = group.ranks[1] - group.ranks[0]
        label |= {
            "Process Group Ranks": f"[{group.ranks[0]}, ..., {group.ranks[-1]}]",
            "Global rank start": group.ranks[0],
            "Global rank stride": stride,
        }
    elif job.labels == "nameless":
        del label["Process Group Name"]
        label["Process Group ID"] = 3
    elif job.labels == "own_names":
        label["Process Group Name"] = str(100 * rank + int(group.name))
    if what == "send":
        label["Dst Rank"] = call.destination
    elif what == "recv":
        label["Src Rank"] = call.source
    if seq is not None:
        label["Seq"] = seq
    return label


def _batch(call: Call, at: int, label: Json) -> list[Json]:
    calls = [label]
    if call.both_ways:
        peer = label.get("Dst Rank", label.get("Src Rank"))
        ends = {key: value for key, value in label.items() if key not in ("Dst Rank", "Src Rank")}
        calls = [
            ends | {"Collective name": "send", "Dst Rank": peer},
            ends | {"Collective name": "recv", "Src Rank": peer},
        ]
    return [
        *(_event("cpu_op", "record_param_comms", at + 10 * i, 8, one)
          for i, one in enumerate(calls)),
        _event("user_annotation", "nccl:coalesced", at + 25, 15, {}),
    ]  # fmt: skip


def _title(call: Call, at: int, what: str) -> Json:
    source, destination = (call.group.ranks.index(r) for r in (call.source, call.destination))
    ends = f"{source}->{destination}" if what == "send" else f"{destination}<-{source}"
    return _event("user_annotation", f"nccl:{what} {ends}", at, 20, {})


def _event(category: str, name: str, ts: int, length: int, args: Json) -> Json:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 1, "ts": ts, "dur": length,
            "args": args}  # fmt: skip
