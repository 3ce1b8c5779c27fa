"""What is fitted from a job, with its intervals; the gap adds up."""

from __future__ import annotations

import numpy as np
import pytest

from paceline_service.analysis.costs.calibrate_compute import (
    compute_fits,
    effective_flops,
    mean_level,
    typical,
)
from paceline_service.analysis.costs.calibrate_gap import (
    Losses,
    Step,
    attributed,
    barrier_ns,
    largest_of,
)
from paceline_service.analysis.costs.calibrate_line import line_intervals, theil_sen

ALPHA_NS, BETA = 40e3, 0.1


@pytest.mark.parametrize("sizes", [(1e6, 4e6), (1e6, 2e6, 8e6), (1e5, 1e6, 1e7, 3e7, 1e8)])
def test_the_intervals_of_alpha_and_beta_hold_the_truth_nineteen_times_of_twenty(
    sizes: tuple[float, ...],
) -> None:
    size = np.array(sizes)
    true_ns = ALPHA_NS + BETA * size
    draw = np.random.default_rng(7)
    held = np.zeros(2)
    runs = 200
    for _ in range(runs):
        error_ns = 0.02 * true_ns
        took_ns = true_ns + error_ns * draw.standard_normal(len(size))
        alpha, beta = line_intervals(size, took_ns, error_ns)
        held += (alpha[0] <= ALPHA_NS <= alpha[1], beta[0] <= BETA <= beta[1])
    assert (held / runs >= 0.9).all()


def test_a_line_through_one_bad_size_of_five_is_the_line_of_the_others() -> None:
    size = np.array([1e6, 2e6, 4e6, 8e6, 16e6])
    took_ns = ALPHA_NS + BETA * size
    took_ns[2] *= 3
    alpha, beta = theil_sen(size, took_ns[None, :])
    assert (alpha[0], beta[0]) == (pytest.approx(ALPHA_NS, rel=0.3), pytest.approx(BETA, rel=0.02))


def test_compute_is_fitted_per_peer_group_and_blind_to_the_slow_rank() -> None:
    own_ns = np.array([100.0, 101, 99, 180, 50, 51, np.nan, 50])
    fits = compute_fits(own_ns, [np.arange(4), np.arange(4, 8)], relative_error=0.01)
    assert [fit.level_ns for fit in fits] == [100.5, 50.0]
    assert fits[0].interval_ns[0] < 100 < fits[0].interval_ns[1]
    assert mean_level(fits)[0] == pytest.approx(75.25)


def test_of_two_peers_the_one_that_is_not_named_says_what_is_healthy() -> None:
    own_ns = np.array([100.0, 140.0, 90.0, 120.0])
    groups = [np.array([0, 1]), np.array([2, 3])]
    fits = compute_fits(own_ns, groups, relative_error=0.01, named={1, 2, 3})
    assert [fit.level_ns for fit in fits] == [100.0, 105.0]


def test_a_series_that_wanders_is_known_less_well_than_its_length_says() -> None:
    draw = np.random.default_rng(5)
    calm = draw.standard_normal(400)
    wandering = np.zeros(400)
    for step in range(1, 400):
        wandering[step] = 0.9 * wandering[step - 1] + np.sqrt(1 - 0.81) * calm[step]
    assert typical(wandering)[1] > 2 * typical(calm)[1]


def test_the_flops_of_a_rank_are_those_of_the_step_over_its_compute() -> None:
    """6 P b at 312 TFLOP/s: docs/math/costs.md's 17.23 ms for P = 7e9, b = 128, of 16 ranks."""
    flops = 6 * 7e9 * 2048
    rate, low, high = effective_flops(flops, 16, (0.0170, 0.0175), 0.0172308)
    assert rate == pytest.approx(312e12, rel=1e-4)
    assert low < rate < high


@pytest.mark.parametrize(("ranks", "most"), [(2, 0.564), (8, 1.424), (512, 3.044), (10_000, 3.852)])
def test_the_largest_of_many_normal_values_is_that_of_the_closed_form(
    ranks: int, most: float
) -> None:
    """DETECTION section 7, m_K."""
    assert largest_of(ranks) == pytest.approx(most, abs=0.025)
    tax_ns = barrier_ns(
        typical_ns=None, jitter=0.02, compute_ns=1e6, ranks=ranks, not_blamed_ns=0.0
    )
    assert tax_ns == pytest.approx(0.02 * 1e6 * most, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_and_what_is_unexplained_sum_to_the_gap(seed: int) -> None:
    draw = np.random.default_rng(seed)
    observed, expected = (Step(compute_ns=a, wait_ns=b, comm_ns=c)
                          for a, b, c in draw.uniform(0, 100, (2, 3)))  # fmt: skip
    parts = ("straggler", "network", "imbalance", "host", "slowdown")
    some = [dict(zip(parts, draw.uniform(0, 30, 5), strict=True)) for _ in range(3)]
    losses = Losses(waited_ns=some[0], own_ns=some[1], comm_ns=some[2])
    lost = attributed(observed, expected, losses)
    assert set(lost) == {*parts, "unexplained"}
    assert sum(lost.values()) == pytest.approx(observed.total_ns - expected.total_ns)


def test_no_more_wait_is_lost_than_there_is_beyond_what_healthy_ranks_wait() -> None:
    """A step in which one rank is slow has no wait of healthy ranks for each other besides."""
    observed = Step(compute_ns=100, wait_ns=30, comm_ns=10)
    expected = Step(compute_ns=100, wait_ns=5, comm_ns=10)
    losses = Losses(waited_ns={"straggler": 30.0}, own_ns={}, comm_ns={})
    lost = attributed(observed, expected, losses)
    assert (lost["straggler"], lost["unexplained"]) == (25.0, 0.0)
