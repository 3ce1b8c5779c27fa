from __future__ import annotations

import numpy as np
import pytest

from paceline_service.analysis.evidence import (
    DELTAS,
    EDetector,
    betting_weights,
    least_steps,
    place_weights,
    steps_between_false_alarms,
)


@pytest.mark.parametrize("places", [2, 4, 8, 1000])
def test_the_weights_of_all_places_have_mean_one_and_ascend(places: int) -> None:
    for delta in DELTAS:
        weights = place_weights(places, delta)
        assert weights.mean() == pytest.approx(1.0)
        assert (np.diff(weights) > 0).all()


def test_equal_ranks_gather_no_evidence() -> None:
    detector = EDetector(4)
    for _ in range(50):
        detector.update(np.zeros(4), np.arange(4))
    # R <- R + 1: the martingale itself, and nobody ahead of anybody.
    assert detector.values() == pytest.approx(np.full(4, 50.0))


def test_a_value_known_only_to_within_a_margin_bets_on_no_better_place() -> None:
    weights = place_weights(4, 1.0)
    values = np.array([0.0, 0.1, 0.2, 0.3])
    assert betting_weights(values, weights) == pytest.approx(weights)
    assert betting_weights(values, weights, margin=0.15)[3] == pytest.approx(weights[2])
    assert betting_weights(values, weights, margin=1.0) == pytest.approx(np.full(4, weights[0]))


@pytest.mark.parametrize("noise", ["normal", "t2", "lognormal", "spikes"])
def test_the_mean_time_between_false_alarms_holds_whatever_the_noise(noise: str) -> None:
    rng = np.random.default_rng(7)
    peers, gamma = 8, 300.0
    detector = EDetector(peers)
    alarms, steps = 0, 24_000
    draw = {
        "normal": lambda: rng.standard_normal(peers),
        "t2": lambda: rng.standard_t(2, peers),
        "lognormal": lambda: rng.lognormal(0, 2, peers),
        "spikes": lambda: rng.standard_normal(peers) + 50 * (rng.random(peers) < 0.01),
    }[noise]
    for _ in range(steps):
        detector.update(draw(), np.arange(peers))
        if (detector.values() >= peers * gamma).any():
            alarms += 1
            detector.reset(np.ones(peers, dtype=np.bool_))
    # At most steps / gamma alarms are expected; three Poisson deviations above is a defect.
    allowed = steps / gamma
    assert alarms <= allowed + 3 * np.sqrt(allowed)


def test_a_rank_that_is_always_last_is_named_near_the_floor() -> None:
    peers, gamma = 8, 1e6
    detector = EDetector(peers)
    scores = np.arange(peers, dtype=float)
    steps = 0
    while (detector.values() < peers * gamma).all():
        detector.update(scores, np.arange(peers))
        steps += 1
    assert detector.values().argmax() == peers - 1
    assert steps <= least_steps(peers, peers, gamma)
    assert steps <= 1.5 * np.log(peers * gamma) / np.log(peers)


def test_absent_ranks_neither_gain_nor_lose_evidence() -> None:
    detector = EDetector(4)
    scores = np.array([0.0, 1.0, 2.0, np.nan])
    for _ in range(10):
        detector.update(scores, np.arange(4))
    assert detector.values()[3] == 0.0
    assert detector.values()[2] > 1.0


def test_slower_steps_and_more_channels_change_the_threshold_in_proportion() -> None:
    once = steps_between_false_alarms(1.0, 1.0, channels=1)
    assert once == pytest.approx(30 * 86400)
    assert steps_between_false_alarms(0.5, 2.0, channels=2) == pytest.approx(2 * once)
