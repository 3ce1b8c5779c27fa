"""Simulates the transfers of a job whose network is known: nodes, NICs, links, and what slows.

Imports nothing of the analysis. A transfer takes ``alpha + beta * bytes`` times noise; a fault
multiplies it where the group or pair uses the slow part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from paceline.vocabulary import Flag, Op, RecordKind
from tests.simulator.job import MS, Simulated

US = 1_000


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Collectives of one group in every step, in this order; of a pair where ``op`` is SEND."""

    group: str
    ranks: tuple[int, ...]
    op: Op
    sizes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Slowness:
    """Transfers that use ``what`` take ``factor`` times as long, from ``first`` to ``last``.

    ``what`` is ``nic`` (of rank ``where[0]``), ``uplink`` (of node ``where[0]``), ``link`` (from
    rank ``where[0]`` to rank ``where[1]``), ``out`` (sends of a rank), ``in`` (receives of a
    rank), or ``all``.
    """

    what: str
    factor: float
    where: tuple[int, ...] = ()
    first: int = 0
    last: int = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Network:
    """What is simulated; ``noise`` is the coefficient of variation of a transfer."""

    ranks: int
    ranks_per_node: int
    traffic: tuple[Traffic, ...]
    steps: int = 150
    seed: int = 1
    compute_ms: float = 10.0
    jitter: float = 0.02
    alpha_us: float = 40.0
    beta_ns_per_byte: float = 0.1
    noise: float = 0.03
    heavy_tails: bool = False
    autocorrelation: float = 0.0
    release_noise_ms: float = 0.0
    drift_us_per_s: float = 0.0
    unequal: float = 0.0
    """Lasting differences between groups, coefficient of variation."""
    extra_compute_ms: dict[int, float] = field(default_factory=dict)
    polled: bool = False
    shared_clock: bool = False
    slow: tuple[Slowness, ...] = ()
    sizes_from: tuple[tuple[int, float], ...] = ()
    """(step, factor): payloads are multiplied from that step on."""
    random_sizes: float = 0.0
    """Spread of log sizes from one transfer to the next."""

    def node(self, rank: int) -> int:
        return rank // self.ranks_per_node

    def crosses(self, traffic: Traffic) -> bool:
        return len({self.node(rank) for rank in traffic.ranks}) > 1

    def factor(self, traffic: Traffic, step: int) -> float:
        """Return how many times as long a transfer takes in ``step``."""
        worst = 1.0
        for slow in self.slow:
            if slow.first <= step <= slow.last and self._uses(traffic, slow):
                worst = max(worst, slow.factor)
        return worst

    def _uses(self, traffic: Traffic, slow: Slowness) -> bool:
        crosses, ranks = self.crosses(traffic), traffic.ranks
        if slow.what == "all":
            return crosses
        if slow.what == "nic":
            return crosses and slow.where[0] in ranks
        if slow.what == "uplink":
            return crosses and slow.where[0] in {self.node(rank) for rank in ranks}
        pair = traffic.op == Op.SEND
        if slow.what == "link":
            return pair and ranks == slow.where
        return pair and ranks[0 if slow.what == "out" else 1] == slow.where[0]


def simulate_network(net: Network) -> Simulated:
    """Run the job; the same network gives the same rows."""
    rng = np.random.default_rng(net.seed)
    now = np.zeros(net.ranks)
    offset = rng.integers(10**12, 2 * 10**12, size=net.ranks).astype(np.float64)
    if net.shared_clock:
        offset[:] = offset[0]
    drift = net.drift_us_per_s * 1e-6 * rng.uniform(-1, 1, net.ranks)
    groups = list(dict.fromkeys((part.group, part.ranks) for part in net.traffic if part.op != (
        Op.SEND)))  # fmt: skip
    index = {group: number for number, group in enumerate(groups)}
    if any(part.op == Op.SEND for part in net.traffic):
        groups.append(("pairs", tuple(range(net.ranks))))
    rows: list[list[tuple[int, ...]]] = [[] for _ in range(net.ranks)]
    seq: dict[object, int] = {}
    state = np.zeros(len(net.traffic))
    lasting = np.exp(net.unequal * rng.standard_normal(len(net.traffic)))
    extra = np.zeros(net.ranks)
    for rank, extra_ms in net.extra_compute_ms.items():
        extra[rank] = extra_ms * MS

    def clock(rank: int, time: float) -> int:
        return int(time * (1 + drift[rank]) + offset[rank])

    for step in range(net.steps):
        begin = now.copy()
        now += net.compute_ms * MS * (1 + net.jitter * rng.standard_normal(net.ranks)) + extra
        tails = rng.standard_t(3, len(state)) / np.sqrt(3)
        shock = tails if net.heavy_tails else rng.standard_normal(len(state))
        rho = net.autocorrelation
        state = rho * state + np.sqrt(1 - rho**2) * shock
        larger = max([1.0] + [factor for since, factor in net.sizes_from if step >= since])
        for number, part in enumerate(net.traffic):
            pair = part.op == Op.SEND
            group = len(groups) - 1 if pair else index[part.group, part.ranks]
            for size in part.sizes:
                size = int(size * larger * np.exp(net.random_sizes * rng.standard_normal()))
                key = (group, part.ranks) if pair else group
                seq[key] = seq.get(key, -1) + 1
                took = (net.alpha_us * US + net.beta_ns_per_byte * size) * lasting[number]
                took *= np.exp(net.noise * state[number]) * net.factor(part, step)
                members = np.array(part.ranks)
                arrival = now[members].copy()
                late = np.abs(rng.standard_normal(len(members))) * net.release_noise_ms * MS
                end = arrival.max() + took + late
                for place, rank in enumerate(part.ranks):
                    op = Op.RECV if pair and place else part.op
                    peer = part.ranks[1 - place] if pair else -1
                    flags = int(Flag.RELEASE_POLLED | Flag.ASYNC) if net.polled else 0
                    start = clock(rank, arrival[place])
                    join = 0 if net.polled else start
                    rows[rank].append((
                        int(RecordKind.COLLECTIVE), int(op), group, seq[key], step, peer, size,
                        start, clock(rank, end[place]), join, start, flags,
                    ))  # fmt: skip
                now[members] = end
        for rank in range(net.ranks):
            rows[rank].append((
                int(RecordKind.STEP), 0, 0, 0, step, -1, 0, clock(rank, begin[rank]),
                clock(rank, now[rank]), 0, clock(rank, begin[rank]), 0,
            ))  # fmt: skip
    clocks = ["one" if net.shared_clock else f"clock{rank}" for rank in range(net.ranks)]
    return Simulated(rows=rows, groups=groups, clocks=clocks)
