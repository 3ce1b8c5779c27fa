"""How much each rank works, block by block of steps, in bounded memory (docs/math/stages.md)."""

from __future__ import annotations

import math

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.evidence.stages import Places
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import FloatArray

HEAVY_RATIO = 0.03
"""How much more than the others a stage must work to be a finding: twice what healthy ranks differ
by for good (0.2 to 1.7 %, DETECTION section 4)."""
LONE_HEAVY_RATIO = 0.05
"""The same for a stage of one rank, whose own difference nothing averages out: three times it.
With D replicas it falls with the square root of D, down to ``HEAVY_RATIO``."""
BLOCK_STEPS = 8
"""Steps of a block at first: as many as a finding needs at least."""
MAX_BLOCKS = 32
"""More are joined two by two, so a block is at most a 16th of what was seen."""
CORRELATED = 1.25
"""How much larger a standard error is at the lag-1 autocorrelation of 0.2 of real jobs: the square
root of (1 + 0.2) / (1 - 0.2), DETECTION section 4."""
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Sums over some consecutive steps; logs of a rank's work less the mean over ranks, (R,)."""

    first_step: int
    last_step: int
    steps: int
    duration_ns: int
    log_sum: FloatArray
    log_squares: FloatArray
    phase_ns: FloatArray
    """(S, 2) forward and backward of a stage, the mean of its ranks."""

    def __add__(self, later: Block) -> Block:
        """Return both as one."""
        return Block(
            first_step=self.first_step,
            last_step=later.last_step,
            steps=self.steps + later.steps,
            duration_ns=self.duration_ns + later.duration_ns,
            log_sum=self.log_sum + later.log_sum,
            log_squares=self.log_squares + later.log_squares,
            phase_ns=self.phase_ns + later.phase_ns,
        )

    def ratios(self, places: Places) -> tuple[FloatArray, FloatArray]:
        """Return (D, S) log of each stage's work over the median of the others, and its error."""
        mean = self.log_sum / self.steps
        variance = np.maximum(self.log_squares / self.steps - mean**2, 0)
        error = CORRELATED * np.sqrt(2 * variance / self.steps)
        shape = (int(places.replica.max()) + 1, places.stages)
        logs, errors = np.zeros(shape), np.zeros(shape)
        known = places.stage >= 0
        logs[places.replica[known], places.stage[known]] = mean[known]
        errors[places.replica[known], places.stage[known]] = error[known]
        others = [median_of(np.delete(logs, k, axis=1), axis=1) for k in range(places.stages)]
        return logs - np.stack(others, axis=1), errors


def heavy_ratio(replicas: int) -> float:
    """Return how much more than the others a stage of so many replicas must work."""
    return max(HEAVY_RATIO, LONE_HEAVY_RATIO / math.sqrt(max(replicas, 1)))


class Blocks:
    """The blocks of a job so far."""

    def __init__(self) -> None:
        self._closed: list[Block] = []
        self._open: Block | None = None
        self._size = BLOCK_STEPS

    def add(self, step: Block) -> None:
        """Take a block of one step, the next one."""
        self._open = step if self._open is None else self._open + step
        if self._open.steps < self._size:
            return
        self._closed.append(self._open)
        self._open = None
        if len(self._closed) == MAX_BLOCKS:
            self._closed = [
                before + after
                for before, after in zip(self._closed[::2], self._closed[1::2], strict=True)
            ]
            self._size *= 2

    @property
    def all(self) -> list[Block]:
        """All blocks in order; the last may be short, and counts when it has enough steps."""
        if self._open is None:
            return list(self._closed)
        if self._open.steps >= BLOCK_STEPS // 2 or not self._closed:
            return [*self._closed, self._open]
        return [*self._closed[:-1], self._closed[-1] + self._open]


def heaviest_run(excess: FloatArray, steps: FloatArray) -> tuple[int, int]:
    """Return begin and end (excluded) of the blocks in which an excess stands out.

    The stretch with the largest sum above half of what it amounts to, as for the onset of an
    episode (docs/math/episodes.md), but with an end; begun from half of ``HEAVY_RATIO``.

    Args:
        excess: (B,) log of a stage's work over that of the others, per block.
        steps: (B,) steps of each block.
    """
    half = float(np.log1p(HEAVY_RATIO)) / 2
    begin, end = 0, 0
    for _ in range(_ROUNDS):
        gain = np.concatenate([[0.0], np.cumsum((np.minimum(excess, 4 * half) - half) * steps)])
        lowest = np.minimum.accumulate(gain)
        end = int(np.argmax(gain - lowest))
        begin = int(np.flatnonzero(gain[: end + 1] == lowest[end])[-1])
        if end == begin:
            return 0, 0
        half = max(float(np.average(excess[begin:end], weights=steps[begin:end])) / 2, half)
    return begin, end
