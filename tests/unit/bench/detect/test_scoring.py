"""A miss is a miss, whoever is named wrongly is counted, and bounds are the tabulated ones."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log1p

import pytest

from paceline_service.analysis.report import Finding
from paceline_service.bench.detect.limits import least_delay, steps_between_false_namings
from paceline_service.bench.detect.match import match
from paceline_service.bench.detect.outcome import FaultOutcome, Outcome
from paceline_service.bench.detect.scenario import Scenario
from paceline_service.bench.detect.score import by_family, delays, score
from paceline_service.bench.detect.simulate.faults import Fault
from paceline_service.bench.detect.simulate.layout import Layout
from paceline_service.bench.detect.simulate.spec import JobSpec
from paceline_service.bench.detect.volume import poisson_lower, poisson_upper

FOUND = FaultOutcome(
    what="rank 3", cost_ratio=0.05, apart="", found=True, true_cause="input", named_cause="input",
    cause_scored=True,
    delay_scored=True, delay_bound=8.0, plain_delay_bound=8.0, delay_steps=12, onset_error=0,
    true_wasted_gpu_s=100.0, named_wasted_gpu_s=90.0, true_recoverable=0.05, named_recoverable=0.05,
)  # fmt: skip
MISSED = replace(
    FOUND, found=False, named_cause=None, delay_steps=None, named_wasted_gpu_s=None,
    named_recoverable=None, true_wasted_gpu_s=300.0,
)  # fmt: skip


def outcome(*faults: FaultOutcome, **changes: object) -> Outcome:
    plain = Outcome(
        family="sudden", seed=1, layout="dp8", noise="", steps=100, expected=["straggler"],
        verdict="straggler", parallel=False, faults=list(faults),
        right_findings=sum(fault.found for fault in faults),
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def finding(kind: str = "straggler", **changes: object) -> Finding:
    plain = Finding(
        kind=kind, ranks=[], nodes=[], cause="compute", phase=None, first_step=1, last_step=2,
        slowdown=None, recoverable_ratio=None, wasted_gpu_s=1.0, confidence=None, evidence=[],
        action=None,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def scenario(fault: Fault, layout: Layout | None = None, verdict: str = "straggler") -> Scenario:
    spec = JobSpec(layout=layout or Layout(dp=16, node_size=4), faults=(fault,))
    return Scenario(family="x", seed=1, spec=spec, verdicts=(verdict,))


@pytest.mark.parametrize(
    ("cv", "slow", "steps"),
    [(0.005, 0.005, 37), (0.01, 0.02, 9.9), (0.05, 0.04, 56), (0.10, 0.01, 2760)],
)
def test_the_least_delay_is_the_tabulated_one(cv: float, slow: float, steps: float) -> None:
    gamma = steps_between_false_namings(5.0)
    bound = least_delay(slow, cv, peers=1000, ranks=1000, gamma=gamma)
    assert bound == pytest.approx(steps, rel=0.05)


def test_the_least_delay_is_never_below_what_ranks_alone_can_tell() -> None:
    gamma = steps_between_false_namings(5.0)
    for peers, floor in ((8, 8), (1000, 3)):
        bound = least_delay(log1p(2.0), 0.005, peers=peers, ranks=peers, gamma=gamma)
        assert ceil(bound) == floor


def test_noise_that_lasts_makes_the_least_delay_longer() -> None:
    bounds = [
        least_delay(0.02, 0.02, peers=16, ranks=16, gamma=1e6, autocorrelation=rho)
        for rho in (0.0, 0.2)
    ]
    assert bounds[1] > 1.3 * bounds[0]


def test_poisson_bounds_are_those_of_the_tables() -> None:
    assert poisson_upper(0) == pytest.approx(2.996, abs=1e-3)
    assert poisson_upper(10) == pytest.approx(16.962, abs=1e-3)
    assert poisson_lower(0) == 0.0
    assert poisson_lower(10) == pytest.approx(5.425, abs=1e-3)


def test_a_miss_counts_against_recall_and_leaves_precision() -> None:
    s = score([outcome(FOUND), outcome(MISSED, verdict="insufficient_evidence")])
    assert (s["recall"], s["precision"], s["verdict_right"]) == (0.5, 1.0, 0.5)
    assert s["severity"]["recall"] == 0.25


def test_faults_that_cost_little_or_are_apart_are_counted_apart() -> None:
    cheap = replace(MISSED, cost_ratio=0.004)
    short = replace(MISSED, apart="too short")
    s = score([outcome(FOUND, cheap, short)])
    assert s["recall"] == 1.0
    assert s["apart"] == {
        "costs less than 0.5 %": {"faults": 1, "found": 0},
        "too short": {"faults": 1, "found": 0},
    }


def test_a_false_finding_of_a_healthy_job_counts_against_precision() -> None:
    healthy = outcome(expected=["healthy"], false=["straggler ranks [1]"])
    s = score([outcome(FOUND), healthy])
    assert s["precision"] == 0.5
    assert (s["healthy_jobs"], s["healthy_jobs_with_somebody_named"]) == (1, 1)


def test_a_fault_that_is_not_found_has_an_infinite_delay() -> None:
    found = delays([outcome(FOUND, FOUND, FOUND, MISSED)])
    assert (found["median"], found["p95"], found["not_found"]) == (1.5, None, 1)


def test_a_wrong_cause_stands_in_the_confusion_table() -> None:
    s = score([outcome(FOUND), outcome(replace(FOUND, named_cause="compute"))])
    assert s["cause_right"] == 0.5
    assert s["causes"] == {"input": {"compute": 1, "input": 1}}


def test_families_are_told_apart() -> None:
    found = by_family([outcome(FOUND), outcome(MISSED, family="two")])
    assert (found["sudden"]["found"], found["two"]["found"]) == (1, 0)


def test_nothing_measured_is_null_and_no_division_by_zero() -> None:
    s = score([])
    assert s["precision"] is s["recall"] is s["cause_right"] is s["severity"]["score"] is None


def test_naming_a_victim_beside_the_culprit_is_false() -> None:
    one = scenario(Fault(kind="rank", ranks=(3,), slowdown=0.5))
    right, victim = finding(ranks=[3]), finding(ranks=[2])
    matched = match(one, [right, victim])
    assert matched.of_fault == [[right]]
    assert matched.false == [victim]
    assert match(one, [finding(ranks=[2, 3])]).of_fault == [[]]


def test_the_wrong_kind_finds_nothing() -> None:
    one = scenario(Fault(kind="rank", ranks=(3,), slowdown=0.5))
    matched = match(one, [finding("communication", ranks=[3])])
    assert not matched.found(0, one.spec.faults[0])
    assert len(matched.false) == 1


@pytest.mark.parametrize(("ranks", "found"), [([4, 5, 6, 7], True), ([4, 5], True), ([4], False)])
def test_of_a_node_half_its_ranks_must_be_named(ranks: list[int], found: bool) -> None:
    fault = Fault(kind="node", ranks=(4, 5, 6, 7), nodes=(1,), slowdown=0.5)
    matched = match(scenario(fault), [finding(ranks=ranks, nodes=["node-001"])])
    assert matched.found(0, fault) is found
    assert not matched.false


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"nodes": ["node-001"]}, True),
        ({"nodes": ["node-000", "node-001"]}, False),
        ({"links": [[4, 0], [5, 8]]}, True),
        ({"links": [[8, 0]]}, False),
        ({}, False),
    ],
)
def test_a_slow_network_card_must_be_pointed_at(changes: dict[str, object], found: bool) -> None:
    fault = Fault(kind="nic", nodes=(1,), slowdown=1.0, cause="network")
    one = scenario(fault, verdict="communication")
    matched = match(one, [finding("communication", **changes)])
    assert matched.found(0, fault) is found


def test_a_healthy_job_that_is_called_imbalanced_though_it_is_not_is_a_false_finding() -> None:
    one = replace(scenario(Fault(kind="rank", ranks=(1,), slowdown=1.0)), verdicts=("healthy",))
    healthy = replace(one, spec=replace(one.spec, faults=()))
    assert len(match(healthy, [finding("imbalance")]).false) == 1
