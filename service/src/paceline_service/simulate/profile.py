"""The ranks of a job as the simulator knows them: how long each computes in a step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paceline_service.simulate.noise import Floats, Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Ranks by a law: what each takes on average, and how that spreads.

    Attributes:
        mean_s: (R,), above 0.
        noise: of all ranks, independent between ranks and steps.
    """

    mean_s: Floats
    noise: Noise = field(default_factory=Noise)

    @property
    def expected_s(self) -> Floats:
        """What each rank takes on average (R,)."""
        return self.noise.expected(self.mean_s)

    def draw(self, rng: np.random.Generator, steps: int) -> Floats:
        """Return compute times (S, R), s."""
        return self.noise.draw(rng, self.mean_s, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Ranks of which some have another law than others.

    Attributes:
        mean_s: (R,), above 0.
        laws: that there are.
        law_of: (R,), the place of each rank's law among them.
    """

    mean_s: Floats
    laws: tuple[Noise, ...]
    law_of: NDArray[np.intp]

    @property
    def expected_s(self) -> Floats:
        """What each rank takes on average (R,)."""
        found = np.empty_like(self.mean_s)
        for place, law in enumerate(self.laws):
            of = self.law_of == place
            found[of] = law.expected(self.mean_s[of])
        return found

    def draw(self, rng: np.random.Generator, steps: int) -> Floats:
        """Return compute times (S, R), s, law by law."""
        drawn = np.empty((steps, len(self.mean_s)))
        for place, law in enumerate(self.laws):
            of = self.law_of == place
            drawn[:, of] = law.draw(rng, self.mean_s[of], steps)
        return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Ranks as they were measured.

    Attributes:
        compute_s: (N, R), own work of each rank in each step that was recorded.
        in_order: steps come as they were, from the first again after the last; else whole steps
            are drawn, so that what all ranks have in common in a step stays together.
    """

    compute_s: Floats
    in_order: bool = False

    @property
    def expected_s(self) -> Floats:
        """What each rank took on average (R,)."""
        return np.asarray(self.compute_s.mean(axis=0))

    def draw(self, rng: np.random.Generator, steps: int) -> Floats:
        """Return compute times (S, R), s."""
        count = len(self.compute_s)
        rows = np.arange(steps) % count if self.in_order else rng.integers(count, size=steps)
        return self.compute_s[rows]


Ranks = Profile | Mixed | Recorded
