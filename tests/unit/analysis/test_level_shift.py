from __future__ import annotations

import numpy as np
import pytest

from paceline_service.analysis.evidence.level_shift import level_shifts


def series(seed: int, count: int, cv: float = 0.02) -> np.ndarray:
    return 1000 * np.exp(np.random.default_rng(seed).normal(0, cv, count))


def test_a_series_without_a_shift_has_none() -> None:
    found = [seed for seed in range(200) if level_shifts(series(seed, 20 + seed))]
    assert len(found) <= 1  # 1 in 1,000 each is allowed


def test_values_that_resemble_those_before_them_are_no_shift() -> None:
    found = []
    for seed in range(100):
        noise = np.random.default_rng(seed).normal(0, 0.02, 200)
        for k in range(1, 200):
            noise[k] += 0.5 * noise[k - 1]
        found += level_shifts(1000 * np.exp(noise))
    assert found == []


def test_single_slow_values_are_no_shift() -> None:
    values = series(1, 200)
    values[::17] *= 3
    assert level_shifts(values) == []


@pytest.mark.parametrize("at", [15, 60, 105])
def test_a_tenth_more_is_found_where_it_begins(at: int) -> None:
    values = series(at, 120)
    values[at:] *= 1.1
    (shift,) = level_shifts(values)
    assert abs(shift.index - at) <= 2
    assert shift.ratio == pytest.approx(1.1, abs=0.02)
    assert shift.chance < 1e-3


def test_a_shift_that_is_over_is_two() -> None:
    values = series(2, 200, cv=0.01)
    values[80:120] *= 1.2
    assert [shift.index for shift in level_shifts(values)] == [80, 120]


def test_less_than_healthy_jobs_wander_is_no_shift() -> None:
    values = series(3, 400, cv=0.002)
    values[200:] *= 1.02
    assert level_shifts(values) == []


def test_a_long_series_is_thinned_and_its_shift_still_placed() -> None:
    values = series(4, 60_000)
    values[41_234:] *= 1.1
    (shift,) = level_shifts(values)
    assert abs(shift.index - 41_234) <= 10


@pytest.mark.parametrize("count", [0, 1, 9, 30])
def test_few_or_equal_values_have_no_shift(count: int) -> None:
    assert level_shifts(np.full(count, 5.0)) == []
