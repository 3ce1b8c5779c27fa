from __future__ import annotations

import random

import numpy as np
import pytest

from paceline_service.simulate.bsp import Bsp
from paceline_service.simulate.draws import generator
from paceline_service.simulate.local_steps import local_steps
from paceline_service.simulate.noise import Noise
from paceline_service.simulate.profile import Profile, Recorded

FOUR = np.array([0.020, 0.022, 0.021, 0.038])
JITTER = Noise(law="uniform", spread=0.002, relative=False)


def four_ranks(steps: int) -> Bsp:
    profile = Profile(mean_s=FOUR, noise=JITTER)
    compute_s = profile.draw(generator(7), steps)
    return Bsp(compute_s=compute_s, communication_s=0.006, expected_s=profile.expected_s)


def test_the_four_ranks_of_the_issue_give_its_figures() -> None:
    run = four_ranks(3)
    assert round(run.wall_clock_s * 1e3, 2) == 128.68
    assert round(run.idle_injected_s * 1e3, 2) == 34.93
    assert round(run.straggler_share * 100, 1) == 37.6
    assert run.straggler == 3
    assert run.slowest_rank.tolist() == [3, 3, 3]


def test_the_same_comes_out_of_a_few_lines_of_python() -> None:
    rng = random.Random(7)
    wall_ms = waited_ms = 0.0
    for _ in range(3):
        compute_ms = [mean + rng.uniform(-2, 2) for mean in (20, 22, 21, 38)]
        wall_ms += max(compute_ms) + 6
        waited_ms += sum(max(compute_ms) - one for one in compute_ms)
    run = four_ranks(3)
    assert run.wall_clock_s * 1e3 == pytest.approx(wall_ms, abs=1e-9)
    assert run.wait_total_s * 1e3 == pytest.approx(waited_ms, abs=1e-9)
    assert run.idle_injected_s * 1e3 == pytest.approx(wall_ms - 3 * (101 / 4 + 6), abs=1e-9)


@pytest.mark.parametrize("seed", [0, 7, -5, 2**31, 2**70 + 3])
def test_draws_are_those_of_python_for_every_seed(seed: int) -> None:
    rng = random.Random(seed)
    assert generator(seed).random(20).tolist() == [rng.random() for _ in range(20)]


def test_in_perfect_balance_nobody_waits_and_everybody_has_an_equal_share() -> None:
    even = Bsp(compute_s=np.full((5, 8), 0.1), communication_s=0.01, expected_s=np.full(8, 0.1))
    assert even.idle_injected_s == pytest.approx(0, abs=1e-12)
    assert even.wait_total_s == 0
    assert even.straggler_share == pytest.approx(1 / 8)


def test_without_the_straggler_the_others_set_the_pace() -> None:
    run = four_ranks(3)
    others = run.compute_s[:, :3].max(axis=1).sum() + 3 * 0.006
    assert run.without_straggler_s == pytest.approx(others)


def test_rounds_of_one_step_are_bulk_synchronous() -> None:
    run = four_ranks(50)
    one = local_steps(run.compute_s, 0.006, 1)
    assert one.wall_clock_s == pytest.approx(run.wall_clock_s)
    assert one.idle_s == pytest.approx(run.wait_total_s)


def test_local_steps_save_communication_and_chance_but_not_a_straggler() -> None:
    slow = four_ranks(1000)
    assert local_steps(slow.compute_s, 0.006, 100).idle_s == pytest.approx(slow.wait_total_s)
    profile = Profile(mean_s=np.full(64, 0.1), noise=Noise(law="normal", spread=0.05))
    even = profile.draw(generator(1), 6400)
    # Chance averages out: the tax of H steps is that of one over the root of H.
    one, hundred = (local_steps(even, 0.0, h).wall_clock_s / 640 - 1 for h in (1, 100))
    assert one == pytest.approx(0.05 * 2.344, rel=0.02)
    assert hundred == pytest.approx(one / 10, rel=0.1)


def test_a_last_round_may_be_shorter() -> None:
    run = local_steps(np.ones((10, 2)), 0.5, 4)
    assert (run.rounds, run.wall_clock_s) == (3, 11.5)


def test_recorded_steps_come_in_order_or_are_drawn_whole() -> None:
    steps_s = np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]])
    in_order = Recorded(compute_s=steps_s, in_order=True).draw(generator(0), 4)
    assert in_order.tolist() == [[1, 2], [3, 6], [5, 10], [1, 2]]
    drawn = Recorded(compute_s=steps_s).draw(generator(0), 100)
    assert (drawn[:, 1] == 2 * drawn[:, 0]).all()
    assert set(drawn[:, 0].tolist()) == {1.0, 3.0, 5.0}
