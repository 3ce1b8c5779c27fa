"""Rounds of H steps without communication (local SGD, DiLoCo): one barrier for H steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline_service.simulate.noise import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """What rounds of H steps cost.

    Attributes:
        steps_per_round: H; 1 is bulk-synchronous.
        rounds: barriers; the last round may be shorter.
        wall_clock_s: of all steps.
        communication_s: of it.
        idle_s: waiting of all ranks.
        idle_ratio: as a share of all ranks' time.
    """

    steps_per_round: int
    rounds: int
    wall_clock_s: float
    communication_s: float
    idle_s: float
    idle_ratio: float


def local_steps(compute_s: Floats, communication_s: float, steps_per_round: int) -> LocalRun:
    """Return S steps in rounds.

    Args:
        compute_s: (S, R).
        communication_s: of one round.
        steps_per_round: H, from 1 to S.
    """
    begins = np.arange(0, len(compute_s), steps_per_round)
    own_s = np.add.reduceat(compute_s, begins, axis=0)
    last_s = own_s.max(axis=1)
    wall_s = float(last_s.sum()) + len(begins) * communication_s
    idle_s = float((last_s[:, None] - own_s).sum())
    return LocalRun(
        steps_per_round=steps_per_round,
        rounds=len(begins),
        wall_clock_s=wall_s,
        communication_s=len(begins) * communication_s,
        idle_s=idle_s,
        idle_ratio=idle_s / (compute_s.shape[1] * wall_s),
    )
