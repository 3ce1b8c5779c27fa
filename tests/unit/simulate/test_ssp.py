from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline_service.simulate.bsp import Bsp
from paceline_service.simulate.draws import generator
from paceline_service.simulate.noise import Noise
from paceline_service.simulate.profile import Profile
from paceline_service.simulate.ssp import SspRun, Steps, ssp

COMMUNICATION_S = 0.006
STRAGGLER = Profile(
    mean_s=np.array([0.020, 0.022, 0.021, 0.038]),
    noise=Noise(law="uniform", spread=0.002, relative=False),
)
EVEN = Profile(mean_s=np.full(16, 0.1), noise=Noise(law="lognormal", spread=0.2))
BOUNDS = (0, 1, 2, 4, 8, 16, math.inf)


def sweep(profile: Profile, steps: int) -> list[SspRun]:
    drawn = Steps(profile, generator(7))
    return [ssp(drawn, COMMUNICATION_S, steps, bound) for bound in BOUNDS]


@pytest.mark.parametrize("profile", [STRAGGLER, EVEN])
def test_with_bound_zero_it_is_bulk_synchronous(profile: Profile) -> None:
    run = ssp(Steps(profile, generator(7)), COMMUNICATION_S, 40, 0)
    compute_s = profile.draw(generator(7), 40)
    same = Bsp(compute_s=compute_s, communication_s=COMMUNICATION_S, expected_s=profile.expected_s)
    assert run.wall_clock_s == pytest.approx(same.wall_clock_s)
    assert run.idle_s == pytest.approx(same.wait_total_s)
    assert run.updates.tolist() == [40] * len(profile.mean_s)
    assert run.staleness.steps.max() == run.staleness.updates.max() == 0


def test_without_a_bound_nobody_waits_and_every_rank_goes_at_its_own_pace() -> None:
    run = sweep(STRAGGLER, 400)[-1]
    assert run.idle_s == 0
    rate = 1 / (STRAGGLER.mean_s + COMMUNICATION_S)
    assert run.wall_clock_s == pytest.approx(1600 / rate.sum(), rel=0.005)
    assert run.updates / run.updates.sum() == pytest.approx(rate / rate.sum(), abs=0.002)


@pytest.mark.parametrize("profile", [STRAGGLER, EVEN])
def test_a_wider_bound_never_costs_time_and_never_exceeds_its_staleness(profile: Profile) -> None:
    runs = sweep(profile, 200)
    walls = [run.wall_clock_s for run in runs]
    assert walls == sorted(walls, reverse=True)
    for run in runs:
        assert run.staleness.steps.max() <= run.bound
        assert run.updates.sum() == len(run.staleness.steps) == 200 * len(profile.mean_s)


def test_a_bound_absorbs_chance_but_not_a_rank_that_is_always_slower() -> None:
    chance, slower = sweep(EVEN, 300), sweep(STRAGGLER, 300)
    assert chance[2].idle_ratio < chance[0].idle_ratio / 5
    assert slower[4].idle_ratio > slower[0].idle_ratio * 0.9
    assert slower[0].every_rank_done_s == pytest.approx(slower[-1].every_rank_done_s, rel=0.001)


def test_asynchronous_updates_miss_those_of_all_other_ranks_on_average() -> None:
    for profile in (EVEN, STRAGGLER):
        run = sweep(profile, 400)[-1]
        assert run.staleness.updates.mean() == pytest.approx(len(profile.mean_s) - 1, rel=0.02)


def test_staleness_in_steps_is_counted_from_the_slowest_rank() -> None:
    # Rank 0 takes 1 s and rank 1 takes 3 s: when rank 0 begins its step t, rank 1 made t // 3.
    profile = Profile(mean_s=np.array([1.0, 3.0]))
    run = ssp(Steps(profile, generator(0)), 0.0, 3, math.inf)
    assert run.wall_clock_s == 5.0
    assert run.updates.tolist() == [5, 1]
    assert sorted(run.staleness.steps.tolist()) == [0, 0, 1, 2, 2, 3]
    assert run.staleness.steps_histogram() == [2, 1, 2, 1]


def test_of_very_many_updates_some_of_every_rank_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = sweep(STRAGGLER, 400)[-1].staleness
    monkeypatch.setattr("paceline_service.simulate.staleness.MOST_LOOKED_AT", 400)
    some = sweep(STRAGGLER, 400)[-1].staleness
    assert len(some.steps) == -(-1600 // 5)  # every fifth: every fourth would be of one rank
    assert some.steps.mean() == pytest.approx(whole.steps.mean(), rel=0.05)
    assert some.updates.mean() == pytest.approx(whole.updates.mean(), rel=0.05)


@pytest.mark.parametrize("bound", [-1, 1.5, math.nan])
def test_a_bound_that_is_none_is_refused(bound: float) -> None:
    with pytest.raises(ConfigError, match="whole numbers of steps from 0, or inf"):
        ssp(Steps(EVEN, generator(0)), 0.0, 3, bound)


def test_more_step_times_than_fit_are_refused_before_they_are_drawn() -> None:
    with pytest.raises(ConfigError, match="give fewer --steps or --ranks"):
        ssp(Steps(EVEN, generator(0)), 0.0, 10_000_000, 1)
