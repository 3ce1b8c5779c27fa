"""Simulates a pipeline- and data-parallel job (1F1B) and writes what the hooks would record.

The truth is known: how heavy each stage is, and which rank was made slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from paceline.vocabulary import Flag, Op, Phase, RecordKind
from tests.simulator.job import MS, Simulated

_FORWARD, _BACKWARD = 0, 1


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What is simulated. Rank ``d * stages + s`` is stage ``s`` of replica ``d``.

    Attributes:
        weight: how heavy each stage is; empty means all 1.
        slow: factor of each rank's computations, from ``slow_from`` to before ``slow_until``.
        jitter: coefficient of variation of each computation.
    """

    replicas: int = 2
    stages: int = 4
    microbatches: int = 8
    steps: int = 60
    forward_ms: float = 4.0
    backward_ms: float = 8.0
    optimizer_ms: float = 3.0
    transfer_ms: float = 0.1
    reduce_ms: float = 2.0
    weight: tuple[float, ...] = ()
    slow: dict[int, float] = field(default_factory=dict)
    slow_from: int = 0
    slow_until: int = 1 << 30
    jitter: float = 0.01
    seed: int = 1
    first_step: int = 0
    mesh_dim: str = "pp"

    @property
    def world_size(self) -> int:
        return self.replicas * self.stages


def simulate_pipeline(scenario: Pipeline) -> Simulated:
    """Run the job; the same scenario gives the same rows."""
    return _Run(scenario).run()


def program(stage: int, stages: int, microbatches: int) -> list[tuple[str, int, int]]:
    """Return what a rank does in one step: (what, direction, microbatch), in its order."""
    done: list[tuple[str, int, int]] = []

    def compute(direction: int, microbatch: int) -> None:
        first = stage == 0 if direction == _FORWARD else stage == stages - 1
        last = stage == stages - 1 if direction == _FORWARD else stage == 0
        if not first:
            done.append(("recv", direction, microbatch))
        done.append(("compute", direction, microbatch))
        if not last:
            done.append(("send", direction, microbatch))

    ahead = min(stages - 1 - stage, microbatches)
    for microbatch in range(ahead):
        compute(_FORWARD, microbatch)
    for microbatch in range(microbatches):
        if microbatch + ahead < microbatches:
            compute(_FORWARD, microbatch + ahead)
        compute(_BACKWARD, microbatch)
    return done


class _Run:
    def __init__(self, scenario: Pipeline) -> None:
        self.s = scenario
        self.rng = np.random.default_rng(scenario.seed)
        size = scenario.world_size
        self.offset = self.rng.integers(10**12, 2 * 10**12, size=size)
        self.now = np.full(size, float(MS))  # a time of 0 would mean unknown
        self.rows: list[list[tuple[int, ...]]] = [[] for _ in range(size)]
        self.seq: dict[tuple[int, int, int, int], int] = {}
        d, s = scenario.replicas, scenario.stages
        self.groups = [(f"pp{r}", tuple(range(r * s, (r + 1) * s))) for r in range(d)]
        self.groups += [(f"dp{k}", tuple(range(k, d * s, s))) for k in range(s)]
        self.groups.append(("all", tuple(range(d * s))))

    def run(self) -> Simulated:
        for step in range(self.s.first_step, self.s.first_step + self.s.steps):
            begin = self.now.copy()
            for replica in range(self.s.replicas):
                self._pipeline(replica, step)
            for stage in range(self.s.stages):
                self._all_together(self.s.replicas + stage, step, self.s.reduce_ms)
            for rank in range(self.s.world_size):
                self._phase(rank, Phase.OPTIMIZER, step, self.s.optimizer_ms)
            self._all_together(self.s.replicas + self.s.stages, step, 0.05)
            for rank in range(self.s.world_size):
                self._write(rank, RecordKind.STEP, 0, step, begin[rank], self.now[rank])
        clocks = [f"clock{rank}" for rank in range(self.s.world_size)]
        return Simulated(rows=self.rows, groups=self.groups, clocks=clocks)

    def _pipeline(self, replica: int, step: int) -> None:
        stages = self.s.stages
        programs = [program(k, stages, self.s.microbatches) for k in range(stages)]
        position = [0] * stages
        sent: dict[tuple[int, int, int], float] = {}
        while any(position[k] < len(programs[k]) for k in range(stages)):
            for k in range(stages):
                while position[k] < len(programs[k]):
                    what, direction, microbatch = programs[k][position[k]]
                    rank = replica * stages + k
                    if what == "compute":
                        phase = (Phase.FORWARD, Phase.BACKWARD)[direction]
                        base = (self.s.forward_ms, self.s.backward_ms)[direction]
                        self._phase(rank, phase, step, base * self._factor(rank, k, step))
                    elif what == "send":
                        sent[k, direction, microbatch] = self.now[rank]
                    else:
                        source = k + (-1 if direction == _FORWARD else 1)
                        key = (source, direction, microbatch)
                        if key not in sent:
                            break
                        self._transfer(replica, source, k, step, sent.pop(key))
                    position[k] += 1

    def _factor(self, rank: int, stage: int, step: int) -> float:
        weight = self.s.weight[stage] if self.s.weight else 1.0
        slow = self.s.slow.get(rank, 1.0) if self.s.slow_from <= step < self.s.slow_until else 1.0
        return weight * slow * max(1 + self.s.jitter * self.rng.standard_normal(), 0.2)

    def _phase(self, rank: int, phase: Phase, step: int, work_ms: float) -> None:
        begin = self.now[rank]
        self.now[rank] += work_ms * MS
        self._write(rank, RecordKind.PHASE, int(phase), step, begin, self.now[rank])

    def _transfer(
        self, replica: int, source: int, destination: int, step: int, sent: float
    ) -> None:
        """The receiver waits; the sender has gone on, its send ends with the receive."""
        base = replica * self.s.stages
        sender, receiver = base + source, base + destination
        key = (replica, 0, sender, receiver)
        seq = self.seq[key] = self.seq.get(key, -1) + 1
        arrived = self.now[receiver]
        end = max(sent, arrived) + self.s.transfer_ms * MS
        self._collective(sender, replica, Op.SEND, step, seq, sent, end, 0.0, peer=receiver)
        self._collective(receiver, replica, Op.RECV, step, seq, arrived, end, arrived, peer=sender)
        self.now[receiver] = end

    def _all_together(self, group: int, step: int, transfer_ms: float) -> None:
        members = np.array(self.groups[group][1])
        key = (group, 1, -1, -1)
        seq = self.seq[key] = self.seq.get(key, -1) + 1
        arrival = self.now[members]
        end = arrival.max() + transfer_ms * MS
        for rank, arrived in zip(members.tolist(), arrival, strict=True):
            self._collective(rank, group, Op.ALL_REDUCE, step, seq, arrived, end, arrived)
            self.now[rank] = end

    def _collective(
        self, rank: int, group: int, op: Op, step: int, seq: int, start: float, end: float,
        join: float, *, peer: int = -1,
    ) -> None:  # fmt: skip
        flags = 0 if join > 0 else Flag.ASYNC
        self._write(rank, RecordKind.COLLECTIVE, int(op), step, start, end, group=group, seq=seq,
                    join=join, peer=peer, flags=int(flags), payload_bytes=1 << 20)  # fmt: skip

    def _write(
        self, rank: int, kind: RecordKind, code: int, step: int, start: float, end: float,
        *, group: int = 0, seq: int = 0, join: float = 0.0, peer: int = -1, payload_bytes: int = 0,
        flags: int = 0,
    ) -> None:  # fmt: skip
        offset = int(self.offset[rank])
        joined = int(join) + offset if join > 0 else 0
        self.rows[rank].append(
            (int(kind), code, group, seq, step, peer, payload_bytes, int(start) + offset,
             int(end) + offset, joined, int(start) + offset, flags)
        )  # fmt: skip
