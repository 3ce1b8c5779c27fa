from __future__ import annotations

import pytest

from paceline.vocabulary import Op
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.network import series
from paceline_service.analysis.network.series import TransferFigures
from tests.simulator.feed import feed
from tests.simulator.job import Scenario, simulate
from tests.simulator.network import Network, Slowness, Traffic, simulate_network

MB = 1 << 20


def network(*slow: Slowness, steps: int = 120) -> Network:
    """Two groups over two nodes, in two sizes, and a pair."""
    across = [
        Traffic(group=f"dp{r}", ranks=(r, r + 2), op=Op.ALL_REDUCE, sizes=(32 * MB, 2 * MB))
        for r in range(2)
    ]
    pair = Traffic(group="pairs", ranks=(0, 2), op=Op.SEND, sizes=(MB,))
    return Network(ranks=4, ranks_per_node=2, traffic=(*across, pair), steps=steps, slow=slow)


def figures(net: Network) -> dict[tuple[str, str], TransferFigures]:
    analysis: JobAnalysis = feed(simulate_network(net), nodes=2)[0]
    return {(one.group, one.op): one for one in analysis.transfer_figures()}


def test_healthy_transfers_are_as_fitted_and_all_of_them_are_counted() -> None:
    told = figures(network())
    assert set(told) == {("dp0", "all_reduce"), ("dp1", "all_reduce"), ("pairs", "send")}
    one = told["dp0", "all_reduce"]
    assert sum(one.buckets) == 2 * (120 - 5)  # two sizes a step, the settling steps left out
    assert one.sum_ns == pytest.approx(115 * (2 * 40e3 + 0.1 * 34 * MB), rel=0.05)
    assert one.alpha_ns == pytest.approx(40e3, rel=0.3)
    assert one.beta_ns_per_byte == pytest.approx(0.1, rel=0.05)
    assert one.residual_ratio == pytest.approx(1.0, abs=0.1)
    assert one.busbw_bytes_per_s == pytest.approx(1e10, rel=0.1)  # of two ranks: bytes per time
    assert told["pairs", "send"].alpha_ns is None  # one size cannot tell them apart


def test_a_slow_network_shows_in_the_newest_transfers_and_not_in_the_fit() -> None:
    slow = Slowness(what="nic", factor=2.0, where=(1,), first=60)
    told = figures(network(slow))
    assert told["dp1", "all_reduce"].residual_ratio == pytest.approx(2.0, rel=0.1)
    assert told["dp1", "all_reduce"].busbw_bytes_per_s == pytest.approx(5e9, rel=0.1)
    assert told["dp1", "all_reduce"].beta_ns_per_byte == pytest.approx(0.1, rel=0.05)
    assert told["dp0", "all_reduce"].residual_ratio == pytest.approx(1.0, abs=0.1)


def test_before_a_group_is_learned_it_has_a_bandwidth_and_no_residual() -> None:
    one = figures(network(steps=20))["dp0", "all_reduce"]
    assert one.busbw_bytes_per_s == pytest.approx(1e10, rel=0.1)
    assert one.residual_ratio is None


def test_beyond_the_cap_the_largest_groups_have_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_SERIES", 2)
    assert set(figures(network(steps=20))) == {("dp0", "all_reduce"), ("dp1", "all_reduce")}


def test_own_time_by_phase_adds_up_to_the_own_time_of_every_rank() -> None:
    analysis = feed(simulate(Scenario(steps=40)))[0]
    by_phase = analysis.phase_totals_ns().sum(axis=1)
    for row in analysis.report().ranks:
        assert by_phase[row.rank] == pytest.approx(row.self_ns, rel=0.01)
