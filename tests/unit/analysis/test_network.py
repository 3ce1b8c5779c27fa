from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.vocabulary import Op, Phase
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.network.fit import busbw_factor
from paceline_service.analysis.report import Finding
from tests.simulator.feed import analyse, feed
from tests.simulator.job import Fault, Scenario
from tests.simulator.network import Network, Slowness, Traffic, simulate_network

MB = 1 << 20
NODES = 4
PER_NODE = 2


def sharded(**changes: object) -> Network:
    """Tensor-parallel groups within nodes, and one group for each two nodes and local rank."""
    within = [
        Traffic(group=f"tp{n}", ranks=tuple(range(n * PER_NODE, (n + 1) * PER_NODE)),
                op=Op.ALL_REDUCE, sizes=(4 * MB, 4 * MB))
        for n in range(NODES)
    ]  # fmt: skip
    across = [
        Traffic(group=f"shard{a}{b}{local}", ranks=(a * PER_NODE + local, b * PER_NODE + local),
                op=Op.REDUCE_SCATTER, sizes=(32 * MB, 8 * MB))
        for a in range(NODES) for b in range(a + 1, NODES) for local in range(PER_NODE)
    ]  # fmt: skip
    net = Network(ranks=NODES * PER_NODE, ranks_per_node=PER_NODE, compute_ms=30.0,
                  traffic=tuple(within + across))  # fmt: skip
    return replace(net, **changes)  # type: ignore[arg-type]


def pairs(**changes: object) -> Network:
    """Every rank sends to every other, one rank a node."""
    traffic = tuple(
        Traffic(group="pairs", ranks=(a, b), op=Op.SEND, sizes=(16 * MB,))
        for a in range(4) for b in range(4) if a != b
    )  # fmt: skip
    net = Network(ranks=4, ranks_per_node=1, compute_ms=40.0, traffic=traffic)
    return replace(net, **changes)  # type: ignore[arg-type]


def analysed(net: Network) -> JobAnalysis:
    return feed(simulate_network(net), nodes=net.ranks // net.ranks_per_node)[0]


def slow_places(net: Network) -> list[Finding]:
    report = analysed(net).report()
    return [finding for finding in report.findings if finding.kind == "communication"]


@pytest.mark.parametrize("seed", range(2))
def test_a_slow_nic_is_the_rank_that_all_slow_groups_share(seed: int) -> None:
    slow = Slowness(what="nic", factor=1.5, where=(5,), first=60)
    report = analysed(sharded(seed=seed, slow=(slow,))).report()
    assert report.verdict == "communication"
    (finding,) = report.findings
    assert (finding.ranks, finding.nodes, finding.cause) == ([5], ["node-2"], "network")
    assert finding.first_step is not None
    assert abs(finding.first_step - 60) <= 1
    assert finding.slowdown == pytest.approx(1.5, rel=0.03)
    assert finding.period_steps is None
    assert finding.confidence is not None
    assert finding.confidence > 0.99


def test_a_slow_uplink_is_the_node_and_not_its_ranks() -> None:
    slow = Slowness(what="uplink", factor=1.4, where=(1,), first=60)
    (finding,) = slow_places(sharded(slow=(slow,)))
    assert (finding.ranks, finding.nodes) == ([2, 3], ["node-1"])
    assert "node-1" in (finding.action or "")


def test_the_whole_fabric_slower_than_before_is_nobodys_place() -> None:
    slow = Slowness(what="all", factor=1.3, first=60)
    (finding,) = slow_places(sharded(slow=(slow,)))
    assert (finding.ranks, finding.nodes, finding.links) == ([], [], [])
    assert any("nothing of one rank" in sentence for sentence in finding.evidence)


def test_one_slow_link_among_pairs_is_one_cell() -> None:
    slow = Slowness(what="link", factor=1.6, where=(2, 0), first=60)
    (finding,) = slow_places(pairs(slow=(slow,)))
    assert (finding.links, finding.ranks) == ([[2, 0]], [0, 2])
    assert "one link" in " ".join(finding.evidence)


@pytest.mark.parametrize(("what", "word"), [("out", "sends to"), ("in", "receives from")])
def test_a_full_row_is_a_sender_and_a_full_column_a_receiver(what: str, word: str) -> None:
    slow = Slowness(what=what, factor=1.6, where=(3,), first=60)
    (finding,) = slow_places(pairs(slow=(slow,)))
    assert finding.ranks == [3]
    assert len(finding.links) == 3
    assert word in " ".join(finding.evidence)


def test_two_slow_nics_at_once_are_two_findings() -> None:
    slow = (
        Slowness(what="nic", factor=1.5, where=(0,), first=60),
        Slowness(what="nic", factor=1.5, where=(5,), first=60),
    )
    assert sorted(f.ranks[0] for f in slow_places(sharded(slow=slow))) == [0, 5]


def test_a_nic_slow_from_the_first_step_is_seen_beside_its_siblings() -> None:
    slow = Slowness(what="nic", factor=2.5, where=(5,))
    (finding,) = slow_places(sharded(slow=(slow,)))
    assert finding.ranks == [5]
    assert "siblings" in finding.evidence[0]


def test_what_becomes_slow_while_its_past_is_learned_is_found() -> None:
    slow = Slowness(what="all", factor=1.5, first=22)
    (finding,) = slow_places(sharded(slow=(slow,)))
    assert any("nothing of one rank" in sentence for sentence in finding.evidence)


def test_recovery_ends_the_finding_at_its_last_slow_step() -> None:
    slow = Slowness(what="nic", factor=1.5, where=(5,), first=60, last=100)
    (finding,) = slow_places(sharded(slow=(slow,)))
    assert finding.last_step is not None
    assert abs(finding.last_step - 100) <= 20
    assert any("recovered" in sentence for sentence in finding.evidence)


def test_the_cost_is_the_exposed_excess_of_all_ranks_that_wait_for_it() -> None:
    slow = Slowness(what="nic", factor=1.5, where=(5,), first=60)
    net = sharded(noise=0.005, slow=(slow,))
    (finding,) = slow_places(net)
    before_s = sum(net.alpha_us * 1e-6 + net.beta_ns_per_byte * s * 1e-9 for s in (32 * MB, 8 * MB))
    groups = 3
    truth = 0.5 * before_s * groups * 2 * (net.steps - 60)
    assert finding.wasted_gpu_s == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": 0.05, "heavy_tails": True, "autocorrelation": 0.2, "unequal": 0.1},
        {"noise": 0.2, "autocorrelation": 0.9},
        {"release_noise_ms": 0.5, "drift_us_per_s": 30.0},
        {"extra_compute_ms": {3: 10.0}},
        {"shared_clock": True, "heavy_tails": True, "noise": 0.1},
    ],
)
def test_healthy_noise_and_slow_ranks_are_no_trouble_of_the_network(
    changes: dict[str, object],
) -> None:
    for seed in range(2):
        report = analysed(sharded(seed=seed, steps=250, **changes)).report()
        assert not [f for f in report.findings if f.kind.startswith("communication")]
        assert not [note for note in report.notes if "against" in note]


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes_from": ((70, 1.3),)},
        {"sizes_from": ((70, 4.0),)},
        {"random_sizes": 0.5, "sizes_from": ((70, 1.6),)},
    ],
)
def test_larger_payloads_are_no_degradation(changes: dict[str, object]) -> None:
    assert slow_places(sharded(steps=200, **changes)) == []


def test_a_slow_fabric_is_seen_through_sizes_that_never_repeat() -> None:
    slow = Slowness(what="all", factor=2.5, first=90)
    assert slow_places(sharded(steps=200, random_sizes=0.2, slow=(slow,)))


def test_what_costs_little_is_a_note() -> None:
    slow = Slowness(what="nic", factor=1.3, where=(5,), first=60)
    report = analysed(sharded(compute_ms=2000.0, slow=(slow,))).report()
    assert report.verdict == "healthy"
    assert any("reduce_scatter" in note and "costs the job only" in note for note in report.notes)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_rank_of_a_job_is_no_slow_network(seed: int) -> None:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=60)
    report = analyse(
        Scenario(data_parallel=4, tensor_parallel=2, seed=seed, faults=(fault,))
    ).report()
    assert [finding.kind for finding in report.findings] == ["straggler"]


def test_releases_that_were_only_polled_are_not_compared() -> None:
    slow = Slowness(what="all", factor=3.0, first=60)
    report = analysed(sharded(polled=True, slow=(slow,))).report()
    assert not [f for f in report.findings if f.kind == "communication"]
    assert any("not compared with its own past" in note for note in report.notes)


def test_alpha_and_beta_are_those_of_the_network() -> None:
    net = sharded(alpha_us=200.0, beta_ns_per_byte=0.25, noise=0.01)
    fits = [fit for fit in analysed(net).transfer_fits() if fit.op == Op.REDUCE_SCATTER]
    assert len(fits) == 12
    for fit in fits:
        assert fit.alpha_ns == pytest.approx(200e3, rel=0.25)
        assert fit.beta_ns_per_byte == pytest.approx(0.25, rel=0.02)
        assert fit.busbw_bytes_per_s == pytest.approx(0.5 / 0.256e-9, rel=0.03)


def test_one_size_cannot_tell_start_up_time_from_bandwidth() -> None:
    job = analysed(sharded(steps=60))
    fits = [fit for fit in job.transfer_fits() if fit.op == Op.ALL_REDUCE]
    assert fits
    assert all(fit.alpha_ns is None and fit.beta_ns_per_byte is None for fit in fits)
    assert all(fit.busbw_bytes_per_s > 0 for fit in fits)


def test_bus_bandwidth_counts_bytes_as_nccl_tests_does() -> None:
    assert busbw_factor(Op.ALL_REDUCE, 8) == pytest.approx(1.75)
    assert busbw_factor(Op.ALL_GATHER, 8) == pytest.approx(0.875)
    assert busbw_factor(Op.BROADCAST, 8) == 1.0
    assert busbw_factor(Op.SEND, 2) == 1.0
    assert busbw_factor(Op.ALL_REDUCE, 1) == 1.0


def test_the_findings_are_the_same_whether_records_come_at_once_or_in_bits() -> None:
    slow = Slowness(what="nic", factor=1.5, where=(5,), first=60)
    job = simulate_network(sharded(steps=110, slow=(slow,)))
    assert feed(job, nodes=4)[0].report() == feed(job, nodes=4, chunk_rows=50)[0].report()
