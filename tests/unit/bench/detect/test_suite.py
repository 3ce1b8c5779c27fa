"""Scenarios are drawn, run and printed; scored seeds are nobody's to tune on."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline_service.bench.detect import volume
from paceline_service.bench.detect.baselines import Baselines
from paceline_service.bench.detect.draw import SCORED_SEEDS, TUNING_SEEDS
from paceline_service.bench.detect.one import run
from paceline_service.bench.detect.scenario import Scenario
from paceline_service.bench.detect.score import by_family, score
from paceline_service.bench.detect.simulate.faults import Fault
from paceline_service.bench.detect.simulate.job import Simulation
from paceline_service.bench.detect.simulate.layout import Layout
from paceline_service.bench.detect.simulate.noise import Noise
from paceline_service.bench.detect.simulate.spec import JobSpec
from paceline_service.bench.detect.suite import FAMILIES, run_suite, scenario_of
from paceline_service.bench.detect.table import COLUMNS, rows_of_detect
from paceline_service.bench.detect.truth import costs


def test_seeds_for_scoring_and_for_tuning_never_meet() -> None:
    assert not set(SCORED_SEEDS) & set(TUNING_SEEDS)
    seeds = [scenario_of(family, n).seed for family in FAMILIES for n in (0, 99)]
    assert len(set(seeds)) == len(seeds)
    assert set(seeds) <= set(SCORED_SEEDS)
    assert scenario_of("plain", 0, "tuning").seed in TUNING_SEEDS


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_draws_the_same_job_for_the_same_number(family: str) -> None:
    drawn = [scenario_of(family, number) for number in range(6)]
    assert drawn == [scenario_of(family, number) for number in range(6)]
    assert len({scenario.spec.noise for scenario in drawn}) > 1
    for scenario in drawn:
        size = scenario.spec.layout.world_size
        assert all(rank < size for fault in scenario.spec.faults for rank in fault.ranks)
        assert all(fault.first < scenario.spec.steps for fault in scenario.spec.faults)


def test_an_unknown_family_is_refused_with_a_list_of_those_there_are() -> None:
    with pytest.raises(ConfigError, match="sudden"):
        scenario_of("slow", 0)


def quiet(layout: Layout, *faults: Fault) -> Scenario:
    noise = Noise(jitter=0.0, spread=0.0, common=0.0)
    spec = JobSpec(layout=layout, steps=40, noise=noise, faults=faults, transfer_jitter=0.0)
    return Scenario(family="x", seed=1, spec=spec, verdicts=("straggler",))


def test_a_fault_costs_its_share_of_the_step_and_the_time_of_all_others() -> None:
    fault = Fault(kind="rank", ranks=(2,), slowdown=0.25, first=20)
    (cost,) = costs(quiet(Layout(dp=8), fault))
    # A second of own time, and the last bucket's transfer behind it.
    step_s = 1.0 + 1.5 * 1e9 / 40e9
    assert cost.ratio == pytest.approx(0.25 / (step_s + 0.25), rel=0.02)
    assert cost.wasted_gpu_s == pytest.approx(7 * 0.25 * 20, rel=0.05)


def test_of_two_ranks_equally_slow_each_costs_alone_and_neither_gives_anything_back() -> None:
    faults = [Fault(kind="rank", ranks=(r,), slowdown=0.25, first=20) for r in (2, 5)]
    for cost in costs(quiet(Layout(dp=8), *faults)):
        assert cost.ratio > 0.15
        assert cost.recoverable == pytest.approx(0.0, abs=1e-3)


def test_a_clear_fault_is_found_and_the_outcome_is_the_same_again() -> None:
    fault = Fault(kind="rank", ranks=(2,), slowdown=0.5, cause="input", first=60)
    spec = JobSpec(layout=Layout(dp=8), steps=120, faults=(fault,))
    scenario = Scenario(family="x", seed=1, spec=spec, verdicts=("straggler",), delay_scored=True)
    first, again = run(scenario), run(scenario)
    (found,) = first.faults
    assert (found.found, found.named_cause, first.false) == (True, "input", [])
    assert found.delay_steps is not None
    assert 1 <= found.delay_steps <= 20
    assert replace(first, analysis_s=0.0) == replace(again, analysis_s=0.0)


def test_nobody_is_named_in_a_healthy_job_and_every_simple_rule_is_asked() -> None:
    outcome = run(scenario_of("plain", 0, "tuning"))
    assert (outcome.verdict, outcome.findings, outcome.faults) == ("healthy", [], [])
    assert len(outcome.baselines) == 4


def test_simple_rules_name_whom_they_would() -> None:
    fault = Fault(kind="rank", ranks=(2,), slowdown=1.0, cause="input")
    spec = JobSpec(layout=Layout(dp=16), steps=30, faults=(fault,))
    baselines = Baselines(16, 10)
    for chunk in Simulation(spec).chunks():
        baselines.add(chunk)
    named = baselines.named()
    assert named["last arriver"] == [2]
    assert named["z-score at 10 %"] == [2]
    assert named["longest duration"] != [2]  # it is a victim that waits longest


def test_the_volume_counts_steps_and_states_the_rate() -> None:
    found = volume.measure(8, rank_steps=8 * 400, seeds="tuning", processes=1)
    assert found["rank_steps"] == 3200
    assert found["raised_stated"] == pytest.approx(volume.RAISED_NAMINGS)
    assert found["upper_per_million_rank_steps"] >= 2.99 / 3200 * 1e6
    assert found["consistent"]


def test_a_result_prints_as_rows_of_four() -> None:
    outcomes = list(run_suite(["resize"], quick=True, seeds="tuning", processes=1))
    found = {"score": score(outcomes), "families": by_family(outcomes), "peer_rules": "absent"}
    rows = rows_of_detect(found)
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert any(row[0] == "family resize" for row in rows)
    assert all(asdict(outcome)["family"] == "resize" for outcome in outcomes)
    assert np.isfinite(found["score"]["records_per_s"])


def test_nobody_is_named_where_eight_ranks_share_each_uneven_batch() -> None:
    """Rank 15 was behind at times only, as its batches were: it drew nothing else."""
    scenario = scenario_of("sequences", 7099, "tuning")
    assert scenario.spec.layout == Layout(dp=2, tp=8)
    outcome = run(scenario)
    assert outcome.verdict == "imbalance"
    assert outcome.false == outcome.false_passing == []


def test_a_gpu_that_reports_damage_is_named_with_it_and_its_neighbour_is_not() -> None:
    scenario = scenario_of("gpu_error", 1, "tuning")
    outcome = run(scenario)
    (fault,) = outcome.faults
    assert fault.found
    assert fault.named_cause == "gpu_fault"
    assert outcome.false == outcome.false_passing == []


def test_a_fault_is_told_to_cost_what_the_job_would_save_without_it() -> None:
    """Of what others wait for a rank 10 % slow, half they would wait for the next slowest."""
    scenario = scenario_of("sudden", 7310, "tuning")
    (fault,) = run(scenario).faults
    assert fault.named_wasted_gpu_s == pytest.approx(fault.true_wasted_gpu_s, rel=0.3)
