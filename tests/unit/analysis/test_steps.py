from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import AnalysisError
from paceline.vocabulary import EXCLUSIVE_PHASES, Phase
from paceline_service.analysis.blame.noise import release_noise_ns
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.feed import feed
from tests.simulator.job import Fault, Scenario, simulate


@pytest.mark.parametrize("tensor_parallel", [1, 4])
def test_self_time_wait_and_communication_sum_to_the_step_on_every_rank(
    tensor_parallel: int,
) -> None:
    job = simulate(Scenario(steps=30, tensor_parallel=tensor_parallel))
    _, steps = feed(job)
    assert len(steps) == 30
    for row in steps:
        ends = [r[8] for rows in job.rows for r in rows if r[0] == 3 and r[4] == row.step]
        duration = np.array(ends) - row.start_ns
        assert row.self_ns + row.wait_ns + row.comm_ns == pytest.approx(duration, abs=2)
        assert row.phase_self_ns.sum(axis=1) == pytest.approx(row.self_ns, abs=8)


def test_phases_come_back_as_long_as_they_were() -> None:
    scenario = Scenario(steps=20, jitter=0.0, common_jitter=0.0)
    _, steps = feed(simulate(scenario))
    typical = np.median([row.phase_self_ns for row in steps], axis=(0, 1)) / 1e6
    expected = [scenario.phase_ms.get(phase, 0.0) for phase in EXCLUSIVE_PHASES]
    assert typical == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_every_wait_is_charged_once_or_counted_as_unattributed(tensor_parallel: int) -> None:
    fault = Fault(rank=1, phase=Phase.FORWARD, extra_ms=9, first=20)
    scenario = Scenario(steps=60, tensor_parallel=tensor_parallel, faults=(fault,))
    analysis, _ = feed(simulate(scenario))
    rows = analysis.report().ranks
    waited = sum(row.wait_ns for row in rows)
    blamed = sum(row.blamed_wait_ns for row in rows)
    assert blamed + analysis.unattributed_wait_ns == pytest.approx(waited, rel=1e-6)
    assert blamed > 0.9 * waited


def test_a_rank_that_joins_late_holds_nothing_back_for_good() -> None:
    job = simulate(Scenario(steps=120))
    analysis = JobAnalysis(4, Options(patience_s=2.0))
    for name, ranks in job.groups:
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank in range(3):
        analysis.add(records_from_rows(rank, job.rows[rank]))
    early = analysis.advance()
    assert 0 < len(early) < 120
    analysis.add(records_from_rows(3, [r for r in job.rows[3] if r[4] > 70]))
    rest = analysis.advance() + analysis.finish()
    assert [row.step for row in early + rest] == list(range(120))
    assert rest[-1].present.all()
    assert not early[0].present[3]
    assert analysis.report().dropped["unmatched"] > 0


def test_a_killed_rank_does_not_stop_the_others_from_being_judged() -> None:
    job = simulate(Scenario(steps=80))
    analysis = JobAnalysis(4)
    for name, ranks in job.groups:
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank in range(4):
        rows = job.rows[rank] if rank != 2 else job.rows[rank][:300]
        analysis.add(records_from_rows(rank, rows))
    stuck = len(analysis.advance())
    analysis.rank_ended(2, "killed")
    assert stuck + len(analysis.advance()) >= 78
    assert any("rank 2" in note for note in analysis.report().notes)


def test_records_of_a_step_that_was_judged_already_are_counted_as_late() -> None:
    job = simulate(Scenario(steps=40))
    analysis, _ = feed(job)
    analysis.add(records_from_rows(0, job.rows[0][:5]))
    assert analysis.report().dropped["late"] == 5
    assert not analysis.report().complete


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_outside_the_job_is_refused_with_the_remedy(rank: int) -> None:
    with pytest.raises(AnalysisError, match="world size 4"):
        JobAnalysis(4).declare_rank(rank)


def test_records_of_an_undeclared_group_are_refused() -> None:
    job = simulate(Scenario(steps=2, tensor_parallel=2))
    with pytest.raises(AnalysisError, match="declare_group"):
        JobAnalysis(8).add(records_from_rows(0, job.rows[0]))


def test_release_noise_is_measured_whatever_the_offset_and_drift_of_the_clocks() -> None:
    rng = np.random.default_rng(3)
    true_noise_ns = 200_000
    common = np.arange(60)[:, None] * 1e7
    drift = np.array([0.0, 2e-5, -1e-5, 3e-5]) * common
    offset = np.array([0.0, 1e9, -5e8, 7e7])
    releases = common + drift + offset + rng.standard_normal((60, 4)) * true_noise_ns
    measured = release_noise_ns(releases - releases[:, :1])
    assert 0.6 * true_noise_ns < measured < 1.6 * true_noise_ns


def test_a_score_is_taken_against_the_median_of_the_others_of_its_group() -> None:
    logs = np.array([5.0, 2.0, 1.0, 9.0, 7.0, 3.0, np.nan])
    plan = PeerPlan([np.array([0, 2, 3, 5]), np.array([1, 4, 6])], 7)
    common, scores = plan.compare(logs)
    ours = logs[[0, 2, 3, 5]]
    others = [np.median(np.delete(ours, i)) for i in range(4)]
    assert scores[[0, 2, 3, 5]] == pytest.approx(ours - others)
    assert common[[0, 2, 3, 5]] == pytest.approx(ours - np.median(ours))
    assert scores[[1, 4]].tolist() == [-5.0, 5.0]
    assert np.isnan(scores[6])
