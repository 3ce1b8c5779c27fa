"""Draws the circumstances of a job: noise as it was measured, layouts, sizes of faults."""

from __future__ import annotations

import numpy as np

from paceline_service.bench.detect.simulate.layout import Layout
from paceline_service.bench.detect.simulate.noise import Noise

SCORED_SEEDS = range(1_000_000, 2_000_000)
"""Results are reported on these; nothing was looked at while tuning."""
TUNING_SEEDS = range(2_000_000, 3_000_000)
"""For whoever improves the analysis."""
SEEDS_BY_NAME = {"scored": SCORED_SEEDS, "tuning": TUNING_SEEDS}
JITTERS = (0.005, 0.01, 0.02, 0.05, 0.10)
SPREADS = (0.002, 0.007, 0.017)
SIZES = (0.005, 0.01, 0.02, 0.04, 0.10, 0.25, 0.5, 1.0, 2.0)
TAILS = ("normal", "student3", "lognormal", "skewed", "spikes")
LONGEST = 360
"""Steps that a fault may need to be scored; faults that need longer are drawn larger."""
FLAT = (
    Layout(dp=8, node_size=4),
    Layout(dp=16),
    Layout(dp=32),
    Layout(dp=16, expert=8),
    Layout(dp=16, shard=8),
)
PARALLEL = (
    Layout(dp=4, tp=4),
    Layout(dp=8, tp=2),
    Layout(dp=2, tp=8),
    Layout(dp=4, pp=4, node_size=4),
    Layout(dp=8, pp=2),
    Layout(dp=2, tp=4, pp=2, node_size=4),
    Layout(dp=4, tp=2, pp=4, node_size=8),
)
PIPELINES = tuple(layout for layout in PARALLEL if layout.pp > 1)


def pick(rng: np.random.Generator, *values: float) -> float:
    """Return one of ``values``."""
    return values[int(rng.integers(len(values)))]


def draw_noise(rng: np.random.Generator, jitters: tuple[float, ...] = JITTERS) -> Noise:
    """Return noise as real jobs have it (DETECTION section 4)."""
    return Noise(
        jitter=pick(rng, *jitters),
        tail=TAILS[int(rng.integers(len(TAILS)))],
        autocorrelation=pick(rng, 0.0, 0.2),
        spread=pick(rng, *SPREADS),
        common=pick(rng, 0.007, 0.026),
    )


def draw_layout(rng: np.random.Generator, layouts: tuple[Layout, ...]) -> Layout:
    """Return one of ``layouts``."""
    return layouts[int(rng.integers(len(layouts)))]


def draw_causes(rng: np.random.Generator) -> str:
    """Return what makes a rank slow."""
    causes = ("compute", "compute", "input", "host", "gpu_throttle")
    return causes[int(rng.integers(len(causes)))]
