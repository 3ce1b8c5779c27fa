"""Feeds made-up self times straight to the tracker: seeded truth, a millisecond a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paceline.vocabulary import EXCLUSIVE_PHASES, Phase
from paceline_service.analysis.evidence.episode import StepNote
from paceline_service.analysis.evidence.episodes import EpisodeTracker
from paceline_service.analysis.options import Options

STEP_NS = 5_000_000_000
PHASES = len(EXCLUSIVE_PHASES)


class Job:
    """A job of ``ranks`` whose self times jitter; ``slow`` adds faults, ``run`` goes on.

    Args:
        ranks: R.
        jitter: residual coefficient of variation.
        tails: ``normal``, ``t3``, ``lognormal`` or ``spikes`` (1 % of ten deviations).
        autocorrelation: lag-1 of the jitter.
        spread: persistent differences of the ranks, standard deviation.
        groups: peer groups; one of all ranks by default.
        ranks_per_node: 0 tells of no nodes.
        options: how cautious to be.
        seed: of everything.
    """

    def __init__(
        self, *, ranks: int, jitter: float = 0.01, tails: str = "normal",
        autocorrelation: float = 0.0, spread: float = 0.0,
        groups: list[np.ndarray] | None = None, ranks_per_node: int = 0,
        options: Options | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self._rng = np.random.default_rng(seed)
        self._ranks, self._jitter, self._tails = ranks, jitter, tails
        self._rho = autocorrelation
        self._usual = 1 + spread * self._rng.standard_normal(ranks)
        self._state = self._draw()
        self._groups = [np.arange(ranks)] if groups is None else groups
        self._faults: list[tuple[np.ndarray, float, Callable[[int], float], Phase]] = []
        self.tracker = EpisodeTracker(ranks, options or Options())
        self.step = 0
        if ranks_per_node:
            for rank in range(ranks):
                self.tracker.declare_node(rank, f"node-{rank // ranks_per_node}")

    def slow(
        self, ranks: int | list[int], ratio: float, *, since: int = 0,
        when: Callable[[int], float] | None = None, phase: Phase = Phase.BACKWARD,
    ) -> None:  # fmt: skip
        """Make ``ranks`` slower by ``ratio`` from a step on, or by as much as ``when`` says."""
        size = when if when is not None else lambda step: float(step >= since)
        self._faults.append((np.atleast_1d(ranks), ratio, size, phase))

    def run(self, steps: int) -> EpisodeTracker:
        """Go on for ``steps`` steps."""
        for _ in range(steps):
            self.one_step()
        return self.tracker

    def one_step(self) -> StepNote:
        """Go on for one step."""
        rho = self._rho
        self._state = rho * self._state + np.sqrt(1 - rho**2) * self._draw()
        common = 1 + 0.02 * self._rng.standard_normal()
        healthy = common * self._usual * np.maximum(1 + self._jitter * self._state, 0.2)
        phases = np.zeros((self._ranks, PHASES))
        phases[:, Phase.BACKWARD] = healthy
        for ranks, ratio, size, phase in self._faults:
            phases[ranks, phase] += healthy[ranks] * ratio * float(size(self.step))
        phase_ns = (phases * STEP_NS).astype(np.int64)
        self_ns = phase_ns.sum(axis=1)
        note = StepNote(
            step=self.step,
            duration_ns=int(self_ns.max()),
            self_ns=self_ns,
            phase_self_ns=phase_ns,
            blamed_ns=np.zeros(self._ranks),
            last_count=np.zeros(self._ranks, dtype=np.int64),
            launch_lag_ns=np.full(self._ranks, np.nan),
            on_device=np.ones(self._ranks, dtype=np.bool_),
            scores=np.full(self._ranks, np.nan),
        )
        self.step += 1
        return self.tracker.update(note, self._groups)

    def _draw(self) -> np.ndarray:
        rng, count = self._rng, self._ranks
        if self._tails == "t3":
            return np.asarray(rng.standard_t(3, count) / np.sqrt(3))
        if self._tails == "lognormal":
            return np.asarray((rng.lognormal(0, 0.75, count) - 1.325) / 1.151)
        if self._tails == "spikes":
            return np.asarray(rng.standard_normal(count) + 10 * (rng.random(count) < 0.01))
        return np.asarray(rng.standard_normal(count))
