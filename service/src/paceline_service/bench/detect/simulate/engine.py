"""The state of a running job: the time of every rank, and what moves it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from paceline.vocabulary import Flag, Op, Phase
from paceline_service.bench.detect.simulate.emit import Clocks, Emitter
from paceline_service.bench.detect.simulate.faults import PHASES, Slowness, slowness_at
from paceline_service.bench.detect.simulate.layout import (
    GroupClass,
    GroupInfo,
    IntArray,
    Layout,
    make_groups,
)
from paceline_service.bench.detect.simulate.noise import RankNoise
from paceline_service.bench.detect.simulate.spec import NS, FloatArray, JobSpec

DRIFT_PPM = (5.0, 30.0)
"""Clocks drift by that much (DETECTION section 2)."""
RELEASE_SKEW_S = 0.0003
"""How much later one node sees releases than another, at most."""


class Engine:
    """Moves the ranks of one job through its operations.

    Chance that faults could change is never drawn: a job with and without its faults sees the
    same noise, so the difference of their times is what the faults cost.

    Args:
        spec: the job.
        emit: whether records are wanted.
    """

    def __init__(self, spec: JobSpec, *, emit: bool) -> None:
        self.spec = spec
        size = spec.layout.world_size
        seeds = np.random.SeedSequence(spec.seed).spawn(6)
        chance = [np.random.default_rng(seed) for seed in seeds]
        self.noise = RankNoise(spec.noise, size, chance[0])
        self._operation, self._transfer, self._release, clocks, self.control_chance = chance[1:]
        node = spec.layout.node_of(np.arange(size))
        domain = node if spec.shared_clocks else np.arange(size)
        offset = clocks.integers(10**12, 10**15, size=domain.max() + 1)
        drift = clocks.choice([-1e-6, 1e-6], len(offset)) * clocks.uniform(*DRIFT_PPM, len(offset))
        self.clocks = Clocks(offset_ns=offset[domain], drift=drift[domain], domain=domain)
        skew = clocks.uniform(0, min(RELEASE_SKEW_S, spec.release_noise_s), node.max() + 1)
        self._skew_ns = skew[node] * NS
        self.emitter = Emitter(self.clocks, enabled=emit)
        self.now: FloatArray = np.full(size, NS)
        self.self_ns: FloatArray = np.zeros(size)
        self.step = 0
        self.slow = Slowness(factor=np.ones((PHASES, size)), pauses=np.zeros(size))
        self.factor: FloatArray = np.ones((PHASES, size))
        self.infos: list[GroupInfo] = []
        self._epoch = -1
        self.form(spec.layout)

    def form(self, layout: Layout) -> None:
        """Make the groups of ``layout``; the ranks' times go on."""
        self.layout = layout
        self._epoch += 1
        self.groups, infos = make_groups(layout, len(self.infos), self._epoch)
        self.infos += infos
        self._seq: dict[int, int] = {}
        self._comm_free = {name: np.zeros(len(self.now)) for name in self.groups}

    def begin(self, step: int) -> None:
        """Draw what holds in ``step``."""
        self.step = step
        noise = self.noise.step()
        # Drawn whether or not a fault rotates.
        turn = int(self.layout.ranks[int(self.control_chance.integers(self.layout.world_size))])
        self.slow = slowness_at(step, self.spec.faults, len(self.now), self.spec.phase_ns, turn)
        self.factor = self.slow.factor * noise
        self.self_ns = np.zeros(len(self.now))

    def compute(self, phase: Phase, ranks: IntArray, parts: int = 1) -> None:
        """Let ``ranks`` work for one of ``parts`` of a phase."""
        own = self.spec.phase_ns[phase] / parts
        n = self.spec.noise
        each = 1 + n.operation * n.jitter * self._operation.standard_normal(len(ranks))
        self.spend(ranks, own * self.factor[phase, ranks] * np.maximum(each, 0.2))

    def spend(self, ranks: IntArray, time_ns: FloatArray) -> None:
        """Let ``ranks`` be busy for so long."""
        self.now[ranks] += time_ns
        self.self_ns[ranks] += time_ns

    @contextmanager
    def phase(self, phase: Phase, ranks: IntArray) -> Iterator[None]:
        """Record what happens within as ``phase`` of ``ranks``; pauses lie at its begin."""
        begin = self.now[ranks]
        yield
        self.emitter.phase(phase, self.step, ranks, begin, self.now[ranks])
        paused = np.flatnonzero(self.slow.pauses[ranks] > 0)
        if phase == Phase.FORWARD and len(paused):
            who = ranks[paused]
            length = self.spec.phase_ns[Phase.FORWARD] * self.slow.pauses[who]
            end = np.minimum(begin[paused] + length, self.now[who])
            self.emitter.phase(Phase.GC, self.step, who, begin[paused], end)

    def blocking(
        self, dimension: str, op: Op, *, part: float = 1.0, stage: int | None = None
    ) -> None:
        """Let every group of a dimension do one operation that all of its callers wait for.

        Args:
            dimension: whose groups; nothing happens where the job has none.
            op: what they do.
            part: of the usual payload.
            stage: only the groups of this pipeline stage.
        """
        groups = self.groups.get(dimension)
        if groups is None:
            return
        if stage is not None:
            groups = groups.part(stage, self.layout.pp)
        release = self.start(dimension, op, part=part, blocking=True, groups=groups)
        self.now[groups.members] = np.maximum(self.now[groups.members], release)

    def start(
        self, dimension: str, op: Op, *, part: float = 1.0, joined: FloatArray | None = None,
        blocking: bool = False, groups: GroupClass | None = None,
    ) -> FloatArray:  # fmt: skip
        """Start one operation per group; it runs behind what the streams of its members still do.

        Recorded is the call, as the hooks record it where nothing is timed on a device.

        Args:
            dimension: whose groups.
            op: what they do.
            part: of the usual payload.
            joined: (R,) when callers that went on will wait for it, or 0 where they never do.
            blocking: whether callers wait at once.
            groups: those of the dimension that do it; None is all.

        Returns:
            (G, S) when each member sees the release.
        """
        groups = self.groups[dimension] if groups is None else groups
        members = groups.members
        arrival = self.now[members]
        ready = np.maximum(arrival, self._comm_free[dimension][members])
        payload = self.spec.bytes_of(dimension, part)
        transfer = self.transfer_ns(dimension, payload, groups)
        lag = np.abs(self._release.standard_normal(members.shape)) * self.spec.release_noise_s * NS
        release = (ready.max(axis=1) + transfer)[:, None] + lag + self._skew_ns[members]
        self._comm_free[dimension][members] = release
        first = int(groups.index[0])
        seq = self._seq.get(first, 0)
        self._seq[first] = seq + 1
        flags = Flag(0) if blocking else Flag.ASYNC
        join = arrival if blocking else None if joined is None else joined[members]
        self.emitter.collective(
            op, self.step, members, np.broadcast_to(groups.index[:, None], members.shape),
            np.full(members.shape, seq), start=arrival, end=release, join=join,
            payload_bytes=payload, flags=flags,
        )  # fmt: skip
        return np.asarray(release)

    def wait(self, dimension: str, release: FloatArray) -> None:
        """Let the members of every group stand still until ``release``, (G, S)."""
        members = self.groups[dimension].members
        self.now[members] = np.maximum(self.now[members], release)

    def transfer_ns(self, dimension: str, payload: int, groups: GroupClass) -> FloatArray:
        """Return (G,) how long one transfer takes in each group, once all are there."""
        link = self.spec.links[dimension]
        time_ns = (link.alpha_s + payload / link.bytes_per_s) * NS
        chance = 1 + self.spec.transfer_jitter * self._transfer.standard_normal(len(groups.index))
        out = time_ns * np.maximum(chance, 0.5)
        for fault, size in self.slow.network:
            out = out * fault.transfer_factor(groups, size)
        return np.asarray(out)

    def message_ns(self, source: IntArray, target: IntArray) -> FloatArray:
        """Return (N,) how long one message between each pair of ranks takes."""
        link = self.spec.links["pp"]
        time_ns = (link.alpha_s + self.spec.bytes_of("pp") / link.bytes_per_s) * NS
        chance = 1 + self.spec.transfer_jitter * self._transfer.standard_normal(len(source))
        out = time_ns * np.maximum(chance, 0.5)
        for fault, size in self.slow.network:
            nodes = self.layout.node_of(source), self.layout.node_of(target)
            out = out * fault.pair_factor(*nodes, size)
        return np.asarray(out)
