"""What collectives cost by each algorithm, and which is cheapest at which size.

Source: docs/math/costs.md, table of collectives. K ranks, M nodes of G. The payload is the whole
buffer, as in nccl-tests: of an all-gather all that a rank has at the end, of a reduce-scatter all
that it brings, of an all-to-all all that it sends, its own part included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from paceline_service.analysis.costs.alpha_beta import Cost, Link, Machine, Pipelined, messages

Algorithm = Callable[[Machine], Cost]
_DECADES = 15
_HALVINGS = 60


def least_sent_ratio(op: str, ranks: int) -> float:
    """Return what every rank must send at least, over the payload: 2 (K-1)/K of an all-reduce.

    It is also the bus bandwidth over the payload per time (nccl-tests, doc/PERFORMANCE.md).
    """
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks


def ring_all_reduce_s(
    ranks: int, size_bytes: float, bytes_per_s: float, alpha_s: float = 0.0
) -> float:
    """Return 2 (K-1) alpha + 2 (K-1)/K bytes / B: a ring over one kind of link."""
    link = Link(alpha_s=alpha_s, bytes_per_s=bytes_per_s)
    return ring_all_reduce(Machine(ranks=ranks, link=link)).seconds(size_bytes)


def ring(machine: Machine) -> Cost:
    """Return the cost of an all-gather, or a reduce-scatter, along rings through all ranks.

    Of the K-1 messages that follow one another M-1 go between nodes. Every rank of a node has a
    way out, and the library lays a ring through each (channels): a node sends G times as fast.
    """
    ranks, between = machine.ranks, machine.nodes - 1
    inside = ranks - 1 - between
    slowest = 0.0
    if machine.nodes > 1:
        slowest = machine.link.s_per_byte / machine.local
    if machine.local > 1 or machine.nodes == 1:
        slowest = max(slowest, machine.local_link.s_per_byte)
    latency_s = inside * machine.local_link.alpha_s + between * machine.link.alpha_s
    return Cost(latency_s, (ranks - 1) / ranks * slowest)


def ring_all_reduce(machine: Machine) -> Cost:
    """Return the cost of a reduce-scatter and an all-gather along the same ring."""
    return ring(machine).times(2)


def tree_all_reduce(machine: Machine) -> Cost:
    """Return the cost of two binary trees, each for half of the payload, chains inside nodes.

    Every rank sends the payload up once and down once, whatever K is: 2 bytes / B, in chunks that
    follow one another up and down.
    """
    nodes, local = machine.nodes, machine.local
    if machine.ranks == 1:
        return Cost(0.0, 0.0)
    slowest, latency_s = 0.0, 0.0
    if nodes > 1:
        slowest = machine.link.s_per_byte / local
        latency_s = _rounds(nodes) * machine.link.alpha_s
    if local > 1:
        slowest = max(slowest, machine.local_link.s_per_byte)
        latency_s += (local - 1) * machine.local_link.alpha_s
    chunk = machine.link if nodes > 1 else machine.local_link
    hops = _rounds(nodes) + local - 1
    return Pipelined(2 * latency_s, 2 * slowest, hops, 2 * chunk.alpha_s)


def hierarchical(machine: Machine) -> Cost:
    """Return the cost of an all-gather, or a reduce-scatter, in two phases.

    The ranks with one place in their nodes do 1/G of the payload between nodes, then (or before)
    the ranks of a node share it among themselves.
    """
    nodes, local = machine.nodes, machine.local
    between = messages(machine.link, nodes - 1, (nodes - 1) / nodes / local)
    return between + messages(machine.local_link, local - 1, (local - 1) / local)


def hierarchical_all_reduce(machine: Machine) -> Cost:
    """Return the cost of reduce-scatter in nodes, all-reduce between them, all-gather in nodes."""
    return hierarchical(machine).times(2)


def doubling(machine: Machine) -> Cost:
    """Return the cost of an all-gather, or a reduce-scatter, with partners 1, 2, 4, ... away.

    The first partners are in the same node; what comes from other nodes comes to every rank.
    """
    ranks, local = machine.ranks, machine.local
    near = messages(machine.local_link, _rounds(local), (local - 1) / ranks)
    return near + messages(machine.link, _rounds(machine.nodes), (ranks - local) / ranks)


def pairwise(machine: Machine) -> Cost:
    """Return the cost of an all-to-all: a message of 1/K of the payload to every other rank."""
    ranks, near = machine.ranks, machine.local - 1
    far = ranks - 1 - near
    return messages(machine.local_link, near, near / ranks) + messages(
        machine.link, far, far / ranks
    )


def bruck(machine: Machine) -> Cost:
    """Return the cost of an all-to-all in few rounds, each with half of the payload.

    Of several nodes somebody's partner is on another one in every round, so all take that link.
    """
    rounds = _rounds(machine.ranks)
    link = machine.link if machine.nodes > 1 else machine.local_link
    return messages(link, rounds, rounds / 2)


def central_server(machine: Machine, servers: int = 1) -> Cost:
    """Return the cost of gradients to servers and parameters back, each with 1/S of them.

    Servers are machines of their own with the ranks' link. A server takes K messages one after
    the other, a rank sends S: who has more to do sets the time.
    """
    ranks = machine.ranks
    served = messages(machine.link, ranks, ranks / servers)
    asked = messages(machine.link, servers, 1.0)
    return Cost(
        2 * max(served.latency_s, asked.latency_s), 2 * max(served.s_per_byte, asked.s_per_byte)
    )


def sharded_server(machine: Machine) -> Cost:
    """Return the cost of a server on every rank, which owns 1/K of the parameters."""
    return pairwise(machine).times(2)


ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "tree": tree_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "sharded server": sharded_server,
        "central server": central_server,
    },
    "all_gather": {"ring": ring, "doubling": doubling, "hierarchical": hierarchical},
    "reduce_scatter": {"ring": ring, "halving": doubling, "hierarchical": hierarchical},
    "all_to_all": {"pairwise": pairwise, "Bruck": bruck},
}
"""By operation."""


def algorithms_for(op: str, machine: Machine) -> dict[str, Cost]:
    """Return what each algorithm costs; two phases only where there are two kinds of link."""
    phased = (hierarchical, hierarchical_all_reduce)
    one_kind = machine.local == 1 or machine.nodes == 1
    return {
        name: algorithm(machine)
        for name, algorithm in ALGORITHMS[op].items()
        if not (algorithm in phased and one_kind)
    }


def least_possible(op: str, machine: Machine) -> Cost:
    """Return bounds that no algorithm beats: of the latency, and of the bytes, each for itself.

    The time is at least the greater of the two terms. Bytes: what a node must send through all its
    ways out, and a rank through both its links.
    """
    ranks, nodes, local = machine.ranks, machine.nodes, machine.local
    alpha_s = min(machine.link.alpha_s, machine.local_link.alpha_s)
    rate_of_rank = machine.local_link.bytes_per_s
    if local > 1 and nodes > 1:
        rate_of_rank += machine.link.bytes_per_s
    rate = least_sent_ratio(op, ranks) / rate_of_rank
    if nodes > 1:
        leaving = (
            (ranks - local) / ranks if op == "all_to_all" else least_sent_ratio(op, nodes) / local
        )
        rate = max(rate, leaving * machine.link.s_per_byte)
    return Cost(_rounds(ranks) * alpha_s, rate)


def cheapest_by_size(costs: Mapping[str, Cost]) -> list[tuple[float, str]]:
    """Return from which payload on which algorithm is cheapest: ``[(0, tree), (2e7, ring)]``.

    Of equal ones the first named counts. Looked for at tenths of a decade, then halved.
    """

    def best(size_bytes: float) -> str:
        return min(costs, key=lambda name: costs[name].seconds(size_bytes))

    before_bytes, now = 1.0, best(1.0)
    steps = [(0.0, now)]
    for tenth in range(1, 10 * _DECADES + 1):
        size_bytes = 10 ** (tenth / 10)
        while best(size_bytes) != now:  # more than once where one is cheapest in between only
            low, high = before_bytes, size_bytes
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if best(middle) == now else (low, middle)
            before_bytes, now = high, best(high)
            steps.append((high, now))
        before_bytes = size_bytes
    return steps


def _rounds(partners: int) -> int:
    return math.ceil(math.log2(partners)) if partners > 1 else 0
