from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import AnalysisError
from paceline.vocabulary import Phase
from paceline_service.analysis.evidence.across_jobs import believed_jobs
from paceline_service.analysis.evidence.episode import LASTING_STEPS, Episode
from paceline_service.analysis.evidence.episodes import MOST_EPISODES_OF_A_RANK
from paceline_service.analysis.evidence.from_start import healthy_limit, student_quantile
from paceline_service.analysis.evidence.onset import find_onset
from paceline_service.analysis.options import Options
from tests.unit.analysis.watched import Job


def named(job: Job) -> list[int]:
    return sorted({episode.rank for episode in job.tracker.episodes})


def steps_until_named(job: Job, ranks: int | list[int], most: int) -> float:
    """Return how many steps from now on ``ranks`` are slow when the first of them is named."""
    for waited in range(1, most + 1):
        job.one_step()
        if any(e.open and e.rank in np.atleast_1d(ranks) for e in job.tracker.episodes):
            return waited
    return np.inf


@pytest.mark.parametrize("tails", ["normal", "t3", "lognormal", "spikes"])
@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_false_namings_are_no_more_than_allowed(ranks: int, tails: str) -> None:
    """Allowed 1000 times what is usual, so that a wrong rate would show in a few steps."""
    steps, allowed = 2500, 1000.0
    job = Job(
        ranks=ranks, jitter=0.05, tails=tails, autocorrelation=0.2, spread=0.01,
        options=Options(false_namings_per_month=allowed), seed=ranks,
    )  # fmt: skip
    tracker = job.run(steps)
    expected = steps * tracker.step_s * allowed / (30 * 86_400)
    assert len(tracker.episodes) <= expected + 2.5 * np.sqrt(expected)


@pytest.mark.parametrize(("ranks", "most"), [(8, 1.5), (64, 1.5)])
@pytest.mark.parametrize("deviations", [1.0, 2.0, 4.0, 10.0])
def test_a_slow_rank_is_named_close_to_the_physical_limit(
    ranks: int, most: float, deviations: float
) -> None:
    delays = []
    for seed in range(5):
        job = Job(ranks=ranks, jitter=0.01, spread=0.005, seed=seed)
        job.run(800)
        assert named(job) == []
        job.slow(seed, 0.01 * deviations, since=800)
        delays.append(steps_until_named(job, seed, 400))
    gamma = 30 * 86_400 / 5
    shift = deviations**2 * (1 - 1 / ranks)
    least = 2 / shift * (np.log(ranks * gamma * shift / 2) - 1)
    least = max(least, np.log(ranks * gamma) / np.log(ranks))
    # The allowance is 1.5 for the median of many; one integer step of the floor is in it.
    assert np.median(delays) <= max(most * least + 1, least + 1)


def test_a_node_that_is_slow_as_a_whole_is_named_sooner_than_one_of_its_ranks() -> None:
    delays = {}
    for ranks in ([16], list(range(16, 24))):
        waited = []
        for seed in range(3):
            job = Job(ranks=64, jitter=0.02, ranks_per_node=8, seed=seed)
            job.run(1000)
            job.slow(ranks, 0.012, since=1000)
            waited.append(steps_until_named(job, ranks, 600))
        delays[len(ranks)] = np.median(waited)
    assert delays[8] < delays[1] / 2


def test_a_node_is_named_with_its_ranks_and_with_no_others() -> None:
    job = Job(ranks=64, jitter=0.02, ranks_per_node=8, seed=3)
    job.slow(list(range(16, 24)), 0.02, since=600)
    job.run(760)
    assert set(named(job)) <= set(range(16, 24))
    assert len(named(job)) >= 4


def test_one_slow_rank_does_not_accuse_its_node() -> None:
    job = Job(ranks=64, jitter=0.02, ranks_per_node=8, seed=4)
    job.slow(17, 0.3, since=300)
    job.run(400)
    assert named(job) == [17]


def test_a_slow_rank_does_not_accuse_a_node_that_is_a_pipeline_stage_of_its_own() -> None:
    """The places of peers that are all on one node say nothing of that node."""
    stages = [np.arange(8 * stage, 8 * stage + 8) for stage in range(4)]
    job = Job(ranks=32, jitter=0.02, ranks_per_node=8, groups=stages, seed=4)
    job.slow(1, 0.3, since=300)
    job.run(600)
    assert named(job) == [1]


def test_a_slow_node_is_named_where_stages_lie_across_nodes() -> None:
    stages = [np.arange(16 * stage, 16 * stage + 16) for stage in range(3)]
    job = Job(ranks=48, jitter=0.02, ranks_per_node=8, groups=stages, seed=2)
    job.slow(list(range(8, 16)), 0.02, since=600)
    job.run(760)
    assert set(named(job)) <= set(range(8, 16))
    assert len(named(job)) >= 4


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_few_peers_do_not_cap_the_evidence(ranks: int) -> None:
    """Places alone need ln(K gamma) / ln K steps: 22 of two peers, the past takes fewer."""
    job = Job(ranks=ranks, jitter=0.01, seed=2)
    job.run(900)
    job.slow(1, 0.1, since=900)
    assert steps_until_named(job, 1, 40) <= 8


def test_a_rank_without_any_peer_is_compared_with_its_own_past() -> None:
    groups = [np.array([rank]) for rank in range(4)]
    job = Job(ranks=4, jitter=0.01, groups=groups, seed=2)
    job.run(900)
    assert named(job) == []
    job.slow(1, 0.1, since=900)
    job.run(60)
    (episode,) = job.tracker.episodes
    assert episode.rank == 1
    # Its usual time may be known from the first 30 steps only.
    assert episode.shift == pytest.approx(np.log(1.1), abs=0.03)
    assert abs(episode.first_step - 900) <= 2
    assert Phase(int(episode.phase_excess_ns.argmax())) == Phase.BACKWARD


def test_ranks_without_any_peer_are_not_named_in_healthy_jobs() -> None:
    groups = [np.array([rank]) for rank in range(4)]
    for seed in range(1, 7):
        job = Job(ranks=4, jitter=0.01, groups=groups, seed=seed)
        job.run(800)
        assert job.tracker.episodes == []
        assert job.tracker.baseline is not None
        # A score takes off the median of the three others, which jitters too.
        assert 0.01 < job.tracker.baseline.jitter < 0.015


def test_a_rank_that_becomes_slow_little_by_little_is_named() -> None:
    job = Job(ranks=8, jitter=0.01, spread=0.005, seed=5)
    job.slow(6, 0.05, when=lambda step: min(max(step - 200, 0) / 400, 1.0))
    job.run(800)
    assert named(job) == [6]
    assert job.tracker.episodes[0].open


def test_two_at_a_time_are_both_named_each_from_its_own_start() -> None:
    job = Job(ranks=8, jitter=0.01, spread=0.003, seed=6)
    job.slow(2, 0.06, since=200)
    job.slow(5, 0.04, since=230)
    job.run(330)
    first = {episode.rank: episode.first_step for episode in job.tracker.episodes}
    assert sorted(first) == [2, 5]
    assert abs(first[2] - 200) <= 2
    assert abs(first[5] - 230) <= 3


@pytest.mark.parametrize(("ratio", "found"), [(0.0, False), (0.1, True)])
@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_slow_from_the_first_step_is_told_from_the_healthy_spread(
    ranks: int, ratio: float, found: bool
) -> None:
    for seed in range(3):
        job = Job(ranks=ranks, jitter=0.01, spread=0.01, seed=100 + seed)
        job.slow(1, ratio)
        job.run(300)
        assert (named(job) == [1]) is found
        assert found or not named(job)
        assert all(episode.from_start and episode.first_step == 0
                   for episode in job.tracker.episodes)  # fmt: skip


def test_a_calm_cluster_shows_a_rank_three_percent_slow_from_its_first_step() -> None:
    job = Job(ranks=8, jitter=0.01, spread=0.002, seed=7)
    job.slow(1, 0.03)
    job.run(200)
    assert named(job) == [1]


def test_single_spikes_name_nobody() -> None:
    job = Job(ranks=8, jitter=0.01, seed=8)
    job.slow(3, 2.0, when=lambda step: step in (100, 117, 260))
    job.run(300)
    assert named(job) == []


def test_a_stall_of_a_few_steps_among_many_peers_is_no_lasting_trouble() -> None:
    job = Job(ranks=256, jitter=0.01, seed=9)
    job.slow(3, 0.5, when=lambda step: 200 <= step < 200 + LASTING_STEPS - 3)
    job.run(260)
    assert all(episode.transient for episode in job.tracker.episodes)
    assert named(job) == [3]


def test_recovery_closes_an_episode_and_the_next_one_is_another() -> None:
    job = Job(ranks=8, jitter=0.01, seed=10)
    job.slow(3, 0.1, when=lambda step: 200 <= step < 260 or 400 <= step < 460)
    job.run(600)
    spans = [(e.first_step, e.last_step, e.open) for e in job.tracker.episodes]
    assert len(spans) == 2
    for (first, last, is_open), begin in zip(spans, (200, 400), strict=True):
        assert abs(first - begin) <= 1
        assert abs(last - (begin + 59)) <= 2
        assert not is_open


def test_a_rank_that_is_slow_again_and_again_does_not_fill_the_memory() -> None:
    job = Job(ranks=8, jitter=0.01, seed=11)
    job.slow(3, 0.2, when=lambda step: step >= 100 and step % 80 < 40)
    job.run(100 + 80 * (MOST_EPISODES_OF_A_RANK + 6))
    episodes = job.tracker.episodes
    assert len(episodes) <= MOST_EPISODES_OF_A_RANK + 1
    assert sum(episode.parts for episode in episodes) > MOST_EPISODES_OF_A_RANK + 3
    slow_steps = sum(episode.steps for episode in episodes)
    assert slow_steps == pytest.approx(40 * (MOST_EPISODES_OF_A_RANK + 6), rel=0.1)


def test_half_of_two_thousand_ranks_slow_at_once_are_all_followed() -> None:
    job = Job(ranks=2000, jitter=0.005, seed=12)
    slow = list(range(0, 600))
    job.slow(slow, 0.05, when=lambda step: 60 <= step < 160)
    job.run(155)
    assert set(named(job)) == set(slow)
    job.run(45)
    episodes = job.tracker.episodes
    assert not any(episode.open for episode in episodes)
    assert np.median([episode.last_step for episode in episodes]) == 159


def test_an_episode_adds_up_what_the_rank_cost() -> None:
    job = Job(ranks=8, jitter=0.002, seed=13)
    job.slow(3, 0.2, since=100)
    job.run(200)
    (episode,) = job.tracker.episodes
    assert episode.steps == 100
    assert episode.self_ns / episode.peer_self_ns == pytest.approx(1.2, abs=0.005)
    assert episode.recoverable_ns / episode.duration_ns == pytest.approx(0.2 / 1.2, abs=0.01)
    assert episode.alone_ns == episode.recoverable_ns
    assert episode.phase_excess_ns.sum() == pytest.approx(100 * 1e9, rel=0.05)


def test_identical_ranks_and_absent_ranks_name_nobody() -> None:
    job = Job(ranks=8, jitter=0.0, seed=14)
    job.run(300)
    assert named(job) == []
    assert np.isfinite(job.tracker.doubt)


def test_the_order_of_the_ranks_changes_nothing() -> None:
    """The same job with groups given apart or one is the same where the groups are."""
    names = []
    for groups in ([np.arange(8), np.arange(8, 16)], [np.arange(8, 16), np.arange(8)]):
        job = Job(ranks=16, jitter=0.01, groups=groups, seed=15)
        job.slow(11, 0.1, since=200)
        job.run(260)
        (episode,) = job.tracker.episodes
        names.append((episode.rank, episode.first_step, episode.steps, episode.evidence))
    assert names[0] == pytest.approx(names[1])


def test_onsets_of_many_series_are_found_at_once_with_holes_in_them() -> None:
    rng = np.random.default_rng(1)
    truth = np.array([10, 40, 75])
    excess = 0.1 * rng.standard_normal((100, 3)) + (np.arange(100)[:, None] >= truth)
    excess[5:60:7] = np.nan
    assert np.abs(find_onset(excess) - truth).max() <= 2


@pytest.mark.parametrize(
    ("freedom", "probability", "quantile"),
    [(6, 0.999875, 7.71), (6, 0.95, 1.943), (30, 0.999, 3.385), (62, 0.99, 2.388)],
)
def test_students_quantiles_are_those_of_the_tables(
    freedom: int, probability: float, quantile: float
) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=0.015)


@pytest.mark.parametrize("ranks", [3, 8, 64])
def test_healthy_ranks_are_beyond_the_limit_in_hardly_any_job(ranks: int) -> None:
    rng = np.random.default_rng(ranks)
    jobs, beyond = 1500, 0
    for _ in range(jobs):
        usual = 0.015 * rng.standard_normal(ranks)
        worst = int(usual.argmax())
        others = np.delete(usual, worst)
        beyond += usual[worst] - np.median(others) > healthy_limit(others)
    assert beyond <= 0.005 * jobs


def test_of_many_healthy_jobs_hardly_one_is_believed_and_a_real_one_is() -> None:
    rng = np.random.default_rng(4)
    # Exponential tails with mean 1: e-values at their limit.
    chance = rng.pareto(1.0, (200, 400)) * 0.2
    assert believed_jobs(np.array([])).tolist() == []
    false = sum(believed_jobs(row, 0.05).any() for row in chance)
    assert false <= 0.05 * 200 + 3 * np.sqrt(0.05 * 200)
    with_two = chance[0].copy()
    with_two[[3, 7]] = 1e9
    assert np.flatnonzero(believed_jobs(with_two)).tolist() == [3, 7]
    assert not believed_jobs(np.array([np.nan, 1.0, 0.5])).any()
    with pytest.raises(AnalysisError, match="false share"):
        believed_jobs(np.ones(3), 0.0)


def test_joined_episodes_keep_sums_and_the_whole_span() -> None:
    def part(first: int, last: int) -> Episode:
        return Episode(
            rank=1, first_step=first, last_step=last, seen_step=last, shift=0.1, offset=0.0,
            evidence=float(last), confidence=0.9, from_start=False, open=False, steps=5,
        )  # fmt: skip

    joined = part(10, 15).join(part(40, 45))
    assert (joined.first_step, joined.last_step, joined.steps, joined.parts) == (10, 45, 10, 2)
    assert not joined.transient
