from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Phase
from paceline_service.analysis.evidence.periodic import LEAST_STALLS, log_chance_of_period
from tests.unit.analysis.watched import Job


@pytest.mark.parametrize("tails", ["normal", "t3", "spikes"])
@pytest.mark.parametrize("period", [3, 8, 13, 30])
def test_a_rank_that_stalls_every_so_many_steps_is_found_with_the_period(
    period: int, tails: str
) -> None:
    job = Job(ranks=8, jitter=0.02, tails=tails, autocorrelation=0.2, seed=period)
    job.slow(3, 0.5, when=lambda step: step >= 40 and (step - 40) % period == 0)
    (episode,) = job.run(420).episodes
    assert episode.rank == 3
    assert episode.period_steps == pytest.approx(period, rel=0.05)
    assert episode.first_step <= 40 + 2 * period
    assert episode.steps >= 0.9 * (380 // period)
    # What it costs is told over all steps, not only over those in which it stalls.
    assert episode.alone_ns / episode.duration_ns == pytest.approx(0.45 / period, rel=0.3)


def test_stalls_at_random_have_no_period() -> None:
    job = Job(ranks=64, jitter=0.02, tails="spikes", autocorrelation=0.2, seed=5)
    assert job.run(3000).episodes == []


def test_the_chance_of_a_period_falls_with_every_stall_and_holds_for_random_stalls() -> None:
    rng = np.random.default_rng(3)
    period, gaps = 10, 12
    assert log_chance_of_period(12, 12, period) < log_chance_of_period(6, 6, period) < 0
    drawn = rng.geometric(1 / period, (20_000, gaps))
    usual = np.median(drawn, axis=1)
    near = (np.abs(drawn - usual[:, None]) <= np.maximum(usual / 8, 0.5)[:, None]).sum(axis=1)
    chance = np.array(
        [log_chance_of_period(gaps, int(n), float(u)) if u >= 2 else 0.0
         for n, u in zip(near, usual, strict=True)]
    )  # fmt: skip
    for limit in (0.1, 0.01):
        assert (chance <= np.log(limit)).mean() <= limit


def test_stalls_that_last_some_steps_are_one_each() -> None:
    job = Job(ranks=8, jitter=0.02, seed=2)
    job.slow(3, 0.5, when=lambda step: step >= 40 and step % 20 < 3)
    (episode,) = job.run(400).episodes
    assert episode.period_steps == pytest.approx(20, rel=0.05)
    assert episode.alone_ns / episode.duration_ns == pytest.approx(3 * 0.45 / 20, rel=0.3)


def test_few_stalls_are_no_period() -> None:
    job = Job(ranks=8, jitter=0.02, seed=1)
    job.slow(3, 0.5, when=lambda step: step in range(100, 100 + 20 * (LEAST_STALLS - 1), 20))
    assert job.run(300).episodes == []


def test_a_period_that_ends_closes_its_episode() -> None:
    job = Job(ranks=8, jitter=0.02, seed=1)
    job.slow(3, 0.5, when=lambda step: 50 <= step < 250 and step % 10 == 0)
    (episode,) = job.run(400).episodes
    assert (episode.open, episode.last_step) == (False, 240)


def test_the_phase_in_which_a_rank_stalls_is_told() -> None:
    job = Job(ranks=8, jitter=0.02, seed=1)
    job.slow(3, 0.5, when=lambda step: step % 10 == 0, phase=Phase.INPUT)
    (episode,) = job.run(300).episodes
    assert Phase(int(episode.phase_excess_ns.argmax())) == Phase.INPUT
