from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paceline_service.analysis.evidence.edetector import (
    DELTAS,
    PRIOR,
    EDetector,
    doubt_factors,
    least_steps,
    place_weights,
    steps_between_false_alarms,
)
from paceline_service.analysis.evidence.places import PeerPlan


def one_group(ranks: int) -> PeerPlan:
    return PeerPlan([np.arange(ranks)], ranks)


def bet(detector: EDetector, plan: PeerPlan, values: np.ndarray) -> None:
    placed = plan.place(values)
    detector.bet(placed.ranks, placed.bets()[0])


@pytest.mark.parametrize("places", [2, 4, 8, 1000])
def test_the_weights_of_all_places_have_mean_one_and_ascend(places: int) -> None:
    for delta in DELTAS:
        weights = place_weights(places, delta)
        assert weights.mean() == pytest.approx(1.0)
        assert (np.diff(weights) > 0).all()


def test_the_stake_is_spent_once() -> None:
    assert len(PRIOR) == len(DELTAS)
    assert sum(PRIOR) == pytest.approx(1.0)


def test_equal_ranks_gather_no_evidence() -> None:
    detector, plan = EDetector(4), one_group(4)
    for _ in range(50):
        bet(detector, plan, np.zeros(4))
    # R <- R + 1: the martingale itself, and nobody ahead of anybody.
    assert detector.values == pytest.approx(np.full(4, 50.0))


def test_equal_values_share_the_bets_of_their_places() -> None:
    placed = one_group(4).place(np.array([1.0, 0.0, 1.0, 2.0]))
    weights, scores = placed.bets()
    expected = place_weights(4, DELTAS[2])
    expected[1:3] = expected[1:3].mean()
    assert weights[:, 2] == pytest.approx(expected)
    assert scores[1] == scores[2]


def test_groups_bet_apart_and_each_with_weights_of_its_size() -> None:
    plan = PeerPlan([np.array([4, 0]), np.array([1, 3, 5]), np.array([2])], 6)
    placed = plan.place(np.array([3.0, 1.0, 9.0, 2.0, 1.0, 0.0]))
    weights, _ = placed.bets()
    assert placed.ranks.tolist() == [4, 0, 5, 1, 3]
    assert weights[:2, 0] == pytest.approx(place_weights(2, DELTAS[0]))
    assert weights[2:, 0] == pytest.approx(place_weights(3, DELTAS[0]))


def test_doubt_about_an_offset_keeps_its_error_from_counting_as_evidence() -> None:
    """Bets on normal values whose offsets err by N(0, v): fair up to where a bet would win."""
    needed, variance = 12.0, 1 / 100
    (factor,) = doubt_factors(np.array([variance]), needed)
    for delta in (0.5, 1.0, 2.0):
        steps = int(2 * needed / delta**2)
        grown = delta**2 * variance * steps**2 / 2  # log mean of exp(delta e steps)
        assert grown + steps * np.log(factor) <= 1e-9


@pytest.mark.parametrize("noise", ["normal", "t2", "lognormal", "spikes"])
def test_the_mean_time_between_false_alarms_holds_whatever_the_noise(noise: str) -> None:
    rng = np.random.default_rng(7)
    peers, gamma = 8, 300.0
    detector, plan = EDetector(peers), one_group(peers)
    alarms, steps = 0, 24_000
    draws: dict[str, Callable[[], np.ndarray]] = {
        "normal": lambda: rng.standard_normal(peers),
        "t2": lambda: rng.standard_t(2, peers) / 30,
        "lognormal": lambda: rng.lognormal(0, 0.5, peers),
        "spikes": lambda: rng.standard_normal(peers) + 20 * (rng.random(peers) < 0.01),
    }
    for _ in range(steps):
        bet(detector, plan, np.clip(draws[noise](), -30, 30))
        if (detector.values >= peers * gamma).any():
            alarms += 1
            detector.reset(np.ones(peers, dtype=np.bool_))
    # At most steps / gamma alarms are expected; three Poisson deviations above is a defect.
    allowed = steps / gamma
    assert alarms <= allowed + 3 * np.sqrt(allowed)


def test_a_rank_that_is_always_last_is_named_near_the_floor() -> None:
    peers, gamma = 8, 1e6
    detector, plan = EDetector(peers), one_group(peers)
    scores = np.arange(peers, dtype=float)
    steps = 0
    while (detector.values < peers * gamma).all():
        bet(detector, plan, scores)
        steps += 1
    assert detector.values.argmax() == peers - 1
    assert steps <= least_steps(peers, peers, gamma)
    assert steps <= 1.5 * np.log(peers * gamma) / np.log(peers)


def test_absent_ranks_neither_gain_nor_lose_evidence() -> None:
    detector, plan = EDetector(4), one_group(4)
    for _ in range(10):
        bet(detector, plan, np.array([0.0, 1.0, 2.0, np.nan]))
    assert detector.values[3] == 0.0
    assert detector.values[2] > 1.0


def test_slower_steps_and_more_channels_change_the_threshold_in_proportion() -> None:
    once = steps_between_false_alarms(1.0, 1.0, channels=1)
    assert once == pytest.approx(30 * 86400)
    assert steps_between_false_alarms(0.5, 2.0, channels=2) == pytest.approx(2 * once)
