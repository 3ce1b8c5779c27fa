"""What detection could reach at best, and what the project allows itself (DETECTION section 4)."""

from __future__ import annotations

import math

MONTH_S = 30 * 86_400.0
MATERIAL_RATIO = 0.005
"""Recall counts faults that cost the job at least this share of its time."""
DELAY_MEDIAN_LIMIT = 1.5
DELAY_P95_LIMIT = 2.5
LEAST_DURATION = 3.0
"""Faults shorter than so many allowed delays are scored apart."""
LEAST_PEERS = 8
"""Delays are scored where a rank has at least so many peers, itself among them."""
SPREAD_SDS = 3.0
"""A fault from step 0 within so many sd of the healthy spread is scored apart."""


def steps_between_false_namings(step_s: float, namings_per_month: float = 1.0) -> float:
    """Return gamma, the steps that pass between two false namings of a job."""
    return MONTH_S / step_s / namings_per_month


def least_delay(
    shift: float, sd: float, *, peers: int, ranks: int, gamma: float, autocorrelation: float = 0.0
) -> float:
    """Return max(delay*, ln(K gamma) / ln K), steps.

    delay* = max(1, 2 / D^2 (ln(K gamma D^2 / 2) - 1)) with D = shift / sd sqrt(1 - 1/K). Where
    noise lasts from step to step, D is that of whitened noise: sqrt((1 - rho) / (1 + rho)) less.

    Args:
        shift: of the logarithm of the own time.
        sd: of the same from step to step.
        peers: ranks that do the same work, this one among them.
        ranks: all that might be named, K gamma being the threshold.
        gamma: steps between two false namings of the job.
        autocorrelation: lag-1 of the noise.
    """
    if peers < 2 or shift <= 0:
        return math.inf
    floor = math.log(ranks * gamma) / math.log(peers)
    if sd <= 0:
        return floor
    lasting = (1 - autocorrelation) / (1 + autocorrelation)
    squared = (shift / sd) ** 2 * (1 - 1 / peers) * lasting
    wanted = ranks * gamma * squared / 2
    best = 2 / squared * (math.log(wanted) - 1) if wanted > math.e else math.inf
    return max(best, 1.0, floor)


def allowed_steps(delay_bound: float) -> float:
    """Return how long a fault must last to be scored, steps."""
    return LEAST_DURATION * DELAY_MEDIAN_LIMIT * delay_bound
