"""Bulk-synchronous steps: every rank computes, waits for the last one, then all communicate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline_service.simulate.noise import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Bsp:
    """S supersteps of R ranks (docs/math/execution.md).

    Attributes:
        compute_s: (S, R).
        communication_s: after the barrier, the same for all.
        expected_s: (R,), what each rank computes on average: what perfect balance would share.
    """

    compute_s: Floats
    communication_s: float
    expected_s: Floats

    @property
    def superstep_s(self) -> Floats:
        """How long each step is (S,): the slowest rank, then the communication."""
        return np.asarray(self.compute_s.max(axis=1) + self.communication_s)

    @property
    def wait_s(self) -> Floats:
        """How long each rank waits at the barrier of each step (S, R)."""
        return np.asarray(self.compute_s.max(axis=1, keepdims=True) - self.compute_s)

    @property
    def slowest_rank(self) -> NDArray[np.intp]:
        """Whom the others wait for in each step (S,)."""
        return np.asarray(self.compute_s.argmax(axis=1))

    @property
    def wall_clock_s(self) -> float:
        """All steps one after the other."""
        return float(self.superstep_s.sum())

    @property
    def balanced_s(self) -> float:
        """The same steps if every rank always took the mean of the ranks' averages."""
        return len(self.compute_s) * float(self.expected_s.mean() + self.communication_s)

    @property
    def idle_injected_s(self) -> float:
        """What the job takes longer than in perfect balance: every rank is idle so long more."""
        return self.wall_clock_s - self.balanced_s

    @property
    def wait_total_s(self) -> float:
        """Waiting at barriers, all ranks together."""
        return float(self.wait_s.sum())

    @property
    def wait_ratio(self) -> float:
        """Waiting as a share of all ranks' time."""
        return self.wait_total_s / (len(self.expected_s) * self.wall_clock_s)

    @property
    def straggler(self) -> int:
        """The rank that takes longest on average, the first of several."""
        return int(self.expected_s.argmax())

    @property
    def straggler_share(self) -> float:
        """The straggler's part of what all ranks compute on average; 1/R in perfect balance."""
        return float(self.expected_s.max() / self.expected_s.sum())

    @property
    def without_straggler_s(self) -> float:
        """The same steps if the straggler never were the last."""
        others = np.delete(self.compute_s, self.straggler, axis=1)
        return float(others.max(axis=1).sum()) + len(self.compute_s) * self.communication_s
