from __future__ import annotations

import numpy as np
import pytest

from paceline_service.analysis.network.evidence import LEAST_SHIFT, Evidence

CLASSES, STEPS, CLASS_LEVEL = 1000, 600, 15.0


def run(seed: int, *, correlation: float = 0.0, tails: bool = False, spikes: float = 0.0,
        period: int = 0, shift: float = 0.0, since: int = STEPS) -> np.ndarray:  # fmt: skip
    """Return the largest evidence against each class; 3 % noise of the given kind."""
    rng = np.random.default_rng(seed)
    evidence = Evidence()
    evidence.grow(CLASSES)
    every = np.arange(CLASSES)
    state, largest = np.zeros(CLASSES), np.zeros(CLASSES)
    nobody = np.full(CLASSES, np.nan)
    for step in range(STEPS):
        shock = rng.standard_t(3, CLASSES) / np.sqrt(3) if tails else rng.standard_normal(CLASSES)
        state = correlation * state + np.sqrt(1 - correlation**2) * shock
        value = CLASS_LEVEL + 0.03 * state + shift * (step >= since)
        value += 2.0 * (rng.random(CLASSES) < spikes)
        value += 0.5 * (period > 0 and step % max(period, 1) == 0)
        evidence.update(every, value, nobody, np.full(CLASSES, LEAST_SHIFT))
        largest = np.maximum(largest, evidence.total())
    return largest


@pytest.mark.parametrize(
    "noise",
    [
        {},
        {"tails": True, "correlation": 0.2},
        {"tails": True, "correlation": 0.5},
        {"correlation": 0.8},
        {"spikes": 0.01},
        {"period": 4},
    ],
)
def test_healthy_classes_reach_a_level_no_oftener_than_promised(noise: dict[str, float]) -> None:
    level = 1e4
    reached = (run(5, **noise) >= level).sum()  # type: ignore[arg-type]
    assert reached <= CLASSES * STEPS / level


def test_a_tenth_longer_is_seen_in_3_percent_noise_within_a_hundred_steps() -> None:
    largest = run(6, shift=np.log(1.1), since=STEPS - 100)
    assert (largest >= 1e6).mean() > 0.95


def test_a_seventh_of_the_noise_longer_is_not_of_interest() -> None:
    largest = run(7, shift=0.004, since=300)
    assert (largest >= 1e4).sum() <= CLASSES * STEPS / 1e4
