"""Simulates a data-parallel job on GPUs: host, compute stream and communication stream a rank.

The host runs ahead of its GPU and waits for it once a step; buckets are reduced on a stream of
their own while backward goes on, and compute waits for the last of them. The truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.vocabulary import Flag, Op, Phase, RecordKind
from tests.simulator.job import MS, Simulated

LAUNCH_NS = 20_000


@dataclass(frozen=True, kw_only=True)
class DeviceScenario:
    """``slow`` is what one rank does slowly: compute, launch, input, or nothing."""

    ranks: int = 8
    steps: int = 120
    seed: int = 1
    jitter: float = 0.02
    slow: str = ""
    slow_rank: int = 3
    extra_ms: float = 6.0
    first: int = 60
    buckets: int = 4
    forward_ms: float = 10.0
    backward_ms: float = 20.0
    optimizer_ms: float = 2.0
    input_ms: float = 1.0
    launch_ms: float = 3.0
    transfer_ms: float = 1.5
    device_steps: bool = True
    plugin: bool = True
    """Whether the plugin times the kernels; else event timers do (docs/device-time.md)."""


def simulate_devices(scenario: DeviceScenario) -> Simulated:
    """Run the job; the same scenario gives the same rows."""
    return _Run(scenario).run()


class _Run:
    def __init__(self, scenario: DeviceScenario) -> None:
        self.s = scenario
        self.rng = np.random.default_rng(scenario.seed)
        size = scenario.ranks
        self.host = np.zeros(size)
        self.compute = np.zeros(size)
        self.comm = np.zeros(size)
        self.offset = self.rng.integers(10**12, 2 * 10**12, size=size)
        self.rows: list[list[tuple[int, ...]]] = [[] for _ in range(size)]
        self.seq = 0

    def run(self) -> Simulated:
        size = self.s.ranks
        step_host, step_device = self.host.copy(), self.compute.copy()
        for step in range(self.s.steps):
            noise = np.maximum(1 + self.s.jitter * self.rng.standard_normal(size), 0.3)
            self._input(step, noise)
            self._forward(step, noise)
            self._backward(step, noise)
            self._optimizer(step, noise)
            self._write_all(RecordKind.STEP, 0, step, step_host, self.host)
            if self.s.device_steps:
                self._write_all(RecordKind.STEP, 0, step, step_device, self.compute, gpu=True)
            step_host, step_device = self.host.copy(), self.compute.copy()
            self.host = np.maximum(self.host, self.compute)  # the loss is printed
        clocks = [f"clock{rank}" for rank in range(size)]
        return Simulated(rows=self.rows, groups=[("dp", tuple(range(size)))], clocks=clocks)

    def _extra(self, kind: str, step: int) -> np.ndarray:
        extra = np.zeros(self.s.ranks)
        if self.s.slow == kind and step >= self.s.first:
            extra[self.s.slow_rank] = self.s.extra_ms * MS
        return extra

    def _input(self, step: int, noise: np.ndarray) -> None:
        begin = self.host.copy()
        self.host += self.s.input_ms * MS * noise + self._extra("input", step)
        self._write_all(RecordKind.PHASE, Phase.INPUT, step, begin, self.host)

    def _forward(self, step: int, noise: np.ndarray) -> None:
        begin = self.host.copy()
        device_begin = np.maximum(self.compute, self.host + LAUNCH_NS)
        late = self._extra("launch", step)
        self.host += self.s.launch_ms * MS + late
        work = self.s.forward_ms * MS * noise + self._extra("compute", step)
        # The last kernel cannot start before it is launched.
        self.compute = np.maximum(device_begin + work, self.host + LAUNCH_NS)
        self._write_all(RecordKind.PHASE, Phase.FORWARD, step, begin, self.host)
        self._write_device(Phase.FORWARD, step, device_begin, self.compute)

    def _backward(self, step: int, noise: np.ndarray) -> None:
        size, buckets = self.s.ranks, self.s.buckets
        begin = self.host.copy()
        device_begin = np.maximum(self.compute, self.host + LAUNCH_NS)
        self.compute = device_begin
        # A rank whose host is late in forward is so in backward too.
        late = self._extra("launch", step)
        for bucket in range(buckets):
            self.host = self.host + (self.s.launch_ms * MS + late) / buckets
            ready = self.compute + self.s.backward_ms * MS * noise / buckets
            ready = np.maximum(ready, self.host + LAUNCH_NS)
            self.compute = ready
            start = np.maximum(ready, self.comm)
            end = start.max() + self.s.transfer_ms * MS * self.rng.uniform(0.95, 1.05)
            last = bucket == buckets - 1
            self._write_bucket(step, ready, start, end, last)
            self.comm = np.full(size, end)
            if last:
                self.compute = np.maximum(self.compute, end)
        self._write_all(RecordKind.PHASE, Phase.BACKWARD, step, begin, self.host)
        self._write_device(Phase.BACKWARD, step, device_begin, self.compute)

    def _write_bucket(
        self, step: int, ready: np.ndarray, start: np.ndarray, end: float, last: bool
    ) -> None:
        flags = Flag.GPU_TIME | Flag.ASYNC
        for rank in range(self.s.ranks):
            if self.s.plugin:
                times, more = (start[rank], end, 0.0), Flag(0)
            elif last:
                times, more = (ready[rank], end, ready[rank]), Flag.PARTIAL
            else:
                times, more = (ready[rank], 0.0, 0.0), Flag(0)
            self._write(
                rank, RecordKind.COLLECTIVE, Op.ALL_REDUCE, step, *times[:2],
                seq=self.seq, issue=self.host[rank], join=times[2], flags=flags | more,
            )  # fmt: skip
        self.seq += 1

    def _optimizer(self, step: int, noise: np.ndarray) -> None:
        begin, device_begin = self.host.copy(), np.maximum(self.compute, self.host + LAUNCH_NS)
        self.host = self.host + 0.3 * MS
        self.compute = device_begin + self.s.optimizer_ms * MS * noise
        self._write_all(RecordKind.PHASE, Phase.OPTIMIZER, step, begin, self.host)
        self._write_device(Phase.OPTIMIZER, step, device_begin, self.compute)

    def _write_device(self, phase: Phase, step: int, begin: np.ndarray, end: np.ndarray) -> None:
        if self.s.device_steps:
            self._write_all(RecordKind.PHASE, phase, step, begin, end, gpu=True)

    def _write_all(
        self, kind: RecordKind, code: int, step: int, begin: np.ndarray, end: np.ndarray,
        *, gpu: bool = False,
    ) -> None:  # fmt: skip
        for rank in range(self.s.ranks):
            flags = int(Flag.GPU_TIME) if gpu else 0
            self._write(rank, kind, code, step, begin[rank], end[rank], flags=flags)

    def _write(
        self, rank: int, kind: RecordKind, code: int, step: int, start: float, end: float,
        *, seq: int = 0, issue: float = 0.0, join: float = 0.0, flags: int = 0,
    ) -> None:  # fmt: skip
        offset = int(self.offset[rank])
        ends, issued, joined = (int(t) + offset if t else 0 for t in (end, issue, join))
        self.rows[rank].append(
            (int(kind), int(code), 0, seq, step, -1, 1 << 20 if issued else 0,
             int(start) + offset, ends, joined, issued, int(flags))
        )  # fmt: skip
