"""Comparing two runs: a difference is found, named where it is, and not made up."""

from __future__ import annotations

import numpy as np
import pytest

from paceline_service.analysis.compare.change import FALSE_RATE, change, significant
from paceline_service.analysis.compare.figures import (
    MOST_BATCHES,
    RunFigures,
    batch_edges,
    batch_figures,
)
from paceline_service.analysis.compare.findings import match_findings
from paceline_service.analysis.compare.runs import RunChange, compare_runs
from paceline_service.analysis.compare.student import quantile, two_sided
from tests.unit.export.reports import finding

MS = 1e6


def run(
    seed: int, *, ranks: int = 8, slow: tuple[int, ...] = (), factor: float = 1.0,
    all_slower: float = 1.0, noise: float = 0.01, batches: int = 16,
) -> RunFigures:  # fmt: skip
    """A run of batches whose ranks need 30 ms each, and wait for the slowest of them."""
    random = np.random.default_rng(seed)
    own = 30 * MS * all_slower * (1 + noise * random.standard_normal((batches, ranks)))
    own[:, list(slow)] *= factor
    longest = own.max(axis=1)
    parts = np.zeros((batches, 9))
    parts[:, 3] = own.mean(axis=1)
    parts[:, 7] = 2 * MS
    parts[:, 8] = longest - own.mean(axis=1)
    return RunFigures(steps=4 * batches, duration_ns=longest + 2 * MS, part_ns=parts, self_ns=own)


def compared(one: RunFigures, two: RunFigures, *, same_ranks: bool = True) -> RunChange:
    return compare_runs(one, two, same_ranks=same_ranks)


@pytest.mark.parametrize(
    ("t", "freedom", "probability"),
    [(2.228139, 10, 0.05), (4.032143, 5, 0.01), (63.65674, 1, 0.01), (2.575829, 1e7, 0.01)],
)
def test_student_s_distribution_is_that_of_the_tables(
    t: float, freedom: float, probability: float
) -> None:
    assert two_sided(t, freedom) == pytest.approx(probability, rel=1e-5)
    assert two_sided(-t, freedom) == pytest.approx(probability, rel=1e-5)
    assert quantile(1 - probability / 2, freedom) == pytest.approx(t, rel=1e-5)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_runs_that_do_not_differ_are_told_apart_at_the_stated_rate(correlation: float) -> None:
    random = np.random.default_rng(7)
    said = 0
    for _ in range(600):
        noise = random.standard_normal((2, 40 + 16 * 8))
        for place in range(1, noise.shape[1]):
            noise[:, place] += correlation * noise[:, place - 1]
        batches = noise[:, 40:].reshape(2, 16, 8).mean(axis=2)
        found = change(batches[0], batches[1])
        assert found is not None
        said += found.p_value < FALSE_RATE
    # Of 600 at 1 in 100: 15 or more come about once in 1,000 times.
    assert said < 15


def test_what_is_called_the_smallest_difference_shows_in_four_of_five_cases() -> None:
    random = np.random.default_rng(11)
    seen = []
    for _ in range(120):
        one, two = random.standard_normal((2, 16))
        found = change(one, two)
        assert found is not None
        again = change(one - one.mean(), two - two.mean() + found.smallest)
        assert again is not None
        noise = random.standard_normal() * np.sqrt(2 / 16)
        seen.append(abs(found.smallest + noise) > again.half)
    assert 0.7 < np.mean(seen) < 0.95


def test_what_does_not_vary_at_all_differs_or_does_not() -> None:
    same = change(np.full(8, 3.0), np.full(8, 3.0))
    other = change(np.full(8, 3.0), np.full(8, 4.0))
    assert same is not None
    assert other is not None
    assert (same.p_value, other.p_value) == (1.0, 0.0)
    assert (other.difference, other.half) == (1.0, 0.0)


def test_too_few_batches_are_no_test() -> None:
    assert change(np.ones(3), np.ones(9)) is None
    few = compared(run(1, batches=3), run(2, batches=3))
    assert few.step.verdict == "insufficient_evidence"
    assert few.step.low_ratio is None


def test_of_many_tests_only_those_hold_that_hold_together() -> None:
    assert significant([0.004, None, 0.2, 0.0001]) == [True, False, False, True]
    assert significant([0.006, 0.006, 0.2]) == [False, False, False]
    assert significant([]) == []


def test_a_rank_that_is_five_per_cent_slower_is_named_and_the_step_is_slower() -> None:
    for seed in range(20):
        found = compared(run(seed), run(100 + seed, slow=(3,), factor=1.05))
        assert found.step.verdict == "slower"
        assert [one.rank for one in found.ranks if one.verdict] == [3]
        row = found.ranks[3]
        assert row.verdict == "slower"
        assert row.ratio == pytest.approx(0.05, abs=0.02)
        assert found.step.low_ratio is not None
        assert found.step.low_ratio > 0
        # Most of it is waiting for that rank.
        held = {one.part for one in found.parts if one.holds}
        assert 8 in held


def test_the_same_run_with_another_seed_is_no_difference() -> None:
    slower = named = 0
    for seed in range(100):
        found = compared(run(seed), run(1000 + seed))
        slower += found.step.verdict != "no_difference"
        named += any(one.verdict for one in found.ranks)
        assert found.step.smallest_ratio is not None
        assert found.step.smallest_ratio >= 0.005
    # 1 of 100 is expected; 5 or more come about once in 300 times.
    assert slower < 5
    assert named < 5


def test_what_all_ranks_do_alike_is_nobody_s() -> None:
    found = compared(run(1), run(2, all_slower=1.1))
    assert found.step.verdict == "slower"
    assert not any(one.verdict for one in found.ranks)
    assert all(one.changed for one in found.ranks)


def test_of_two_ranks_the_one_that_changed_is_named() -> None:
    found = compared(run(1, ranks=2), run(2, ranks=2, slow=(1,), factor=1.06))
    assert [one.verdict for one in found.ranks] == ["", "slower"]


def test_a_run_without_its_slow_rank_is_faster_and_says_who() -> None:
    found = compared(run(1, slow=(5,), factor=1.08), run(2))
    assert found.step.verdict == "faster"
    assert [one.rank for one in found.ranks if one.verdict == "faster"] == [5]


def test_ranks_of_runs_of_other_sizes_are_not_compared() -> None:
    assert compared(run(1), run(2, ranks=4), same_ranks=False).ranks == []


def test_a_rank_without_data_is_left_out() -> None:
    one, two = run(1), run(2)
    two.self_ns[:, 6] = np.nan
    assert [row.rank for row in compared(one, two).ranks] == [0, 1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("steps", [0, 1, 3, 4, 15, 16, 63, 64, 1000, 1001])
def test_batches_are_of_one_size_and_reach_to_the_end(steps: int) -> None:
    edges = batch_edges(steps)
    sizes = set(np.diff(edges).tolist())
    assert edges[-1] == steps
    assert len(sizes) <= 1
    assert len(edges) - 1 <= MOST_BATCHES
    assert edges[0] < max(len(edges) - 1, 1)


def test_parts_add_up_to_the_mean_step_and_silent_ranks_do_not_count() -> None:
    step = np.full((10, 3), 10, dtype=np.int64)
    step[0] = 70
    step[:, 2] = -1
    parts, own = batch_figures([step, step])
    assert parts.sum() == pytest.approx(70 + 10 + 10)
    assert own[:2].tolist() == [70, 70]
    assert np.isnan(own[2])


def test_findings_are_matched_by_rank_and_by_node_where_ranks_moved() -> None:
    slow, other = finding(ranks=[2]), finding(ranks=[5])
    found = match_findings([slow], [other], same_ranks=True, same_nodes=True)
    assert (found.came, found.went, found.stayed) == ([other], [slow], [])
    found = match_findings([slow], [finding(ranks=[2, 3])], same_ranks=True, same_nodes=True)
    assert len(found.stayed) == 1
    found = match_findings([slow], [other], same_ranks=True, same_nodes=False)
    assert len(found.stayed) == 1, "both are on node-a"
    found = match_findings([slow], [finding(kind="hang")], same_ranks=True, same_nodes=True)
    assert (len(found.came), len(found.went)) == (1, 1)
