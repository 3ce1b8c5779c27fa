"""Which scenarios are run, and by how many processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from paceline.errors import ConfigError
from paceline_service.bench.detect.controls import HEALTHY
from paceline_service.bench.detect.draw import SEEDS_BY_NAME
from paceline_service.bench.detect.families import FAULTY, REPORTED
from paceline_service.bench.detect.one import run
from paceline_service.bench.detect.outcome import Outcome
from paceline_service.bench.detect.scenario import Scenario

BUILDERS = {**FAULTY, **HEALTHY, **REPORTED}
FAMILIES = tuple(BUILDERS)
QUICK = {
    "sudden": 9, "small": 3, "parallel": 6, "large": 1, "creeping": 2, "transient": 3,
    "periodic": 3, "rotating": 2, "two": 3, "from_start": 3, "node": 3, "stage": 3, "network": 4,
    "uniform": 2, "plain": 3, "warm_up": 2, "evaluation": 2, "checkpoint": 2, "resize": 2,
    "sequences": 2, "comm_bound": 2, "long_context": 2, "gpu_error": 2,
}  # fmt: skip
FULL_TIMES = 8
SEEDS_PER_FAMILY = 10_000


def scenario_of(family: str, number: int, seeds: str = "scored") -> Scenario:
    """Return one scenario of a family; the same number gives the same one.

    Raises:
        ConfigError: there is no such family.
    """
    if family not in BUILDERS:
        raise ConfigError(f"no family {family!r}; there are {', '.join(FAMILIES)}")
    seed = SEEDS_BY_NAME[seeds].start + FAMILIES.index(family) * SEEDS_PER_FAMILY + number
    return BUILDERS[family](np.random.default_rng(seed), seed)


def numbers_of(family: str, *, quick: bool) -> range:
    """Return how many scenarios of a family are run."""
    return range(QUICK[family] * (1 if quick else FULL_TIMES))


def run_suite(
    families: Sequence[str], *, quick: bool, seeds: str, processes: int | None = None
) -> Iterator[Outcome]:
    """Run the scenarios of ``families``; the outcomes come in their order."""
    work = [
        (family, number, seeds) for family in families for number in numbers_of(family, quick=quick)
    ]
    processes = processes or len(os.sched_getaffinity(0))
    if processes == 1:
        yield from map(_run, work)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_run, work)


def _run(work: tuple[str, int, str]) -> Outcome:
    """Run one; a crash of the analysis is an outcome, too: it misses everything."""
    scenario = scenario_of(*work)
    try:
        return run(scenario)
    except Exception as error:
        return Outcome(
            family=scenario.family, seed=scenario.seed, layout=scenario.spec.layout.name,
            noise="", steps=scenario.spec.steps, expected=list(scenario.verdicts),
            verdict="error", parallel=False, error=f"{type(error).__name__}: {error}",
        )  # fmt: skip
