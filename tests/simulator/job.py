"""Simulates a data-parallel (times tensor-parallel) job and writes what the hooks would record.

Every rank has its own clock. The truth is known: who was made slow, in which phase, since when.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from paceline.vocabulary import Flag, Op, Phase, RecordKind

MS = 1_000_000
ROW_FIELDS = (
    "kind", "code", "group", "seq", "step", "peer", "payload_bytes",
    "start_ns", "end_ns", "join_ns", "issue_ns", "flags",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``rank`` takes ``extra_ms`` more in ``phase`` of every step from ``first`` up to ``last``."""

    rank: int
    phase: Phase
    extra_ms: float
    first: int = 0
    last: int = 1 << 30

    def extra_ns(self, rank: int, phase: Phase, step: int) -> float:
        here = rank == self.rank and phase == self.phase and self.first <= step <= self.last
        return self.extra_ms * MS if here else 0.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is simulated; jitter is the coefficient of variation of each phase of each rank."""

    data_parallel: int = 4
    tensor_parallel: int = 1
    steps: int = 120
    seed: int = 1
    jitter: float = 0.02
    heavy_tails: bool = False
    common_jitter: float = 0.02
    persistent_spread: float = 0.0
    autocorrelation: float = 0.0
    shared_clock: bool = False
    release_noise_ms: float = 0.0
    phase_ms: dict[Phase, float] = field(
        default_factory=lambda: {
            Phase.HOST: 1.0,
            Phase.INPUT: 2.0,
            Phase.FORWARD: 10.0,
            Phase.BACKWARD: 20.0,
            Phase.OPTIMIZER: 4.0,
        }
    )
    transfer_ms: float = 2.0
    buckets: int = 3
    layers: int = 2
    """Tensor-parallel all-reduces in forward, and as many in backward."""
    faults: tuple[Fault, ...] = ()

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.tensor_parallel


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Rows (in ROW_FIELDS order) of each rank, the groups, and the clock domain of each rank."""

    rows: list[list[tuple[int, ...]]]
    groups: list[tuple[str, tuple[int, ...]]]
    clocks: list[str]


def simulate(scenario: Scenario) -> Simulated:
    """Run the job; the same scenario gives the same rows."""
    return _Run(scenario).run()


class _Run:
    def __init__(self, scenario: Scenario) -> None:
        self.s = scenario
        self.rng = np.random.default_rng(scenario.seed)
        size, tp = scenario.world_size, scenario.tensor_parallel
        self.now = np.zeros(size)
        self.rows: list[list[tuple[int, ...]]] = [[] for _ in range(size)]
        self.seq: dict[int, int] = {}
        offset = self.rng.integers(10**12, 2 * 10**12, size=size)
        self.offset = np.full(size, offset[0]) if scenario.shared_clock else offset
        self.spread = 1 + scenario.persistent_spread * self.rng.standard_normal(size)
        self.state = np.zeros(size)
        self.groups = [(f"dp{t}", tuple(range(t, size, tp))) for t in range(tp)]
        if tp > 1:
            self.groups += [
                (f"tp{d}", tuple(range(d * tp, (d + 1) * tp)))
                for d in range(scenario.data_parallel)
            ]

    def run(self) -> Simulated:
        for step in range(self.s.steps):
            begin = self.now.copy()
            noise = self._noise()
            self._phase(Phase.HOST, step, noise)
            self._phase(Phase.INPUT, step, noise)
            self._phase(Phase.FORWARD, step, noise)
            self._phase(Phase.BACKWARD, step, noise)
            self._phase(Phase.OPTIMIZER, step, noise)
            for rank in range(self.s.world_size):
                self._write(rank, RecordKind.STEP, 0, step, begin[rank], self.now[rank])
        domain = ["one"] * self.s.world_size if self.s.shared_clock else [
            f"clock{rank}" for rank in range(self.s.world_size)
        ]  # fmt: skip
        return Simulated(rows=self.rows, groups=self.groups, clocks=domain)

    def _noise(self) -> np.ndarray:
        """One factor per rank and step: common mode, persistent spread, AR(1) jitter."""
        size, rho = self.s.world_size, self.s.autocorrelation
        tails = self.rng.standard_t(3, size) / np.sqrt(3)
        shock = tails if self.s.heavy_tails else (
            self.rng.standard_normal(size)
        )  # fmt: skip
        self.state = rho * self.state + np.sqrt(1 - rho**2) * shock
        common = 1 + self.s.common_jitter * self.rng.standard_normal()
        return np.maximum(common * self.spread * (1 + self.s.jitter * self.state), 0.2)

    def _phase(self, phase: Phase, step: int, noise: np.ndarray) -> None:
        size, tp = self.s.world_size, self.s.tensor_parallel
        begin = self.now.copy()
        extra = np.array(
            [sum(f.extra_ns(r, phase, step) for f in self.s.faults) for r in range(size)]
        )
        work = self.s.phase_ms[phase] * MS * noise + extra
        communicates = phase in (Phase.FORWARD, Phase.BACKWARD)
        parts = self.s.layers if communicates and tp > 1 else 1
        for _ in range(parts):
            if phase == Phase.BACKWARD and parts == 1:
                self._bucketed(step, work)
            else:
                self.now += work / parts
            if parts > 1:
                for group in range(tp, len(self.groups)):
                    self._blocking(group, step)
        if phase == Phase.BACKWARD and parts > 1:
            for group in range(tp):
                self._blocking(group, step)
        if phase != Phase.HOST:
            for rank in range(size):
                self._write(rank, RecordKind.PHASE, phase, step, begin[rank], self.now[rank])

    def _blocking(self, group: int, step: int) -> None:
        members = np.array(self.groups[group][1])
        arrival = self.now[members]
        release = arrival.max() + self.s.transfer_ms * MS * self.rng.uniform(0.95, 1.05)
        self._collective(group, step, members, arrival, arrival, release, 0)

    def _bucketed(self, step: int, work: np.ndarray) -> None:
        """DDP: buckets become ready along backward; only its end waits, for the last of them."""
        members = np.array(self.groups[0][1])
        for bucket in range(self.s.buckets):
            self.now += work / self.s.buckets
            arrival = self.now[members].copy()
            transfer = self.s.transfer_ms * MS * self.rng.uniform(0.95, 1.05)
            release = arrival.max() + transfer
            last = bucket == self.s.buckets - 1
            join = arrival if last else np.zeros(len(members))
            flags = Flag.ASYNC | Flag.RELEASE_POLLED
            self._collective(0, step, members, arrival, join, release, flags, advance=last)

    def _collective(
        self,
        group: int,
        step: int,
        members: np.ndarray,
        arrival: np.ndarray,
        join: np.ndarray,
        release: float,
        flags: int,
        *,
        advance: bool = True,
    ) -> None:
        seq = self.seq[group] = self.seq.get(group, -1) + 1
        late = np.abs(self.rng.standard_normal(len(members))) * self.s.release_noise_ms * MS
        for rank, arrived, joined, lag in zip(members, arrival, join, late, strict=True):
            end = max(release + lag, arrived + 1)
            self._write(
                int(rank), RecordKind.COLLECTIVE, Op.ALL_REDUCE, step, arrived, end,
                group=group, seq=seq, join=joined, payload_bytes=1 << 20, flags=flags,
            )  # fmt: skip
            if advance:
                self.now[rank] = end

    def _write(
        self, rank: int, kind: RecordKind, code: int, step: int, start: float, end: float,
        *, group: int = 0, seq: int = 0, join: float = 0.0, payload_bytes: int = 0, flags: int = 0,
    ) -> None:  # fmt: skip
        offset = int(self.offset[rank])
        joined = int(join) + offset if join > 0 else 0
        self.rows[rank].append(
            (int(kind), int(code), group, seq, step, -1, payload_bytes, int(start) + offset,
             int(end) + offset, joined, int(start) + offset, int(flags))
        )  # fmt: skip
