from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.vocabulary import Op
from paceline_service.analysis.report import Report
from tests.simulator.feed import feed
from tests.simulator.network import Network, Slowness, Traffic, simulate_network

MB = 1 << 20
RANKS = 8
TRAFFIC = Traffic(group="dp", ranks=tuple(range(RANKS)), op=Op.ALL_REDUCE, sizes=(64 * MB, 16 * MB))
BOUND = Network(ranks=RANKS, ranks_per_node=2, traffic=(TRAFFIC,), steps=80, compute_ms=5.0,
                alpha_us=500.0)  # fmt: skip


def report_of(net: Network) -> Report:
    return feed(simulate_network(net), nodes=4)[0].report()


def test_a_job_that_sends_longer_than_it_computes_is_bound_and_nobody_is_at_fault() -> None:
    report = report_of(BOUND)
    assert report.verdict == "communication_bound"
    (finding,) = report.findings
    assert (finding.ranks, finding.nodes, finding.wasted_gpu_s) == ([], [], None)


def test_the_break_even_batch_and_world_size_are_those_of_alpha_and_beta() -> None:
    (finding,) = report_of(replace(BOUND, noise=0.005)).findings
    text = " ".join(finding.evidence)
    took_ms = 2 * 0.5 + BOUND.beta_ns_per_byte * 80 * MB / 1e6
    stated = float(text.split("with ")[1].split(" times the batch")[0])
    assert stated == pytest.approx(took_ms / BOUND.compute_ms, rel=0.03)
    alpha_ms, beta_ms = 1.0, took_ms - 1.0
    even = max(
        n for n in range(1, RANKS)
        if alpha_ms * (n - 1) / 7 + beta_ms * (n - 1) / n * 8 / 7 <= BOUND.compute_ms
    )  # fmt: skip
    assert ("at 2 ranks per group" if even == 2 else "no group of 2 ranks") in text


def test_a_little_too_large_a_world_breaks_even_at_a_smaller_one() -> None:
    (finding,) = report_of(replace(BOUND, compute_ms=8.0)).findings
    assert "break-even would be at" in " ".join(finding.evidence)


def test_without_two_sizes_the_answer_says_that_all_is_taken_as_bandwidth() -> None:
    traffic = (replace(TRAFFIC, sizes=(80 * MB,)),)
    (finding,) = report_of(replace(BOUND, traffic=traffic)).findings
    assert "taken as bandwidth" in " ".join(finding.evidence)


def test_more_compute_than_communication_is_no_finding() -> None:
    assert report_of(replace(BOUND, compute_ms=30.0)).verdict == "healthy"


def test_gamma_near_one_is_no_finding_while_noise_could_explain_it() -> None:
    took_ms = 2 * 0.5 + BOUND.beta_ns_per_byte * 80 * MB / 1e6
    for seed in range(3):
        net = replace(BOUND, compute_ms=took_ms, noise=0.1, seed=seed)
        assert "communication_bound" not in [f.kind for f in report_of(net).findings]


def test_a_slow_network_that_explains_it_is_the_answer() -> None:
    slow = Slowness(what="all", factor=3.0, first=60)
    net = replace(BOUND, compute_ms=12.0, steps=300, slow=(slow,))
    report = report_of(net)
    assert report.gamma is not None
    assert report.gamma > 1
    assert [finding.kind for finding in report.findings] == ["communication"]


def test_a_slow_rank_outranks_it() -> None:
    report = report_of(replace(BOUND, steps=150, extra_compute_ms={3: 4.0}))
    assert report.verdict == "straggler"
    assert report.findings[0].ranks == [3]
