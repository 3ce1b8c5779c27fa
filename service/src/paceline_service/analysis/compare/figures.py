"""The figures of a run by batches of steps, so that two runs can be compared.

Neighbouring steps resemble each other. Means of batches hardly do, and are close to normal, so
that a test may treat them as independent (docs/math/compare.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.blame.timeline import PHASES
from paceline_service.analysis.records import FloatArray, Int64Array

MOST_BATCHES = 16
STEPS_PER_BATCH = 4
LEAST_BATCHES = 4
PARTS = PHASES + 2
MOST_READ = 256
"""Of the steps of a batch that parts and ranks are taken from, evenly spaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """B batches of a run.

    Attributes:
        steps: how many steps they hold.
        duration_ns: (B,) median step time of each batch.
        part_ns: (B, 9) mean over steps and ranks of own work in the seven phases, exposed
            communication, exposed wait. Their sum is the mean step time.
        self_ns: (B, R) median self time of each rank, NaN where it has no data.
    """

    steps: int
    duration_ns: FloatArray
    part_ns: FloatArray
    self_ns: FloatArray


def batch_edges(steps: int) -> list[int]:
    """Return where the batches of ``steps`` steps begin, and where the last one ends.

    What does not fit into batches of one size is left out at the beginning of the run.
    """
    count = min(MOST_BATCHES, max(steps // STEPS_PER_BATCH, min(steps, LEAST_BATCHES)))
    if count == 0:
        return [0]
    size = steps // count
    return [steps - size * (count - place) for place in range(count + 1)]


def batch_figures(per_rank: Sequence[Int64Array]) -> tuple[FloatArray, FloatArray]:
    """Return the mean parts (9,) and the median self times (R,) of some steps; NaN: no data.

    Args:
        per_rank: of each step (10, R): self, wait, communication, self in the seven phases; ns,
            -1 where a rank has no data.
    """
    table = np.stack(per_rank).astype(np.float64)
    table[table < 0] = np.nan
    known = ~np.isnan(table[:, 0])
    count = int(known.sum())
    rows = (*range(3, table.shape[1]), 2, 1)
    parts = np.array([float(np.nansum(table[:, row])) for row in rows])
    parts = parts / count if count else np.full(len(rows), np.nan)
    return parts, _median(table[:, 0], known)


def _median(
    values: FloatArray, known: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> FloatArray:
    """Return the median of each column of what is known, NaN where nothing is."""
    seen = known.any(axis=0)
    out = np.full(values.shape[1], np.nan)
    if seen.any():
        out[seen] = np.nanmedian(values[:, seen], axis=0)
    return out
