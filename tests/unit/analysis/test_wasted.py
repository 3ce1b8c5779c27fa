from __future__ import annotations

import pytest

from paceline.vocabulary import Phase
from tests.simulator.feed import analyse, feed
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.analysis.test_sampling import SLOW, sampled


def test_what_is_wasted_is_told_for_all_steps_also_of_a_job_that_recorded_one_in_five() -> None:
    job = simulate(SLOW)
    whole = feed(job)[0].report()
    fifth = feed(sampled(job, 5))[0].report()
    assert fifth.wasted_gpu_s == pytest.approx(whole.wasted_gpu_s, rel=0.1)
    assert fifth.findings[0].wasted_gpu_s == pytest.approx(whole.findings[0].wasted_gpu_s, rel=0.1)


def test_what_is_wasted_is_told_by_cause_and_each_blamed_rank_has_its_cause() -> None:
    faults = (
        Fault(rank=1, phase=Phase.FORWARD, extra_ms=5, first=60),
        Fault(rank=6, phase=Phase.INPUT, extra_ms=12, first=60),
    )
    report = analyse(Scenario(data_parallel=8, steps=200, faults=faults)).report()
    by_cause = report.to_dict()["wasted_gpu_s_by_cause"]
    assert list(by_cause) == ["input", "compute"]
    assert sum(by_cause.values()) <= (report.wasted_gpu_s or 0.0) * 1.01
    assert {row.rank: row.cause for row in report.ranks if row.cause} == {1: "compute", 6: "input"}
