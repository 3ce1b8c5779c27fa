"""False namings in millions of healthy rank-steps, of the evidence alone.

Self times go straight into the ``EpisodeTracker``, the same code that a job's records reach after
matching and waits. Whoever it opens an episode on counts as named, also where that would cost
too little to be reported: an upper bound of what a user would read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from paceline.vocabulary import EXCLUSIVE_PHASES
from paceline_service.analysis.evidence.episode import StepNote
from paceline_service.analysis.evidence.episodes import EpisodeTracker
from paceline_service.analysis.options import Options
from paceline_service.bench.detect.draw import JITTERS, SEEDS_BY_NAME, SPREADS, TAILS, pick
from paceline_service.bench.detect.limits import steps_between_false_namings
from paceline_service.bench.detect.simulate.noise import Noise, RankNoise

STEP_S = 5.0
SIZES = {8: 20_000, 64: 5_000, 1000: 1_000}
"""Ranks of a job, and the steps of each job; every job has noise and lasting offsets of its own."""
FULL_RANK_STEPS = 10_000_000
RAISED_NAMINGS = 20.0
"""A second run raises the rate that is asked for so far that so many false namings are allowed:
at one in a month ten million rank-steps would hardly show a rate that is many times too high."""
RAISED_SHARE = 0.2
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeJob:
    """One healthy job of a volume run."""

    ranks: int
    steps: int
    seed: int
    namings_per_month: float


def false_namings(job: VolumeJob) -> int:
    """Return how often somebody was named in a job in which nobody is slow."""
    rng = np.random.default_rng(job.seed)
    noise = Noise(
        jitter=pick(rng, *JITTERS), tail=TAILS[int(rng.integers(len(TAILS)))],
        autocorrelation=0.2, spread=pick(rng, *SPREADS), common=0.01,
    )  # fmt: skip
    source = RankNoise(noise, job.ranks, rng)
    tracker = EpisodeTracker(job.ranks, Options(false_namings_per_month=job.namings_per_month))
    peers = [np.arange(job.ranks)]
    phases = np.zeros((job.ranks, len(EXCLUSIVE_PHASES)), dtype=np.int64)
    none = np.zeros(job.ranks)
    counts = np.zeros(job.ranks, dtype=np.int64)
    unknown, off = np.full(job.ranks, np.nan), np.zeros(job.ranks, dtype=np.bool_)
    for step in range(job.steps):
        self_ns = (source.step() * STEP_S * 1e9).astype(np.int64)
        tracker.update(
            StepNote(
                step=step, duration_ns=int(self_ns.max()), self_ns=self_ns, phase_self_ns=phases,
                blamed_ns=none, last_count=counts, launch_lag_ns=unknown, on_device=off,
                scores=unknown,
            ),
            peers,
        )  # fmt: skip
    return len(tracker.episodes)


def measure(
    ranks: int, *, rank_steps: int, seeds: str, processes: int | None = None
) -> dict[str, float | int]:
    """Return the count and its bounds for jobs of ``ranks``, at the default and a raised rate."""
    plain = _count(ranks, rank_steps, 1.0, seeds, 0, processes)
    raised_steps = max(int(rank_steps * RAISED_SHARE) // ranks, 1)
    raised = RAISED_NAMINGS * steps_between_false_namings(STEP_S) / raised_steps
    return {
        "ranks": ranks,
        **plain,
        **{f"raised_{name}": value for name, value in
           _count(ranks, raised_steps * ranks, raised, seeds, 5_000, processes).items()},
    }  # fmt: skip


def _count(
    ranks: int, rank_steps: int, namings: float, seeds: str, first: int, processes: int | None
) -> dict[str, float | int]:
    steps = rank_steps // ranks
    each = min(SIZES.get(ranks, 1_000), steps)
    base = SEEDS_BY_NAME[seeds].start + 500_000 + first + 10_000 * (ranks % 97)
    jobs = [
        VolumeJob(ranks=ranks, steps=each, seed=base + number, namings_per_month=namings)
        for number in range(max(math.ceil(steps / each), 1))
    ]
    count = sum(_map(jobs, processes))
    steps = each * len(jobs)
    stated = steps / steps_between_false_namings(STEP_S, namings)
    upper, lower = poisson_upper(count), poisson_lower(count)
    return {
        "rank_steps": steps * ranks,
        "false_namings": count,
        "stated": stated,
        "per_million_rank_steps": count / (steps * ranks) * 1e6,
        "upper_per_million_rank_steps": upper / (steps * ranks) * 1e6,
        "consistent": bool(lower <= stated),
    }


def _map(jobs: Sequence[VolumeJob], processes: int | None) -> list[int]:
    processes = min(processes or len(os.sched_getaffinity(0)), len(jobs))
    if processes == 1:
        return [false_namings(job) for job in jobs]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(false_namings, jobs))


def poisson_upper(count: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided upper bound of a Poisson mean of which ``count`` were seen."""
    return _solve(lambda mean: _at_most(count, mean) - (1 - confidence), count)


def poisson_lower(count: int, confidence: float = CONFIDENCE) -> float:
    """Return the one-sided lower bound; 0 for none seen."""
    if count == 0:
        return 0.0
    return _solve(lambda mean: _at_most(count - 1, mean) - confidence, count)


def _at_most(count: int, mean: float) -> float:
    if mean <= 0:
        return 1.0
    return sum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(count + 1))


def _solve(falling: Callable[[float], float], count: int) -> float:
    low, high = 0.0, count + 10 * math.sqrt(count + 1) + 10
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
