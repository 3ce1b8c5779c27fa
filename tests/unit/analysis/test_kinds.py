"""Kinds that name nobody, and healthy things that look slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline import telemetry as names
from paceline.vocabulary import Phase
from tests.simulator.feed import analyse, feed
from tests.simulator.job import Fault, Scenario, simulate
from tests.simulator.samples import analyse_with, samples

CALM = Scenario(data_parallel=8, steps=200, jitter=0.01)


def uneven(scenario: Scenario, *, cv: float, seed: int = 3) -> Scenario:
    """Return the job with batches of a length that differs by rank and step."""
    rng = np.random.default_rng(seed)
    faults = []
    for step in range(scenario.steps):
        for rank in range(scenario.world_size):
            longer = float(np.exp(cv * rng.standard_normal()) - np.exp(-2 * cv))
            if longer > 0:
                faults += [
                    Fault(rank=rank, phase=phase, extra_ms=scenario.phase_ms[phase] * longer,
                          first=step, last=step)
                    for phase in (Phase.FORWARD, Phase.BACKWARD)
                ]  # fmt: skip
    return replace(scenario, faults=tuple(faults))


def rotating(scenario: Scenario, extra_ms: float, phase: Phase = Phase.INPUT) -> Scenario:
    """Return the job with another rank late in every step."""
    faults = tuple(
        Fault(rank=(3 * step) % scenario.world_size, phase=phase, extra_ms=extra_ms, first=step,
              last=step)
        for step in range(scenario.steps)
    )  # fmt: skip
    return replace(scenario, faults=faults)


def test_batches_of_different_length_are_an_imbalance_and_name_nobody() -> None:
    report = analyse(uneven(replace(CALM, steps=80), cv=0.2)).report()
    assert report.verdict == "imbalance"
    (finding,) = report.findings
    assert finding.ranks == []
    assert "grow and shrink together" in finding.evidence[0]
    assert finding.wasted_gpu_s is not None
    total_s = sum(row.blamed_wait_ns for row in report.ranks) / 1e9
    assert finding.wasted_gpu_s == pytest.approx(total_s, rel=0.1)


def test_gpus_that_jitter_in_all_phases_alike_are_no_imbalance() -> None:
    """Forward and backward agree here too (Pearson is 1): the optimizer tells the difference."""
    report = analyse(replace(CALM, jitter=0.08)).report()
    assert (report.verdict, report.findings) == ("healthy", [])


def test_a_culprit_that_rotates_is_an_imbalance() -> None:
    report = analyse(rotating(CALM, extra_ms=8)).report()
    assert [finding.kind for finding in report.findings] == ["imbalance"]
    assert "one of 8 ranks" in report.findings[0].evidence[0]


@pytest.mark.parametrize("seed", range(3))
def test_heavy_tails_are_no_rotation(seed: int) -> None:
    scenario = replace(CALM, data_parallel=16, jitter=0.05, heavy_tails=True, seed=seed)
    assert analyse(scenario).report().findings == []


def test_a_slow_gpu_is_a_straggler_though_its_forward_and_backward_agree() -> None:
    faults = tuple(
        Fault(rank=2, phase=phase, extra_ms=ms, first=60)
        for phase, ms in ((Phase.FORWARD, 4.0), (Phase.BACKWARD, 8.0))
    )
    report = analyse(replace(CALM, faults=faults)).report()
    assert [(f.kind, f.ranks) for f in report.findings] == [("straggler", [2])]


def test_a_straggler_among_uneven_batches_is_named_beside_the_imbalance() -> None:
    job = uneven(replace(CALM, steps=120), cv=0.1)
    slow = Fault(rank=6, phase=Phase.INPUT, extra_ms=25, first=60)
    report = analyse(replace(job, faults=(*job.faults, slow))).report()
    assert report.findings[0].kind == "straggler"
    assert report.findings[0].ranks == [6]
    assert {f.kind for f in report.findings} <= {"straggler", "imbalance"}


def everybody(phase: Phase, extra_ms: float, *, first: int, last: int = 1 << 30) -> Scenario:
    faults = tuple(
        Fault(rank=rank, phase=phase, extra_ms=extra_ms, first=first, last=last)
        for rank in range(CALM.world_size)
    )
    return replace(CALM, faults=faults)


@pytest.mark.parametrize(
    ("phase", "cause"), [(Phase.INPUT, "input"), (Phase.BACKWARD, "compute"), (Phase.HOST, "host")]
)
def test_all_ranks_slower_than_their_own_past_are_a_uniform_slowdown(
    phase: Phase, cause: str
) -> None:
    report = analyse(everybody(phase, 6, first=120)).report()
    assert report.verdict == "uniform_slowdown"
    (finding,) = report.findings
    assert (finding.ranks, finding.cause) == ([], cause)
    assert finding.first_step is not None
    assert abs(finding.first_step - 120) <= 2
    assert finding.slowdown == pytest.approx(43 / 37, abs=0.02)
    assert finding.wasted_gpu_s == pytest.approx(8 * 80 * 0.006, rel=0.15)


def test_a_uniform_slowdown_under_common_throttling_says_so() -> None:
    job = simulate(everybody(Phase.BACKWARD, 6, first=120))
    hot = {r: {"sm_clock_hz": 1.4e9, "throttle_reasons": ["sw_power_cap"]} for r in range(8)}
    report = analyse_with(job, samples(job, hot, first=120)).report()
    (finding,) = report.findings
    assert (finding.kind, finding.cause) == ("uniform_slowdown", "gpu_throttle")
    assert any("1.40 GHz against 1.90 GHz before" in one for one in finding.evidence)
    assert any("SW power cap was set in 100%" in one for one in finding.evidence)


def test_a_uniform_slowdown_of_processes_that_wait_for_a_cpu_is_the_hosts_fault() -> None:
    job = simulate(everybody(Phase.BACKWARD, 6, first=120))
    starved = {rank: {names.RANK_RUN_QUEUE: 8e6} for rank in range(8)}  # of steps of 43 ms
    report = analyse_with(job, samples(job, starved, first=120)).report()
    (finding,) = report.findings
    assert (finding.kind, finding.cause) == ("uniform_slowdown", "host")
    assert any("waited for a CPU" in one for one in finding.evidence), finding.evidence


def test_a_uniform_slowdown_that_ends_is_told_with_its_end() -> None:
    report = analyse(everybody(Phase.BACKWARD, 6, first=100, last=140)).report()
    (finding,) = report.findings
    assert finding.last_step is not None
    assert any("it was over" in one for one in finding.evidence)


def test_two_uniform_slowdowns_share_no_step() -> None:
    faults = tuple(
        Fault(rank=rank, phase=Phase.BACKWARD, extra_ms=6, first=first, last=first + 80)
        for rank in range(CALM.world_size)
        for first in (80, 190)
    )
    report = analyse(replace(CALM, steps=300, faults=faults)).report()
    spans = sorted((f.first_step or 0, f.last_step or 0) for f in report.findings)
    assert len(spans) == 2
    assert spans[0][1] < spans[1][0]


def test_a_uniform_slowdown_that_is_over_and_cost_the_job_next_to_nothing_is_not_told() -> None:
    short = everybody(Phase.BACKWARD, 6, first=100, last=118)
    assert [f.kind for f in analyse(replace(short, steps=160)).report().findings] == [
        "uniform_slowdown"
    ]
    assert analyse(replace(short, steps=1000)).report().findings == []


def test_half_of_the_ranks_becoming_slow_is_not_everyone() -> None:
    faults = tuple(
        Fault(rank=rank, phase=Phase.FORWARD, extra_ms=6, first=100) for rank in range(4)
    )
    report = analyse(replace(CALM, faults=faults)).report()
    assert all(finding.kind != "uniform_slowdown" for finding in report.findings)


@pytest.mark.parametrize("seed", range(4))
def test_speed_that_wanders_for_all_alike_is_healthy(seed: int) -> None:
    report = analyse(replace(CALM, steps=400, seed=seed, common_jitter=0.026)).report()
    assert (report.verdict, report.findings) == ("healthy", [])


def at(steps: range, ranks: range, phase: Phase, extra_ms: float) -> tuple[Fault, ...]:
    return tuple(
        Fault(rank=rank, phase=phase, extra_ms=extra_ms, first=step, last=step)
        for step in steps
        for rank in ranks
    )


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(at(range(12), range(8), Phase.FORWARD, 300), id="warm-up"),
        pytest.param(at(range(9), range(3), Phase.FORWARD, 300), id="some compile longer"),
        pytest.param(at(range(90, 91), range(8), Phase.FORWARD, 400), id="compiled again"),
        pytest.param(at(range(40, 200, 40), range(8), Phase.FORWARD, 120), id="evaluation"),
        pytest.param(at(range(25, 200, 25), range(8), Phase.CHECKPOINT, 90), id="checkpoints"),
        pytest.param(at(range(30, 200, 50), range(1), Phase.CHECKPOINT, 200), id="rank 0 writes"),
    ],
)
def test_healthy_things_that_look_slow_lead_to_no_finding(faults: tuple[Fault, ...]) -> None:
    phases = {**CALM.phase_ms, Phase.CHECKPOINT: 0.0}
    report = analyse(replace(CALM, phase_ms=phases, faults=faults)).report()
    assert [(f.kind, f.ranks) for f in report.findings] == []
    assert report.verdict == "healthy"


def test_kinds_are_the_same_in_bits_and_at_once() -> None:
    job = simulate(everybody(Phase.INPUT, 6, first=100))
    whole, _ = feed(job)
    bits, _ = feed(job, chunk_rows=11)
    for _ in range(3):
        bits.report()
    assert bits.report().to_dict() == whole.report().to_dict()
