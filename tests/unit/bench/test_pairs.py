"""Paired ratios: right on known truth, and honest about noise."""

from __future__ import annotations

import numpy as np
import pytest

from paceline_service.bench.pairs import difference, ratio, shuffled_rounds


def test_the_ratio_is_free_of_a_drift_that_both_conditions_share() -> None:
    rng = np.random.default_rng(3)
    drift = np.linspace(1.0, 3.0, 40)
    off = drift * rng.normal(1.0, 0.01, 40)
    on = 1.05 * drift * rng.normal(1.0, 0.01, 40)
    found = ratio(list(on), list(off))
    assert found.low < 1.05 < found.high
    assert found.high - found.low < 0.02


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(100):
        found = difference(list(rng.normal(2.0, 1.0, 30)), list(rng.normal(1.5, 1.0, 30)))
        covered += found.low <= 0.5 <= found.high
    assert 85 <= covered <= 100


def test_one_round_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="measure two or more"):
        ratio([1.0], [1.0])


def test_every_round_has_every_condition_once_and_the_order_changes() -> None:
    rounds = shuffled_rounds(("off", "on", "null"), 20, seed=1)
    assert all(sorted(one) == ["null", "off", "on"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 3
    assert rounds == shuffled_rounds(("off", "on", "null"), 20, seed=1)
