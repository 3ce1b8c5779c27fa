"""The algorithms themselves, run on numbers: what they send and how often is what is charged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline_service.analysis.costs import collectives
from paceline_service.analysis.costs.alpha_beta import Cost, Link, Machine

LINK = Link(alpha_s=3e-6, bytes_per_s=10e9)
INSIDE = Link(alpha_s=1e-6, bytes_per_s=100e9)
Values = NDArray[np.float64]
Message = tuple[int, int, int]
"""Source, destination, elements."""


class Wire:
    """Rounds of messages over one port a rank; a round lasts as long as its longest message."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.seconds = 0.0

    def round(self, messages: list[Message]) -> None:
        sources, destinations = zip(*[(source, to) for source, to, _ in messages], strict=True)
        assert len(set(sources)) == len(sources)
        assert len(set(destinations)) == len(destinations)
        local = self.machine.local
        took_s = []
        for source, to, elements in messages:
            near = source // local == to // local
            link = self.machine.local_link if near else self.machine.link
            took_s.append(link.alpha_s + 8 * elements / link.bytes_per_s)
        self.seconds += max(took_s)


def drawn(ranks: int, elements: int) -> Values:
    return np.random.default_rng(7).normal(size=(ranks, elements))


def rings(members: list[list[int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the rounds of rings side by side: source, destination, and the part's number."""
    size = len(members[0])
    for step in range(size - 1):
        yield [
            (ring[place], ring[(place + 1) % size], (place - step) % size)
            for ring in members
            for place in range(size)
        ]


def reduce_scatter(values: Values, members: list[list[int]], wire: Wire) -> None:
    """Leave in every rank the sum of the part after its own place."""
    parts = [np.split(row, len(members[0])) for row in values]
    for messages in rings(members):
        wire.round([(source, to, len(parts[source][part])) for source, to, part in messages])
        sent = [parts[source][part].copy() for source, _, part in messages]
        for (_, to, part), data in zip(messages, sent, strict=True):
            parts[to][part] += data


def all_gather(values: Values, members: list[list[int]], wire: Wire) -> None:
    """Bring to every rank the part after the place of each."""
    size = len(members[0])
    parts = [np.split(row, size) for row in values]
    for messages in rings(members):
        shifted = [(source, to, (part + 1) % size) for source, to, part in messages]
        wire.round([(source, to, len(parts[source][part])) for source, to, part in shifted])
        sent = [parts[source][part].copy() for source, _, part in shifted]
        for (_, to, part), data in zip(shifted, sent, strict=True):
            parts[to][part][:] = data


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_ring_all_reduce_sums_and_costs_what_is_charged(ranks: int) -> None:
    machine = Machine(ranks=ranks, link=LINK)
    values, wire = drawn(ranks, 24 * ranks), Wire(machine)
    total = values.sum(axis=0)
    reduce_scatter(values, [list(range(ranks))], wire)
    all_gather(values, [list(range(ranks))], wire)
    assert np.allclose(values, total)
    assert wire.seconds == pytest.approx(charged(collectives.ring_all_reduce(machine), values))


def test_a_hierarchical_all_reduce_sums_and_costs_what_is_charged() -> None:
    machine = Machine(ranks=12, link=LINK, ranks_per_node=4, inside=INSIDE)
    values, wire = drawn(12, 48), Wire(machine)
    total = values.sum(axis=0)
    nodes = [list(range(first, first + 4)) for first in (0, 4, 8)]
    reduce_scatter(values, nodes, wire)
    # The rank with place p of a node has the sum of part p + 1; those with one place meet.
    width = values.shape[1] // 4
    own = [((rank % 4 + 1) % 4) * width for rank in range(12)]
    shares = np.array([values[rank, own[rank] : own[rank] + width] for rank in range(12)])
    across = [[place, place + 4, place + 8] for place in range(4)]
    reduce_scatter(shares, across, wire)
    all_gather(shares, across, wire)
    for rank in range(12):
        values[rank, own[rank] : own[rank] + width] = shares[rank]
    all_gather(values, nodes, wire)
    assert np.allclose(values, total)
    cost = collectives.hierarchical_all_reduce(machine)
    assert wire.seconds == pytest.approx(charged(cost, values))


def test_an_all_to_all_in_pairs_costs_what_is_charged() -> None:
    machine = Machine(ranks=8, link=LINK, ranks_per_node=4, inside=INSIDE)
    wire = Wire(machine)
    for step in range(1, 8):  # partners of rounds 1 to 3 are in the node
        wire.round([(rank, rank ^ step, 5) for rank in range(8)])
    assert wire.seconds == pytest.approx(collectives.pairwise(machine).seconds(8 * 8 * 5))


def test_an_all_gather_by_doubling_gathers_and_costs_what_is_charged() -> None:
    machine = Machine(ranks=8, link=LINK, ranks_per_node=4, inside=INSIDE)
    wire = Wire(machine)
    held = [{rank} for rank in range(8)]
    for distance in (1, 2, 4):
        wire.round([(rank, rank ^ distance, 5 * len(held[rank])) for rank in range(8)])
        held = [held[rank] | held[rank ^ distance] for rank in range(8)]
    assert all(parts == set(range(8)) for parts in held)
    assert wire.seconds == pytest.approx(collectives.doubling(machine).seconds(8 * 8 * 5))


def test_brucks_all_to_all_delivers_and_costs_what_is_charged() -> None:
    machine, wire = Machine(ranks=8, link=LINK), Wire(Machine(ranks=8, link=LINK))
    # Of every rank: the parts it holds, as (from, to); a part moves by the bits of its distance.
    held = [{(rank, to) for to in range(8)} for rank in range(8)]
    for bit in (1, 2, 4):
        moves = [{p for p in held[rank] if (p[1] - p[0]) % 8 & bit} for rank in range(8)]
        wire.round([(rank, (rank + bit) % 8, 5 * len(moves[rank])) for rank in range(8)])
        for rank in range(8):
            held[rank] -= moves[rank]
        for rank in range(8):
            held[(rank + bit) % 8] |= moves[rank]
    assert all(held[rank] == {(source, rank) for source in range(8)} for rank in range(8))
    assert wire.seconds == pytest.approx(collectives.bruck(machine).seconds(8 * 8 * 5))


def test_a_central_server_costs_what_is_charged() -> None:
    machine = Machine(ranks=8, link=LINK)
    wire = Wire(Machine(ranks=9, link=LINK))  # the ninth serves
    for rank in range(8):
        wire.round([(rank, 8, 100)])
    for rank in range(8):
        wire.round([(8, rank, 100)])
    assert wire.seconds == pytest.approx(collectives.central_server(machine).seconds(800))


def charged(cost: Cost, values: Values) -> float:
    return cost.seconds(8 * values.shape[1])
