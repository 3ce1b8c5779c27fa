"""What the analysis has of its own is what numpy and ``statistics`` give."""

from __future__ import annotations

import random
from statistics import NormalDist

import numpy as np
import pytest

from paceline_service.analysis.medians import median_of
from paceline_service.analysis.normal import normal_cdf, normal_quantile
from paceline_service.analysis.sets import distinct, one_of


@pytest.mark.parametrize("depth", [0.4, 1.0, 9.0, 40.0, 300.0])
def test_quantiles_and_probabilities_are_those_of_the_standard_library(depth: float) -> None:
    for low in (0.5 - 0.5 * random.Random(7).random(), 10.0**-depth):
        for probability in (low, 1.0 - low):
            if probability < 1.0:
                expected = NormalDist().inv_cdf(probability)
                assert normal_quantile(probability) == pytest.approx(expected, rel=1e-15)
                assert normal_cdf(expected) == pytest.approx(probability, rel=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0, float("nan")])
def test_what_is_no_probability_has_no_quantile(probability: float) -> None:
    with pytest.raises(ValueError, match="not between 0 and 1"):
        normal_quantile(probability)


@pytest.mark.parametrize("values", [[], [4], [4, 4], [3, -1, 3, 2, -1]])
def test_each_number_that_occurs_is_told_once(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    assert distinct(array).tolist() == np.unique(array).tolist()


def test_the_wanted_are_found() -> None:
    array = np.array([[3, -1], [2, 9]])
    assert one_of(array, (2, 3)).tolist() == [[True, False], [True, False]]
    assert not one_of(array, ()).any()


@pytest.mark.parametrize("shape", [(1,), (8,), (257,), (600,), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("kind", ["whole", "fractions", "one is none"])
def test_medians_are_those_of_numpy(shape: tuple[int, ...], kind: str) -> None:
    seeded = np.random.default_rng(11)
    values = seeded.normal(size=shape)
    if kind == "whole":
        values = seeded.integers(-1 << 60, 1 << 60, size=shape)
    elif kind == "one is none":
        values.flat[-1] = np.nan
    before = values.copy()
    np.testing.assert_array_equal(median_of(values), np.median(values))
    for axis in range(len(shape)):
        for keepdims in (False, True):
            expected = np.median(values, axis=axis, keepdims=keepdims)
            found = median_of(values, axis=axis, keepdims=keepdims)
            np.testing.assert_array_equal(found, expected)
            assert found.shape == expected.shape
    np.testing.assert_array_equal(values, before)


def test_nothing_has_no_median() -> None:
    assert np.isnan(median_of([]))
    assert np.isnan(median_of(np.zeros((2, 0)), axis=1)).all()
