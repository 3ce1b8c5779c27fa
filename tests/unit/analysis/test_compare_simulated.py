"""Comparing whole simulated jobs: the rate of false alarms that docs/math/compare.md states."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from paceline.vocabulary import Phase
from paceline_service.analysis.compare.figures import RunFigures
from paceline_service.analysis.compare.runs import compare_runs
from paceline_service.export.run_figures import run_figures
from paceline_service.export.step_archive import StepArchive
from tests.simulator.feed import feed
from tests.simulator.job import Fault, Scenario, simulate

SETTLING_STEPS = 5


def figures(seed: int, **changes: Any) -> RunFigures:
    _, rows = feed(simulate(Scenario(seed=seed, **({"steps": 80} | changes))), nodes=2)
    kept = StepArchive()
    try:
        kept.add(rows)
        return run_figures(kept, SETTLING_STEPS)
    finally:
        kept.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "changes", [{}, {"heavy_tails": True}, {"autocorrelation": 0.7}, {"steps": 30}]
)
def test_of_like_runs_at_most_three_in_a_hundred_pairs_are_told_apart(
    changes: dict[str, Any],
) -> None:
    runs = [figures(1000 + seed, **changes) for seed in range(40)]
    pairs = list(itertools.combinations(range(len(runs)), 2))[::5]
    steps = ranks = 0
    for one, two in pairs:
        found = compare_runs(runs[one], runs[two], same_ranks=True)
        steps += found.step.verdict != "no_difference"
        ranks += any(row.verdict for row in found.ranks)
    assert len(pairs) > 150
    assert steps <= 0.03 * len(pairs)
    assert ranks <= 0.03 * len(pairs)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rank_that_is_five_per_cent_slower_is_named_in_every_run() -> None:
    fault = Fault(rank=3, phase=Phase.BACKWARD, extra_ms=1.9)
    for seed in range(15):
        found = compare_runs(figures(seed), figures(500 + seed, faults=(fault,)), same_ranks=True)
        assert [row.rank for row in found.ranks if row.verdict] == [3]
        assert found.step.ratio > 0
