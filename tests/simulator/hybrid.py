"""Simulates a job with tensor, data and pipeline parallelism, rank by rank.

Every rank runs a program of its own: work, collectives, sends and receives that meet their peer.
Nothing here knows how waits are analysed; the truth is who was made slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.vocabulary import Op, Phase, RecordKind
from tests.simulator.job import MS, Simulated


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """What is simulated; ranks are numbered tensor first, then data, then pipeline.

    ``slow`` takes ``extra_ms`` more in ``phase`` of every step; the transfers of the group
    ``slow_group`` (its name) take ``extra_ms`` more each.
    """

    tensor: int = 1
    data: int = 1
    stages: int = 1
    micro_batches: int = 4
    layers: int = 2
    steps: int = 20
    seed: int = 1
    jitter: float = 0.01
    work_ms: float = 4.0
    transfer_ms: float = 0.3
    slow: int = -1
    slow_group: str = ""
    phase: Phase = Phase.FORWARD
    extra_ms: float = 0.0
    stage_ms: tuple[float, ...] = ()
    """Extra work of each stage in forward, per micro-batch."""
    shared_clock: bool = False

    @property
    def world_size(self) -> int:
        return self.tensor * self.data * self.stages


@dataclass
class _Call:
    """Where a rank stands: at ``key`` since ``arrival``."""

    key: tuple[object, ...]
    members: tuple[int, ...]
    arrival: float
    row: dict[str, int]


Action = tuple[Any, ...]


def simulate_hybrid(job: Hybrid) -> Simulated:
    """Run the job; the same job gives the same rows."""
    return _Run(job).run()


class _Run:
    def __init__(self, job: Hybrid) -> None:
        self.job = job
        self.rng = np.random.default_rng(job.seed)
        size = job.world_size
        self.grid = np.arange(size).reshape(job.stages, job.data, job.tensor)
        offset = self.rng.integers(10**12, 2 * 10**12, size=size)
        self.offset = np.full(size, offset[0]) if job.shared_clock else offset
        self.rows: list[list[tuple[int, ...]]] = [[] for _ in range(size)]
        self.now = np.zeros(size)
        self.seq: dict[tuple[object, ...], int] = {}
        self.groups: list[tuple[str, tuple[int, ...]]] = []
        self.of: dict[str, dict[int, int]] = {"tp": {}, "dp": {}, "pp": {}}
        for name, axis in (("tp", 2), ("dp", 1), ("pp", 0)):
            for number, ranks in enumerate(np.moveaxis(self.grid, axis, -1).reshape(
                -1, self.grid.shape[axis]
            ).tolist()):  # fmt: skip
                if len(ranks) > 1:
                    for rank in ranks:
                        self.of[name][rank] = len(self.groups)
                    self.groups.append((f"{name}{number}", tuple(ranks)))

    def run(self) -> Simulated:
        for step in range(self.job.steps):
            self._step(step)
        shared = self.job.shared_clock
        clocks = ["one" if shared else f"clock{rank}" for rank in range(self.job.world_size)]
        return Simulated(rows=self.rows, groups=self.groups or [("none", (0,))], clocks=clocks)

    def _program(self, rank: int) -> list[Action]:
        job = self.job
        stage = rank // (job.data * job.tensor)
        below = rank - job.data * job.tensor
        above = rank + job.data * job.tensor
        program: list[Action] = [("phase", Phase.INPUT), ("work", Phase.INPUT), ("end",)]
        for phase, source, target in (
            (Phase.FORWARD, below, above), (Phase.BACKWARD, above, below)
        ):  # fmt: skip
            for _ in range(job.micro_batches):
                if 0 <= source < job.world_size and job.stages > 1:
                    program.append(("recv", source))
                program.append(("phase", phase))
                for _ in range(job.layers):
                    program.append(("work", phase))
                    if job.tensor > 1:
                        program.append(("all", "tp", Op.ALL_REDUCE))
                program.append(("end",))
                if 0 <= target < job.world_size and job.stages > 1:
                    program.append(("send", target))
        if job.data > 1:
            program.append(("all", "dp", Op.REDUCE_SCATTER))
        program += [("phase", Phase.OPTIMIZER), ("work", Phase.OPTIMIZER), ("end",)]
        assert stage < job.stages
        return program

    def _step(self, step: int) -> None:
        size = self.job.world_size
        begin = self.now.copy()
        programs = [self._program(rank) for rank in range(size)]
        counts = [{p: sum(a == ("work", p) for a in one) for p in Phase} for one in programs]
        at = [0] * size
        waiting: list[_Call | None] = [None] * size
        opened: list[tuple[Phase, float] | None] = [None] * size
        moved = True
        while moved:
            moved = False
            for rank in range(size):
                while at[rank] < len(programs[rank]) and waiting[rank] is None:
                    self._act(rank, step, programs[rank][at[rank]], counts, waiting, opened)
                    at[rank] += 1
                    moved = True
            for rank in range(size):
                call = waiting[rank]
                if call is None:
                    continue
                others = [waiting[member] for member in call.members]
                if all(other is not None and other.key == call.key for other in others):
                    self._release(step, call, waiting)
                    moved = True
        assert all(done == len(program) for done, program in zip(at, programs, strict=True))
        for rank in range(size):
            self._write(rank, RecordKind.STEP, 0, step, begin[rank], self.now[rank])

    def _act(
        self, rank: int, step: int, action: Action, counts: list[dict[Phase, int]],
        waiting: list[_Call | None], opened: list[tuple[Phase, float] | None],
    ) -> None:  # fmt: skip
        job = self.job
        if action[0] == "work":
            phase = Phase(action[1])
            ms = job.work_ms
            if phase == Phase.FORWARD and job.stage_ms:
                ms += job.stage_ms[rank // (job.data * job.tensor)] / job.layers
            ms *= max(1 + job.jitter * self.rng.standard_normal(), 0.2)
            if rank == job.slow and phase == job.phase:
                ms += job.extra_ms / counts[rank][phase]
            self.now[rank] += ms * MS
        elif action[0] == "phase":
            opened[rank] = (action[1], self.now[rank])
        elif action[0] == "end":
            phase, since = opened[rank] or (Phase.HOST, self.now[rank])
            self._write(rank, RecordKind.PHASE, phase, step, since, self.now[rank])
        elif action[0] == "all":
            group = self.of[str(action[1])][rank]
            waiting[rank] = _Call(
                ("all", group), self.groups[group][1], self.now[rank],
                {"code": int(action[2]), "group": group, "peer": -1},
            )  # fmt: skip
        else:
            peer = int(action[1])
            sends = action[0] == "send"
            source, target = (rank, peer) if sends else (peer, rank)
            code = Op.SEND if sends else Op.RECV
            waiting[rank] = _Call(
                ("pair", source, target), (source, target), self.now[rank],
                {"code": int(code), "group": self.of["pp"][rank], "peer": peer},
            )  # fmt: skip

    def _release(self, step: int, call: _Call, waiting: list[_Call | None]) -> None:
        key = call.key
        seq = self.seq[key] = self.seq.get(key, -1) + 1
        calls = [(member, waiting[member]) for member in call.members]
        release = max(one.arrival for _, one in calls if one is not None)
        release += self.job.transfer_ms * MS * self.rng.uniform(0.95, 1.05)
        group = calls[0][1].row["group"] if calls[0][1] is not None else 0
        if self.groups[group][0] == self.job.slow_group:
            release += self.job.extra_ms * MS
        for member, one in calls:
            assert one is not None
            self._write(
                member, RecordKind.COLLECTIVE, one.row["code"], step, one.arrival, release,
                group=one.row["group"], seq=seq, peer=one.row["peer"], join=True,
            )  # fmt: skip
            self.now[member] = release
            waiting[member] = None

    def _write(
        self, rank: int, kind: RecordKind, code: int, step: int, start: float, end: float,
        *, group: int = 0, seq: int = 0, peer: int = -1, join: bool = False,
    ) -> None:  # fmt: skip
        begin = int(start) + int(self.offset[rank])
        self.rows[rank].append(
            (int(kind), int(code), group, seq, step, peer, 1 << 20, begin,
             int(end) + int(self.offset[rank]), begin if join else 0, begin, 0)
        )  # fmt: skip
