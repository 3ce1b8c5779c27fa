from __future__ import annotations

import math

import pytest

from paceline.errors import ConfigError
from paceline.vocabulary import Op
from paceline_service.analysis.costs import collectives
from paceline_service.analysis.costs.alpha_beta import Cost, Link, Machine
from paceline_service.analysis.costs.collectives import (
    ALGORITHMS,
    algorithms_for,
    cheapest_by_size,
    least_possible,
    least_sent_ratio,
)
from paceline_service.analysis.network.fit import busbw_factor

NETWORK = Link(alpha_s=5e-6, bytes_per_s=25e9)
NVLINK = Link(alpha_s=1e-6, bytes_per_s=300e9)
FLAT = Machine(ranks=64, link=NETWORK)
NODES = Machine(ranks=64, link=NETWORK, ranks_per_node=8, inside=NVLINK)


def test_a_ring_sends_two_shares_of_the_payload_in_two_times_k_minus_one_messages() -> None:
    cost = collectives.ring_all_reduce(FLAT)
    assert cost.latency_s == pytest.approx(2 * 63 * 5e-6)
    assert cost.s_per_byte == pytest.approx(2 * 63 / 64 / 25e9)


def test_a_tree_has_the_latency_of_a_logarithm_and_sends_the_payload_twice() -> None:
    cost = collectives.tree_all_reduce(FLAT)
    assert cost.latency_s == pytest.approx(2 * 6 * 5e-6)
    assert cost.seconds(1e15) == pytest.approx(2 * 1e15 / 25e9, rel=1e-4)


def test_an_algorithm_that_is_cheapest_in_a_narrow_range_is_not_left_out() -> None:
    machine = Machine(
        ranks=120, link=Link(alpha_s=6.544e-6, bytes_per_s=193.6e9), ranks_per_node=8,
        inside=Link(alpha_s=2.181e-6, bytes_per_s=1742e9),
    )  # fmt: skip
    costs = algorithms_for("all_reduce", machine)
    steps = cheapest_by_size(costs)
    for place in range(100, 1000):
        size_bytes = 10 ** (place / 100)
        told = [name for at, name in steps if at <= size_bytes][-1]
        least_s = min(cost.seconds(size_bytes) for cost in costs.values())
        assert costs[told].seconds(size_bytes) == pytest.approx(least_s, rel=1e-9)


def test_within_one_node_nothing_takes_the_link_between_nodes() -> None:
    node = Machine(ranks=8, link=NETWORK, ranks_per_node=8, inside=NVLINK)
    slower = Machine(
        ranks=8, link=Link(alpha_s=1.0, bytes_per_s=1.0), ranks_per_node=8, inside=NVLINK
    )
    for algorithms in ALGORITHMS.values():
        for name, algorithm in algorithms.items():
            if name != "central server":  # a machine of its own
                assert algorithm(node) == algorithm(slower)


@pytest.mark.parametrize("size_bytes", [1.0, 1e4, 1e5, 1e6, 1e8])
def test_a_tree_is_cut_into_the_best_number_of_chunks(size_bytes: float) -> None:
    def of(chunks: int) -> float:
        return 2 * (6 + chunks - 1) * (5e-6 + size_bytes / chunks / 25e9)

    took_s = collectives.tree_all_reduce(FLAT).seconds(size_bytes)
    assert took_s == pytest.approx(min(map(of, range(1, 2000))), rel=0.02)
    assert took_s <= min(map(of, range(1, 2000))) * (1 + 1e-12)


def test_half_of_the_time_is_latency_where_that_is_said() -> None:
    for machine in (FLAT, NODES):
        for cost in algorithms_for("all_reduce", machine).values():
            assert cost.seconds(cost.even_bytes()) == pytest.approx(2 * cost.latency_s)


def test_one_server_takes_k_times_as_long_as_servers_on_all_ranks_at_large_sizes() -> None:
    central, sharded = (
        collectives.central_server(FLAT).seconds(1e9),
        collectives.sharded_server(FLAT).seconds(1e9),
    )
    assert central / sharded == pytest.approx(64 * 64 / 63, rel=0.01)


def test_as_many_servers_as_ranks_send_what_a_rank_sends() -> None:
    cost = collectives.central_server(FLAT, servers=64)
    assert cost.s_per_byte == pytest.approx(2 / 25e9)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    for machine in (FLAT, NODES):
        one = collectives.ring(machine)
        assert collectives.ring_all_reduce(machine) == one + one


def test_between_nodes_two_phases_have_fewer_slow_messages_and_rings_fewer_bytes_in_all() -> None:
    ring, phases = collectives.ring_all_reduce(NODES), collectives.hierarchical_all_reduce(NODES)
    assert phases.latency_s == pytest.approx(2 * (7 * 5e-6 + 7 * 1e-6))
    assert ring.latency_s == pytest.approx(2 * (7 * 5e-6 + 56 * 1e-6))
    assert phases.s_per_byte == pytest.approx(2 * (7 / 8 / 8 / 25e9 + 7 / 8 / 300e9))
    assert ring.s_per_byte == pytest.approx(2 * 63 / 64 / (8 * 25e9))


@pytest.mark.parametrize("op", ALGORITHMS)
@pytest.mark.parametrize("machine", [FLAT, NODES, Machine(ranks=2, link=NETWORK)])
@pytest.mark.parametrize("size_bytes", [8.0, 1e6, 1e10])
def test_no_algorithm_is_faster_than_the_bounds(
    op: str, machine: Machine, size_bytes: float
) -> None:
    bound = least_possible(op, machine)
    least_s = max(bound.latency_s, bound.s_per_byte * size_bytes)
    for cost in algorithms_for(op, machine).values():
        assert cost.seconds(size_bytes) >= least_s * (1 - 1e-12)


def test_small_payloads_go_by_tree_and_large_ones_by_ring() -> None:
    steps = cheapest_by_size(algorithms_for("all_reduce", FLAT))
    assert [name for _, name in steps] == ["tree", "ring"]
    at = steps[1][0]
    ring, tree = collectives.ring_all_reduce(FLAT), collectives.tree_all_reduce(FLAT)
    assert ring.seconds(at) == pytest.approx(tree.seconds(at))


def test_the_cheapest_of_every_size_is_what_comparing_them_all_gives() -> None:
    costs = algorithms_for("all_reduce", NODES)
    steps = cheapest_by_size(costs)
    for exponent in range(1, 12):
        size = 3.0 * 10**exponent
        told = [name for at, name in steps if at <= size][-1]
        least = min(cost.seconds(size) for cost in costs.values())
        assert costs[told].seconds(size) == pytest.approx(least)


def test_what_must_be_sent_is_what_bus_bandwidth_counts() -> None:
    for op in ALGORITHMS:
        for ranks in (2, 8, 1000):
            assert least_sent_ratio(op, ranks) == busbw_factor(Op[op.upper()], ranks)


@pytest.mark.parametrize("op", ALGORITHMS)
def test_a_rank_alone_pays_for_nothing_but_a_server(op: str) -> None:
    for name, cost in algorithms_for(op, Machine(ranks=1, link=NETWORK)).items():
        assert (cost == Cost(0.0, 0.0)) == (name != "central server"), name


def test_a_machine_is_whole_nodes_and_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="12 ranks are no whole nodes of 8"):
        Machine(ranks=12, link=NETWORK, ranks_per_node=8, inside=NVLINK)
    with pytest.raises(ConfigError, match="give the link inside a node"):
        Machine(ranks=16, link=NETWORK, ranks_per_node=8)
    with pytest.raises(ConfigError, match="bytes_per_s is inf"):
        Link(alpha_s=0, bytes_per_s=math.inf)
    with pytest.raises(ConfigError, match="alpha_s is -1"):
        Link(alpha_s=-1, bytes_per_s=1)
