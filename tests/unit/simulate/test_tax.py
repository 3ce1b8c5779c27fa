"""The figures of docs/math/execution.md, and drawing against the closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline_service.simulate import largest
from paceline_service.simulate.draws import generator
from paceline_service.simulate.largest import harmonic, mean_of_largest
from paceline_service.simulate.noise import Noise
from paceline_service.simulate.tax import taxes

COUNTS = (8, 64, 512, 1000, 4096, 10_000)
FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0)
LAWS = [
    Noise(),
    Noise(law="uniform", spread=0.3),
    Noise(law="normal", spread=0.05),
    Noise(law="lognormal", spread=0.3),
    Noise(law="gamma", spread=0.5),
    Noise(law="gamma", spread=1.5),
    Noise(law="exponential", spread=0.2),
    Noise(law="pareto", spread=3.5),
    Noise(law="pause", spread=0.5, probability=0.01),
]


@pytest.mark.parametrize("cv", [0.005, 0.05])
def test_the_tax_of_normal_jitter_is_its_cv_times_a_constant_of_the_ranks(cv: float) -> None:
    told = (1.424, 2.344, 3.044, 3.241, 3.626, 3.852)
    found = [(mean_of_largest(Noise(law="normal", spread=cv), k) - 1) / cv for k in COUNTS]
    assert [round(value, 3) for value in found] == pytest.approx(told, abs=1e-9)


def test_the_tax_of_lognormal_jitter_at_five_per_cent() -> None:
    told = (7.29, 12.31, 16.30, 17.45, 19.73, 21.09)
    found = [mean_of_largest(Noise(law="lognormal", spread=0.05), k) - 1 for k in COUNTS]
    assert [round(value * 100, 2) for value in found] == pytest.approx(told, abs=1e-9)


def test_the_tax_of_a_shifted_exponential_is_cv_times_h_k_less_one() -> None:
    for k in COUNTS:
        tax = mean_of_largest(Noise(law="exponential", spread=0.2), k) - 1
        assert tax == pytest.approx(0.2 * (sum(1 / i for i in range(1, k + 1)) - 1))
    assert harmonic(5000) == pytest.approx(sum(1 / i for i in range(1, 5001)), rel=1e-12)


def test_the_tax_of_pareto_tails_is_that_of_gamma_functions() -> None:
    for k in (2, 8, 128):
        a, least = 3.0, 2 / 3
        told = least * math.gamma(k + 1) * math.gamma(1 - 1 / a) / math.gamma(k + 1 - 1 / a)
        assert mean_of_largest(Noise(law="pareto", spread=a), k) == pytest.approx(told)


def test_pauses_at_random_cost_more_the_more_ranks_there_are() -> None:
    p, d = 0.01, 0.5
    for k in COUNTS:
        tax = mean_of_largest(Noise(law="pause", spread=d, probability=p), k) - 1
        assert tax == pytest.approx(d * (1 - (1 - p) ** k))
    assert mean_of_largest(Noise(law="pause", spread=d, probability=1), 8) == pytest.approx(1.5)


def test_a_pause_of_its_own_is_no_waiting_of_a_rank() -> None:
    (tax,) = taxes(Noise(law="pause", spread=0.5, probability=0.5), [2], [1.0], 2, 7)
    assert tax.tax_expected == pytest.approx(0.375)
    assert tax.idle_ratio == pytest.approx(1 - 1.25 / 1.375)
    (always,) = taxes(Noise(law="pause", spread=0.5, probability=1.0), [8], [1.0], 2, 7)
    assert always.idle_ratio == pytest.approx(0)


@pytest.mark.parametrize("noise", LAWS, ids=lambda one: f"{one.law}-{one.spread:g}")
def test_drawn_step_times_agree_with_the_closed_forms(noise: Noise) -> None:
    for tax in taxes(noise, (2, 8, 32, 128), FACTORS, 3000, 7):
        # 4 standard errors: of 180 cases none is out by chance in 99 of 100 seeds.
        assert tax.tax == pytest.approx(tax.tax_expected, abs=4 * tax.tax_error + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("noise", LAWS, ids=lambda one: f"{one.law}-{one.spread:g}")
def test_drawn_step_times_agree_for_thousands_of_ranks(noise: Noise) -> None:
    for tax in taxes(noise, (1000, 4096, 16_384), FACTORS, 1000, 11):
        # What happens in fewer than one step of 1000 shows in no standard error.
        assert tax.tax == pytest.approx(tax.tax_expected, abs=4 * tax.tax_error + 1e-4)


@pytest.mark.parametrize(
    "noise", [one for one in LAWS if one.law in ("uniform", "exponential", "pareto")],
    ids=lambda one: one.law,
)  # fmt: skip
def test_the_integral_agrees_with_the_closed_forms(noise: Noise) -> None:
    for k in (2, 128, 10_000):
        exact, summed = mean_of_largest(noise, k), largest._integrated(noise, k, 1.0)
        assert summed == pytest.approx(exact, rel=2e-5)


def test_without_noise_the_tax_is_what_balance_would_save() -> None:
    for tax in taxes(Noise(), (2, 8, 32, 128), FACTORS, 10, 0):
        balanced = (tax.ranks - 1 + tax.factor) / tax.ranks
        assert tax.tax == pytest.approx(tax.factor / balanced - 1, abs=1e-12)
        assert tax.slowdown == tax.factor
        assert tax.idle_ratio == pytest.approx(1 - balanced / tax.factor)


def test_a_rank_that_is_slower_than_chance_sets_the_pace_alone() -> None:
    noise = Noise(law="normal", spread=0.05)
    assert mean_of_largest(noise, 128, 3.0) == pytest.approx(3.0, abs=1e-3)


def test_in_noise_a_rank_that_is_a_little_slower_costs_next_to_nothing() -> None:
    # Of 1000 ranks one is 4 % slow: 0.02 % at a cv of 5 %, over 2 % at 0.5 %.
    found = [
        mean_of_largest(Noise(law="normal", spread=cv), 1000, 1.04)
        / mean_of_largest(Noise(law="normal", spread=cv), 1000)
        for cv in (0.05, 0.005)
    ]
    assert found == pytest.approx([1.0002, 1.0234], abs=5e-5)


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (Noise(law="weibull", spread=1), "is no law"),
        (Noise(law="normal", spread=0.5), "lognormal or gamma"),
        (Noise(law="uniform", spread=1.5), "negative"),
        (Noise(law="exponential", spread=2), "negative"),
        (Noise(law="pareto", spread=1), "above 1"),
        (Noise(law="gamma", spread=0), "above 0"),
        (Noise(law="lognormal", spread=math.inf), "above 0"),
        (Noise(law="pause", spread=0.5, probability=2), "from 0 to 1"),
    ],
)
def test_a_law_that_gives_no_step_times_is_refused(noise: Noise, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        noise.relative_spread(np.ones(2))


@pytest.mark.parametrize("noise", LAWS, ids=lambda one: f"{one.law}-{one.spread:g}")
def test_every_law_has_the_mean_that_it_is_given(noise: Noise) -> None:
    mean_s = np.array([0.02, 0.04])
    drawn = noise.draw(generator(3), mean_s, 40_000)
    error = drawn.std(axis=0) / 200
    assert (np.abs(drawn.mean(axis=0) - noise.expected(mean_s)) <= 4 * error + 1e-12).all()
    assert (drawn >= 0).all()
